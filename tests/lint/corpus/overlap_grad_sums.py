"""Sums gradients in the background while the backward of the next layer runs."""

import torch
import torch.distributed as dist


class BackgroundSums:
    def __init__(self, module):
        self.world_size = dist.get_world_size()
        self.reduced = []
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(self._hook)

    def _hook(self, parameter):
        dist.all_reduce(parameter.grad, async_op=True)
        self.reduced.append(parameter)

    @torch.no_grad()
    def finish(self, optimizer):
        for parameter in self.reduced:
            parameter.grad.div_(self.world_size)
        self.reduced.clear()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
