"""Leaves the loop when the scheduler sends SIGTERM."""

import signal

import torch
import torch.distributed as dist


class Preemption:
    def __init__(self):
        self.requested = False
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, signum, frame):
        self.requested = True


def train(model, optimizer, stream, tokens_per_step, target_tokens):
    preemption = Preemption()
    seen = 0
    while seen < target_tokens:
        if preemption.requested:
            return seen
        loss = model(next(stream))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        dist.all_reduce(norm, op=dist.ReduceOp.MAX)
        optimizer.step()
        optimizer.zero_grad()
        seen += tokens_per_step
    return seen
