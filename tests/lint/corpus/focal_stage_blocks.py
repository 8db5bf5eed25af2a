"""A stage of a vision backbone with optional activation checkpointing."""

from torch import nn
from torch.utils import checkpoint


class Stage(nn.Module):
    def __init__(self, blocks, downsample=None, use_checkpoint=False):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.downsample = downsample
        self.use_checkpoint = use_checkpoint

    def forward(self, x, height, width):
        for block in self.blocks:
            block.height, block.width = height, width
            if self.use_checkpoint:
                x = checkpoint.checkpoint(block, x)
            else:
                x = block(x)
        if self.downsample is not None:
            return x, self.downsample(x)
        return x, x
