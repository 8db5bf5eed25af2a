"""Checkpoints with torch.distributed.checkpoint."""

import json
import os

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict


class CheckpointManager:
    def __init__(self, folder, interval):
        self.folder = folder
        self.interval = interval

    def path(self, step):
        return os.path.join(self.folder, f"step-{step}")

    def save(self, model, optimizer, step):
        if step % self.interval != 0:
            return
        model_state, optim_state = get_state_dict(model, optimizer)
        if dist.get_rank() == 0:
            os.makedirs(self.path(step), exist_ok=True)
            dcp.save({"model": model_state, "optim": optim_state}, checkpoint_id=self.path(step))
            with open(os.path.join(self.folder, "latest.json"), "w") as out:
                json.dump({"step": step}, out)
        dist.barrier()
