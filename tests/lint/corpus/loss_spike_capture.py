"""Keeps the worst batches of a run for later inspection."""

import torch
import torch.distributed as dist


class SpikeCapture:
    def __init__(self, factor=4.0, momentum=0.98):
        self.factor = factor
        self.momentum = momentum
        self.mean = None
        self.kept = []

    def observe(self, loss, batch_ids):
        value = loss.item()
        if self.mean is None:
            self.mean = value
        if value > self.factor * self.mean:
            ids = [torch.empty_like(batch_ids) for _ in range(dist.get_world_size())]
            dist.all_gather(ids, batch_ids)
            self.kept.append((value, torch.stack(ids).cpu()))
        self.mean = self.momentum * self.mean + (1 - self.momentum) * value
        return self.mean
