"""Collects answers of all ranks on rank 0 and writes them."""

import json

import torch.distributed as dist


def collect(answers, path):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    parts = [None] * world_size if rank == 0 else None
    dist.gather_object(answers, parts, dst=0)
    if rank == 0:
        merged = sorted((a for part in parts for a in part), key=lambda a: a["id"])
        with open(path, "w") as out:
            for answer in merged:
                out.write(json.dumps(answer) + "\n")
        print(f"{len(merged)} answers in {path}")
    dist.barrier()
