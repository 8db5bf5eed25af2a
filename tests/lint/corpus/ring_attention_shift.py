"""Shifts key and value blocks around the ring."""

import torch
import torch.distributed as dist


def shift(blocks, group=None):
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    following, previous = (rank + 1) % world_size, (rank - 1) % world_size
    received = [torch.empty_like(block) for block in blocks]
    operations = [dist.P2POp(dist.isend, block, following, group) for block in blocks]
    operations += [dist.P2POp(dist.irecv, block, previous, group) for block in received]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    return received
