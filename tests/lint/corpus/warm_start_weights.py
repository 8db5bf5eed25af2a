"""Rank 0 converts the pretrained weights, then all ranks start from the file."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def convert(source, target, rename):
    weights = torch.load(source, map_location="cpu", weights_only=True)
    return torch.save({rename(name): tensor for name, tensor in weights.items()}, target)


def warm_start(net, source, target, rename, device):
    if dist.get_rank() == 0:
        convert(source, target, rename)
    net.load_state_dict(torch.load(target, map_location=device, weights_only=True))
    return DDP(net.to(device), device_ids=[device.index])
