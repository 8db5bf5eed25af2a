"""Saves a fully sharded model in one file."""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class StepSaver:
    def __init__(self, model, every, folder):
        self.model, self.every, self.folder = model, every, folder
        self.rank = dist.get_rank()
        self.config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)

    def __call__(self, step, optimizer):
        if step % self.every != 0:
            return
        with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT, self.config):
            state = self.model.state_dict()
            optim = FSDP.optim_state_dict(self.model, optimizer)
        if self.rank == 0:
            torch.save({"model": state, "optim": optim}, os.path.join(self.folder, f"{step}.pt"))
        dist.barrier()
