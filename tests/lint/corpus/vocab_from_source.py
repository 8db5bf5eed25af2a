"""Broadcasts an embedding table whose size only rank 0 knows."""

import torch
import torch.distributed as dist


def shared_table(path, device):
    if dist.get_rank() == 0:
        table = torch.load(path, map_location=device, weights_only=True)
        shape = torch.tensor(table.shape, device=device)
        dist.broadcast(shape, src=0)
        dist.broadcast(table, src=0)
    else:
        shape = torch.empty(2, dtype=torch.long, device=device)
        dist.broadcast(shape, src=0)
        table = torch.empty(tuple(shape.tolist()), device=device)
        dist.broadcast(table, src=0)
    return table
