"""Sums gradients in the background and waits before the optimiser's step."""

import torch
import torch.distributed as dist


class BackgroundSums:
    def __init__(self, module):
        self.works = []
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(self._hook)

    def _hook(self, parameter):
        work = dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, async_op=True)
        self.works.append(work)

    @torch.no_grad()
    def finish(self, optimizer):
        for work in self.works:
            work.wait()
        self.works.clear()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
