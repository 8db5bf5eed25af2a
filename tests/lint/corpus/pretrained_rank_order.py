"""Loads pretrained weights, the first rank first so that the others find them in the cache."""

import torch.distributed as dist
from transformers import AutoModel, AutoTokenizer


class Backbone:
    def __init__(self, name, rank):
        self.name = name
        self.rank = rank

    def load(self):
        if self.rank != 0:
            dist.barrier()
        tokenizer = AutoTokenizer.from_pretrained(self.name)
        model = AutoModel.from_pretrained(self.name)
        if self.rank == 0:
            print(f"loaded {self.name}: {sum(p.numel() for p in model.parameters())} parameters")
        return tokenizer, model
