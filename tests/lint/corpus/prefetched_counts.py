"""Token counts of all ranks, asked for early and used late."""

import torch
import torch.distributed as dist


def weighted_step(model, optimizer, batch, device):
    count = torch.tensor([(batch["labels"] != -100).sum()], device=device, dtype=torch.float32)
    work = dist.all_reduce(count, async_op=True)
    loss = model(**batch).loss
    scale = dist.get_world_size() / count
    (loss * scale).backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
