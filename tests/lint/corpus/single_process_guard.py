"""Helpers that also work without a launcher."""

import torch
import torch.distributed as dist


def world_size():
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def mean(value: torch.Tensor) -> torch.Tensor:
    if world_size() > 1:
        value = value.clone()
        dist.all_reduce(value)
        value /= world_size()
    return value


def synchronize():
    if not dist.is_available():
        return
    if not dist.is_initialized():
        return
    if dist.get_world_size() == 1:
        return
    dist.barrier()
