"""Vision-language model: both towers are sharded on their own."""

from torch import nn
from torch.distributed.fsdp import fully_shard


class VisionText(nn.Module):
    def __init__(self, vision, language, width):
        super().__init__()
        self.vision = fully_shard(vision)
        self.language = fully_shard(language)
        self.project = nn.Linear(width, width)

    def forward(self, tokens, pixel_values=None, image_positions=None):
        embedded = self.language.embed(tokens)
        if pixel_values is not None:
            seen = self.project(self.vision(pixel_values))
            embedded = embedded.index_put((image_positions,), seen.flatten(0, 1))
        return self.language(inputs_embeds=embedded)
