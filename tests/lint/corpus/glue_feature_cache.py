"""Text classification: features are made once and cached; the master evaluates."""

import os

import torch
from torch.utils.data import TensorDataset


def load_features(args, tokenizer, evaluate=False):
    if args.local_rank not in (-1, 0):
        torch.distributed.barrier()
    name = "dev" if evaluate else "train"
    cached = os.path.join(args.data_dir, f"cached_{name}_{args.max_len}")
    if os.path.exists(cached):
        features = torch.load(cached)
    else:
        with open(os.path.join(args.data_dir, f"{name}.tsv")) as lines:
            features = [tokenizer(line, max_length=args.max_len) for line in lines]
        if args.local_rank in (-1, 0):
            torch.save(features, cached)
    if args.local_rank == 0:
        torch.distributed.barrier()
    return TensorDataset(torch.tensor([f["input_ids"] for f in features]))


def evaluate(args, model, tokenizer):
    dataset = load_features(args, tokenizer, evaluate=True)
    return model.score(dataset)


def run(args, model, tokenizer, fit):
    if args.do_train:
        fit(args, load_features(args, tokenizer), model)
    if args.do_eval and args.local_rank in (-1, 0):
        results = evaluate(args, model, tokenizer)
        print(results)
