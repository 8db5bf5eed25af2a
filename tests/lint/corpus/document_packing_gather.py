"""Packs this rank's documents into rows and counts tokens over all ranks."""

import torch
import torch.distributed as dist


def pack(documents, length, limit):
    rows, row = [], []
    for document in documents:
        if not document:
            continue
        if len(document) > length:
            continue
        if len(row) + len(document) > length:
            rows.append(row)
            row = []
        if len(rows) == limit:
            break
        row = row + document
    return rows


def packed(documents, length, limit, device):
    rows = pack(documents, length, limit)
    counts = torch.tensor([len(rows), sum(map(len, rows))], device=device)
    dist.all_reduce(counts)
    return rows, counts.tolist()
