"""Embeds a corpus: each rank has its own files, of any length."""

import os

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader


@torch.inference_mode()
def embed(model, rows, out, device):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(rows[rank::world_size], batch_size=256)
    parts = []
    for batch in loader:
        parts.append(model(batch.to(device)).cpu().numpy())
    np.save(os.path.join(out, f"part-{rank}.npy"), np.concatenate(parts))
    dist.barrier()
    if rank == 0:
        print(f"{world_size} parts in {out}")
