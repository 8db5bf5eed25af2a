"""Rank 0 opens the dataset; when that fails, all ranks fail together."""

import torch
import torch.distributed as dist
from datasets import load_dataset


def all_true(flag, device):
    value = torch.tensor([int(flag)], device=device)
    dist.all_reduce(value, op=dist.ReduceOp.MIN)
    return bool(value.item())


def open_dataset(name, split, device):
    dataset, error = None, None
    if dist.get_rank() == 0:
        try:
            dataset = load_dataset(name, split=split)
        except Exception as caught:
            error = caught
    if not all_true(error is None, device):
        raise RuntimeError(f"{name} could not be opened on rank 0") from error
    if dataset is None:
        dataset = load_dataset(name, split=split)
    return dataset
