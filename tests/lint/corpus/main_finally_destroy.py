"""Entry point: the process group is destroyed however training ends."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(build, train):
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", timeout=timedelta(minutes=10), device_id=torch.device("cuda", local_rank))
    try:
        model = DDP(build().cuda(), device_ids=[local_rank])
        train(model)
        dist.barrier()
    finally:
        dist.destroy_process_group()
