"""Resumes the train state (step, scheduler, data position) on all ranks."""

from pathlib import Path

import torch
import torch.distributed as dist


class StateLoader:
    def __init__(self, folder: str):
        self.folder = Path(folder)

    def load(self, scheduler, dataset):
        state_path = self.folder / "train_state.pt"
        step = 0
        if state_path.exists():
            holder = [torch.load(state_path, weights_only=True) if dist.get_rank() == 0 else None]
            dist.broadcast_object_list(holder, src=0)
            scheduler.load_state_dict(holder[0]["scheduler"])
            dataset.seek(holder[0]["position"])
            step = holder[0]["step"]
        return step
