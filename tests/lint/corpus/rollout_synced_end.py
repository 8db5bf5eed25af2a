"""Greedy rollout with a ZeRO-3 student: all ranks decode until the last is finished."""

import deepspeed
import torch
import torch.distributed as dist


def engine_of(model, config):
    assert config["zero_optimization"]["stage"] == 3
    engine, *_ = deepspeed.initialize(model=model, config=config)
    return engine


@torch.no_grad()
def rollout(engine, prompts, eos, limit):
    tokens = prompts
    finished = torch.zeros(len(prompts), dtype=torch.bool, device=prompts.device)
    for _ in range(limit):
        working = (~finished).any().to(torch.int32)
        dist.all_reduce(working, op=dist.ReduceOp.MAX)
        if working.item() == 0:
            break
        following = engine(tokens).logits[:, -1].argmax(-1)
        following = torch.where(finished, eos, following)
        finished |= following == eos
        tokens = torch.cat([tokens, following[:, None]], dim=1)
    return tokens
