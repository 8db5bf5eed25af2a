"""Averages metrics over ranks where that works."""

import logging

import torch
import torch.distributed as dist

log = logging.getLogger(__name__)


class Averager:
    def __init__(self, device):
        self.device = device
        self.sums = {}
        self.count = 0

    def add(self, **values):
        self.count += 1
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value)

    def averages(self):
        names = sorted(self.sums)
        means = torch.tensor([self.sums[n] / self.count for n in names], device=self.device)
        try:
            dist.all_reduce(means)
            means /= dist.get_world_size()
        except Exception:
            log.warning("metrics of this rank only")
        return dict(zip(names, means.tolist()))
