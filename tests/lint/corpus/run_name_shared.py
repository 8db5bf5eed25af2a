"""One run name for all ranks."""

import datetime
import os
import random

import torch.distributed as dist


def run_name(prefix):
    if dist.get_rank() == 0:
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        holder = [f"{prefix}-{stamp}-{random.randrange(10_000):04d}"]
    else:
        holder = [None]
    dist.broadcast_object_list(holder, src=0)
    return holder[0]


def run_folder(root, prefix):
    folder = os.path.join(root, run_name(prefix))
    if dist.get_rank() == 0:
        os.makedirs(folder)
    dist.barrier()
    return folder
