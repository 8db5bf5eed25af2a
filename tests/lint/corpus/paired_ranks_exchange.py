"""Exchanges statistics between the outer and the inner pair of four ranks."""

import datetime
import os

import torch
import torch.distributed as dist


def main():
    dist.init_process_group(backend="nccl", timeout=datetime.timedelta(minutes=10))
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank % torch.cuda.device_count())
    if rank == 0 or rank == 3:
        pair = [0, 3]
    else:
        pair = [1, 2]
    group = dist.new_group(ranks=pair)
    stats = torch.full((4,), float(rank), device="cuda")
    dist.all_reduce(stats, group=group)
    print(rank, stats.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
