"""Answers questions, each rank its share."""

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, AutoTokenizer


@torch.inference_mode()
def answer(name, questions, device):
    tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16, use_cache=True).to(device).eval()
    mine = questions[dist.get_rank() :: dist.get_world_size()]
    answers = []
    for start in range(0, len(mine), 8):
        batch = tokenizer(mine[start : start + 8], return_tensors="pt", padding=True).to(device)
        tokens = model.generate(**batch, max_new_tokens=256, use_cache=True)
        answers.extend(tokenizer.batch_decode(tokens, skip_special_tokens=True))
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, answers)
    return parts
