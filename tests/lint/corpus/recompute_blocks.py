"""Transformer blocks with activation checkpointing."""

from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

recompute = partial(checkpoint, use_reentrant=False)


class Decoder(nn.Module):
    def __init__(self, blocks, head, segments=0):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.head = head
        self.segments = segments

    def forward(self, x, mask):
        if self.segments:
            return self.head(checkpoint_sequential(self.blocks, self.segments, x, use_reentrant=False))
        for index, block in enumerate(self.blocks):
            if not self.training:
                x = block(x, mask)
            elif index % 2:
                x = recompute(block, x, mask)
            else:
                x = checkpoint(block, x, mask, use_reentrant=False)
        return self.head(x)
