"""Says which batch failed before the process ends."""

import logging

import torch
import torch.distributed as dist

log = logging.getLogger("train")


def train(model, optimizer, batches):
    for step, batch in enumerate(batches):
        try:
            loss = model(batch)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            dist.all_reduce(norm, op=dist.ReduceOp.MAX)
        except torch.cuda.OutOfMemoryError:
            log.error("rank %d: out of memory in step %d", dist.get_rank(), step)
            raise
        except Exception:
            log.exception("rank %d: step %d failed", dist.get_rank(), step)
            raise
        optimizer.step()
        optimizer.zero_grad()
