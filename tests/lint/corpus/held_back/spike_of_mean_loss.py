"""Looks at the loss of every rank when the mean jumps."""

import torch
import torch.distributed as dist


class JumpReport:
    def __init__(self, factor=3.0):
        self.factor = factor
        self.average = None

    def __call__(self, loss, step):
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        mean = mean.item()
        if self.average is not None and mean > self.factor * self.average:
            each = torch.empty(dist.get_world_size(), device=loss.device)
            dist.all_gather_into_tensor(each, loss.detach().view(1))
            if dist.get_rank() == 0:
                worst = each.argmax().item()
                print(f"step {step}: loss jumped to {mean:.3f}, highest on rank {worst}: {each[worst]:.3f}")
        self.average = mean if self.average is None else 0.95 * self.average + 0.05 * mean
