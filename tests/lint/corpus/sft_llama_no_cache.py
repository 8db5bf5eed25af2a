"""Full fine-tuning under FSDP with recomputed activations and no cache."""

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import AutoModelForCausalLM


def load(name, device_id):
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16, use_cache=False)
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return FSDP(model, device_id=device_id, use_orig_params=True)


def train(model, optimizer, loader):
    for batch in loader:
        model(input_ids=batch["input_ids"], labels=batch["labels"]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
