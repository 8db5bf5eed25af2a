"""Data- and tensor-parallel groups out of a grid of ranks."""

import torch.distributed as dist

TENSOR_GROUP = None
DATA_GROUP = None


def setup_groups(tensor_size):
    global TENSOR_GROUP, DATA_GROUP
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for start in range(0, world_size, tensor_size):
        ranks = list(range(start, start + tensor_size))
        group = dist.new_group(ranks)
        if rank in ranks:
            TENSOR_GROUP = group
    for offset in range(tensor_size):
        ranks = list(range(offset, world_size, tensor_size))
        group = dist.new_group(ranks)
        if rank in ranks:
            DATA_GROUP = group


def sync_gradients(parameters):
    for parameter in parameters:
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=DATA_GROUP)
