"""Masked language modelling on source code with DDP."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import RobertaConfig, RobertaModel


class Masked(nn.Module):
    def __init__(self, encoder, vocabulary):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.config.hidden_size, vocabulary)

    def forward(self, tokens, mask, labels):
        hidden = self.encoder(tokens, attention_mask=mask).last_hidden_state
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), labels.flatten(), ignore_index=-100)


def build(name, gpu):
    config = RobertaConfig.from_pretrained(name)
    encoder = RobertaModel.from_pretrained(name, config=config)
    encoder.gradient_checkpointing_enable()
    model = Masked(encoder, config.vocab_size).to(gpu)
    return DDP(model, device_ids=[gpu], find_unused_parameters=True), torch.optim.AdamW(model.parameters(), lr=5e-5)
