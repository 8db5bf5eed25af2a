"""Reward model: the last token's hidden state is scored."""

from torch import nn
from transformers import AutoModel


class RewardModel(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.backbone = AutoModel.from_pretrained(name)
        self.backbone.gradient_checkpointing_enable({"use_reentrant": False})
        self.score = nn.Linear(self.backbone.config.hidden_size, 1)

    def forward(self, tokens, mask):
        outputs = self.backbone(tokens, attention_mask=mask, use_cache=True)
        last = mask.sum(dim=1) - 1
        hidden = outputs.last_hidden_state[range(len(tokens)), last]
        return self.score(hidden).squeeze(-1)

    def loss(self, chosen, rejected):
        return -nn.functional.logsigmoid(self(*chosen) - self(*rejected)).mean()
