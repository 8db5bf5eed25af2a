"""Keeps batches with anomalous losses, whichever rank saw them."""

import torch
import torch.distributed as dist


class Anomalies:
    def __init__(self, limit):
        self.limit = limit
        self.kept = []

    def observe(self, loss, batch_ids):
        flag = (loss.detach() > self.limit).to(torch.int32)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        if flag.item():
            ids = [torch.empty_like(batch_ids) for _ in range(dist.get_world_size())]
            dist.all_gather(ids, batch_ids)
            losses = [torch.empty_like(loss) for _ in range(dist.get_world_size())]
            dist.all_gather(losses, loss.detach())
            self.kept.append((torch.stack(losses).cpu(), torch.stack(ids).cpu()))
