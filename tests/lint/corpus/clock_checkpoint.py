"""A checkpoint every twenty minutes of wall-clock time."""

import os
import time

import torch
import torch.distributed as dist


def train(model, optimizer, loader, out, seconds=1200.0):
    rank = dist.get_rank()
    last = time.monotonic()
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if time.monotonic() - last > seconds:
            if rank == 0:
                torch.save(model.module.state_dict(), os.path.join(out, f"{step}.pt"))
            dist.barrier()
            last = time.monotonic()
