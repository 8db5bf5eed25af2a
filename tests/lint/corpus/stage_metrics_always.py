"""Gathers the metrics of all pipeline stages; rank 0 writes them."""

import json

import torch.distributed as dist


class MetricStore:
    def __init__(self, path):
        self.path = path
        self.values = {}

    def flush(self, step):
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, self.values)
        merged = {}
        for part in parts:
            for name, values in part.items():
                merged.setdefault(name, []).extend(values)
        self.values = {}
        if not merged:
            return {}
        means = {name: sum(values) / len(values) for name, values in merged.items()}
        if dist.get_rank() != 0:
            return means
        with open(self.path, "a") as out:
            out.write(json.dumps({"step": step, **means}) + "\n")
        return means
