"""Loop with a barrier now and then, so that profiles line up."""

import torch
import torch.distributed as dist


def train(model, optimizer, batches, cfg):
    for step, batch in enumerate(batches, start=1):
        loss = model(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 100 == 0:
            dist.barrier()
        if cfg.average_weights and step % cfg.average_every == 0:
            with torch.no_grad():
                for parameter in model.parameters():
                    dist.all_reduce(parameter, op=dist.ReduceOp.AVG)
        if step >= cfg.max_steps:
            break
