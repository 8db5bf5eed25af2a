"""Rank 0 reads prompts, all ranks decode them with tensor parallelism."""

import sys

import torch.distributed as dist


def next_prompts(rank, batch_size):
    prompts = [None] * batch_size
    if rank == 0:
        for i in range(batch_size):
            prompts[i] = sys.stdin.readline().strip()
        dist.broadcast_object_list(prompts, src=0)
    return prompts


def serve(engine, batch_size=8):
    rank = dist.get_rank()
    while True:
        prompts = next_prompts(rank, batch_size)
        if prompts[0] == "quit":
            break
        texts = engine.generate(prompts)
        if rank == 0:
            print("\n".join(texts), flush=True)
