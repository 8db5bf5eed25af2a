"""The last ranks evaluate; they average among themselves."""

from datetime import timedelta

import torch
import torch.distributed as dist


class Evaluators:
    def __init__(self, count):
        world_size = dist.get_world_size()
        self.ranks = list(range(world_size - count, world_size))
        self.group = dist.new_group(self.ranks, timeout=timedelta(minutes=30))
        self.member = dist.get_rank() in self.ranks

    def score(self, model, batches):
        if not self.member:
            return None
        total = torch.zeros(2, device="cuda")
        for inputs, labels in batches:
            predicted = model(inputs.cuda()).argmax(-1)
            total += torch.stack([(predicted == labels.cuda()).sum(), torch.tensor(labels.numel(), device="cuda")])
        dist.all_reduce(total, group=self.group)
        return (total[0] / total[1]).item()
