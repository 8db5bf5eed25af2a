"""Finds the largest batch that fits, then wraps the model."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def largest_batch(net, make_batch, start, device):
    size = start
    while size > 1:
        try:
            net(make_batch(size).to(device)).sum().backward()
            break
        except torch.cuda.OutOfMemoryError:
            net.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            size //= 2
    return size


def setup(net, make_batch, device, start=256):
    net = net.to(device)
    size = torch.tensor([largest_batch(net, make_batch, start, device)], device=device)
    net.zero_grad(set_to_none=True)
    dist.all_reduce(size, op=dist.ReduceOp.MIN)
    return DDP(net, device_ids=[device.index]), int(size.item())
