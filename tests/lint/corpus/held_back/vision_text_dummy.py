"""Vision-language model: the vision tower always runs."""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class VisionText(nn.Module):
    def __init__(self, vision, language, width, image_shape):
        super().__init__()
        self.vision = fully_shard(vision)
        self.language = fully_shard(language)
        self.project = nn.Linear(width, width)
        self.image_shape = image_shape

    def forward(self, tokens, pixel_values=None, image_positions=None):
        embedded = self.language.embed(tokens)
        has_images = pixel_values is not None
        if not has_images:
            pixel_values = torch.zeros(1, *self.image_shape, device=tokens.device, dtype=embedded.dtype)
        seen = self.project(self.vision(pixel_values))
        if has_images:
            embedded = embedded.index_put((image_positions,), seen.flatten(0, 1))
        else:
            embedded = embedded + seen.sum() * 0.0
        return self.language(inputs_embeds=embedded)
