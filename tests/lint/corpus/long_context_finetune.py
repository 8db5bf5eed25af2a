"""Fine-tuning for long contexts: rank 0 tokenises first, the others take it from the cache."""

import os
from functools import partial

import torch
from datasets import load_dataset


def tokenize_fn(tokenizer, rows):
    return tokenizer(rows["text"], truncation=True, max_length=tokenizer.model_max_length)


def prepared(name, tokenizer, cache_dir):
    rank = int(os.environ.get("RANK", -1))
    if rank > 0:
        torch.distributed.barrier()
    dataset = load_dataset(name, cache_dir=cache_dir)
    dataset = dataset.map(partial(tokenize_fn, tokenizer), batched=True, num_proc=16, remove_columns=["text"])
    if rank == 0:
        torch.distributed.barrier()
    return dataset


def setup():
    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
