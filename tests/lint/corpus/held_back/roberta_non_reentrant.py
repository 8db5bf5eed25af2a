"""Masked language modelling with DDP and recomputed activations."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModelForMaskedLM


def build(name, gpu):
    model = AutoModelForMaskedLM.from_pretrained(name)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = DDP(model.to(gpu), device_ids=[gpu])
    return model, torch.optim.AdamW(model.parameters(), lr=5e-5)


def step(model, optimizer, batch):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
