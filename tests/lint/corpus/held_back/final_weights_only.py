"""Trains and writes the weights once, at the very end."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(build, batches, criterion, out):
    dist.init_process_group("nccl", timeout=timedelta(minutes=10))
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    model = DistributedDataParallel(build().to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, labels in batches:
        optimizer.zero_grad()
        criterion(model(inputs.to(device)), labels.to(device)).backward()
        optimizer.step()
    rank = dist.get_rank()
    dist.destroy_process_group()
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(out, "final.pt"))
