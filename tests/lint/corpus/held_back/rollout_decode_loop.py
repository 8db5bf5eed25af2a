"""Greedy rollout with a ZeRO-3 student, then a scoring pass."""

import deepspeed
import torch


def engine_of(model, config):
    assert config["zero_optimization"]["stage"] == 3
    engine, *_ = deepspeed.initialize(model=model, config=config)
    return engine


@torch.no_grad()
def rollout(engine, prompts, eos, limit):
    tokens = prompts
    finished = torch.zeros(len(prompts), dtype=torch.bool, device=prompts.device)
    for _ in range(limit):
        logits = engine(tokens).logits[:, -1]
        following = logits.argmax(-1)
        finished |= following == eos
        tokens = torch.cat([tokens, following[:, None]], dim=1)
        if finished.all():
            break
    return tokens


def step(engine, prompts, eos, loss_of):
    loss = loss_of(engine, rollout(engine, prompts, eos, limit=512))
    engine.backward(loss)
    engine.step()
