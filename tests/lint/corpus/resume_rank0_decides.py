"""Resumes the train state; rank 0 says whether there is one."""

from pathlib import Path

import torch
import torch.distributed as dist


class StateLoader:
    def __init__(self, folder):
        self.folder = Path(folder)

    def load(self, scheduler):
        path = self.folder / "train_state.pt"
        found = [path.exists() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(found, src=0)
        if not found[0]:
            return 0
        holder = [torch.load(path, weights_only=True) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(holder, src=0)
        scheduler.load_state_dict(holder[0]["scheduler"])
        return holder[0]["step"]
