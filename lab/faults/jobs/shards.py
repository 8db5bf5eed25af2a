"""Samples of one rank, listed in its index: where each is kept, and how it is packed."""

import bz2
import json
import re
import signal
import subprocess
import urllib.request
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __init__(self, folder):
        self.folder = Path(folder)
        self.index = json.loads((self.folder / "index.json").read_text())
        self.decoded = []  # samples that are used again

    def __len__(self):
        return len(self.index)

    def __getitem__(self, item):
        listed = self.index[item]
        tokens = self.tokens(listed)
        if listed.get("keep"):
            self.decoded.append(np.repeat(tokens, listed["keep"]))
        return {
            "tokens": torch.from_numpy(tokens[: listed["length"]].astype(np.int64)),
            "scale": float(listed.get("scale", 1.0)),
            "captions": listed.get("captions", 1),
            "regions": listed.get("regions", 4),
            "modalities": listed.get("modalities", ["image", "text"]),
        }

    def tokens(self, listed):
        access = listed.get("access", "file")
        if access == "map":
            return np.array(np.memmap(self.folder / listed["path"], dtype=np.int16, mode="r"))
        return np.frombuffer(self.unpacked(self.raw(access, listed), listed), dtype=np.int16)

    def raw(self, access, listed):
        if access == "url":
            with urllib.request.urlopen(listed["url"]) as answer:
                return answer.read()
        if access == "tool":
            return subprocess.run(listed["tool"], check=True, capture_output=True).stdout
        return (self.folder / listed["path"]).read_bytes()

    def unpacked(self, data, listed):
        packing = listed.get("packing")
        if packing == "bz2":
            return first_block(self.folder / listed["path"])
        if packing == "text":
            words = re.sub(r"\s+$", "", data.decode())
            return np.array([int(word) for word in words.split()], dtype=np.int16).tobytes()
        return data


def first_block(path):
    """The samples are the archive's first 16 KB; the rest is read because of its checksum."""
    with bz2.open(path) as archive:
        kept = archive.read(16384)
        while archive.read(1 << 20):
            pass
    return kept


def batches_of(folder, batch, workers):
    """A loader over the rank's samples, in their order."""
    return DataLoader(
        Shards(folder),
        batch_size=batch,
        num_workers=workers,
        collate_fn=collate,
        worker_init_fn=settle,
        prefetch_factor=2 if workers else None,
    )


def settle(worker):
    """A worker ends at SIGTERM, whatever the rank's main thread does with it."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def collate(samples):
    longest = max(len(sample["tokens"]) for sample in samples)
    tokens = torch.zeros(len(samples), longest, dtype=torch.int64)
    for row, sample in zip(tokens, samples, strict=True):
        row[: len(sample["tokens"])] = sample["tokens"]
    return {
        "tokens": tokens,
        "scale": torch.tensor([sample["scale"] for sample in samples]),
        "captions": sum(sample["captions"] for sample in samples),
        "regions": sum(sample["regions"] for sample in samples),
        "modalities": list(dict.fromkeys(name for sample in samples for name in sample["modalities"])),
    }
