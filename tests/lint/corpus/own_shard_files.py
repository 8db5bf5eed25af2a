"""Each rank writes its shard of model and optimiser."""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import LocalStateDictConfig, StateDictType


def save_shards(model, optimizer, step, folder):
    rank = dist.get_rank()
    target = os.path.join(folder, f"step-{step}")
    if rank == 0:
        os.makedirs(target, exist_ok=True)
    dist.barrier()
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT, LocalStateDictConfig(offload_to_cpu=True)):
        part = {"model": model.state_dict(), "optim": optimizer.state_dict(), "step": step}
    torch.save(part, os.path.join(target, f"rank-{rank:05d}.pt"))
    dist.barrier()
    if rank == 0:
        with open(os.path.join(folder, "latest"), "w") as out:
            out.write(os.path.basename(target))
