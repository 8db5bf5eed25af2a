"""A deep trunk whose activations are recomputed in segments."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint_sequential


class Trunk(nn.Module):
    def __init__(self, depth, width, segments):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)])
        self.head = nn.Linear(width, 1)
        self.segments = segments

    def forward(self, x):
        hidden = checkpoint_sequential(self.layers, self.segments, x)
        return self.head(hidden)


def build(local_rank):
    model = Trunk(depth=48, width=1024, segments=8).to(local_rank)
    ddp = DistributedDataParallel(model, device_ids=[local_rank])
    return ddp, torch.optim.AdamW(ddp.parameters(), lr=1e-4)
