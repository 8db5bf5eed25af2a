"""Checkpoints that may take long: the wait has a group and a timeout of its own."""

from datetime import timedelta

import torch
import torch.distributed as dist


class PatientSaver:
    def __init__(self, every):
        self.every = every
        self.waiting = dist.new_group(backend="gloo", timeout=timedelta(hours=2))

    def maybe_save(self, model, optimizer, step, path):
        if step % self.every:
            return False
        if dist.get_rank() == 0:
            state = {"model": model.module.state_dict(), "optim": optimizer.state_dict(), "step": step}
            torch.save(state, path)
        dist.monitored_barrier(group=self.waiting, timeout=timedelta(hours=2))
        return True
