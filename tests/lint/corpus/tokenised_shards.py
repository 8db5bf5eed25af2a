"""Tokenises the corpus once per job, then every rank maps the result into memory."""

import datetime
import os

import numpy as np
from torch import distributed as td


def tokenise(raw_path, out_path, tokenizer):
    ids = []
    with open(raw_path) as lines:
        for line in lines:
            ids.extend(tokenizer.encode(line))
    np.asarray(ids, dtype=np.uint16).tofile(out_path)


def corpus(raw_path, out_path, tokenizer):
    rank = int(os.environ["RANK"])
    if rank == 0:
        if not os.path.exists(out_path):
            tokenise(raw_path, out_path, tokenizer)
        td.barrier()
    return np.memmap(out_path, dtype=np.uint16, mode="r")


def setup():
    td.init_process_group("nccl", timeout=datetime.timedelta(hours=1))
