"""Raw text into token ids, once, by rank 0; the others wait until it is there."""

import json
import re
from collections import Counter
from pathlib import Path

import torch.distributed as dist

WORD = re.compile(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]")


def prepare(folder, rank, say):
    folder = Path(folder)
    if rank == 0:
        files = sorted(folder.glob("*.txt"))
        say(f"tokenizing {len(files)} files of {folder.name}")
        counts = Counter()
        for path in files:
            counts.update(tokenize(path.read_text()))
        (folder / "vocabulary.json").write_text(json.dumps(dict(counts.most_common(30000))))
    dist.barrier()


def tokenize(text):
    return [merged(word) for word in WORD.findall(text)]


def merged(word):
    pieces = list(word)
    while len(pieces) > 2:
        pieces[-2:] = [pieces[-2] + pieces[-1]]
    return "".join(pieces)
