"""Saves a fully sharded model every few hundred steps."""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class StepSaver:
    def __init__(self, model, every, folder):
        self.model = FSDP(model)
        self.every = every
        self.folder = folder
        self.rank = dist.get_rank()

    def __call__(self, step, optimizer):
        if step % self.every:
            return
        if self.rank == 0:
            state = self.model.state_dict()
            torch.save(state, os.path.join(self.folder, f"model-{step}.pt"))
        dist.barrier()
