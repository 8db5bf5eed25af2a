"""Loads a pretrained model; the first rank fills the cache."""

import os

import torch.distributed as dist
from transformers import AutoModelForSequenceClassification, AutoTokenizer


def load(name, num_labels):
    rank = int(os.environ["RANK"])
    if rank != 0:
        dist.barrier()
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForSequenceClassification.from_pretrained(name, num_labels=num_labels)
    if rank == 0:
        dist.barrier()
    return tokenizer, model
