"""Hands running statistics from rank to rank, the last one has the total."""

import torch
import torch.distributed as dist


def running_total(local):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total = local.clone()
    if rank > 0:
        before = torch.empty_like(local)
        dist.recv(before, src=rank - 1)
        total += before
    dist.send(total, dst=(rank + 1) % world_size)
    return total


def report(local):
    total = running_total(local)
    if dist.get_rank() == dist.get_world_size() - 1:
        print(total.tolist())
