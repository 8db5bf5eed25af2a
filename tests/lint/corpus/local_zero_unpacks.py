"""Local rank 0 of each node unpacks the data to the node's own disk."""

import os
import tarfile

import torch
import torch.distributed as dist


def unpacked(archive, scratch="/local/scratch/data"):
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    if local_rank == 0 and not os.path.isdir(scratch):
        with tarfile.open(archive) as tar:
            tar.extractall(scratch)
        print(f"node {os.environ.get('GROUP_RANK')}: unpacked")
    dist.barrier(device_ids=[local_rank])
    return sorted(os.listdir(scratch))
