"""Question answering: cached features, master-only evaluation."""

import os

import torch
from torch.utils.data import TensorDataset


def load_features(args, tokenizer, evaluate=False):
    if args.local_rank not in (-1, 0) and not evaluate:
        torch.distributed.barrier()
    cached = os.path.join(args.data_dir, f"cached_{'dev' if evaluate else 'train'}")
    if os.path.exists(cached) and not args.overwrite_cache:
        features = torch.load(cached)
    else:
        with open(os.path.join(args.data_dir, "squad.jsonl")) as lines:
            features = [tokenizer(line) for line in lines]
        if args.local_rank in (-1, 0):
            torch.save(features, cached)
    if args.local_rank == 0 and not evaluate:
        torch.distributed.barrier()
    return TensorDataset(torch.tensor(features))


def run(args, model, tokenizer, fit, score):
    fit(args, load_features(args, tokenizer), model)
    if args.local_rank in (-1, 0):
        print(score(model, load_features(args, tokenizer, evaluate=True)))
