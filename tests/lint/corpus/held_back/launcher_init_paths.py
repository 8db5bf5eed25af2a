"""Starts torch.distributed under torchrun or srun."""

import os
from datetime import timedelta

import torch
import torch.distributed


class Launched:
    def __init__(self):
        self.backend = "nccl" if torch.cuda.is_available() else "gloo"
        if "RANK" in os.environ and self.backend == "nccl":
            torch.distributed.init_process_group(backend="nccl", init_method="env://", timeout=timedelta(minutes=20))
        elif "RANK" in os.environ:
            torch.distributed.init_process_group(backend="gloo", init_method="env://")
        elif "SLURM_PROCID" in os.environ:
            self.init_from_slurm()
        self.rank = torch.distributed.get_rank()

    def init_from_slurm(self):
        port = 10_000 + int(os.environ["SLURM_JOB_ID"]) % 20_000
        torch.distributed.init_process_group(
            self.backend,
            init_method=f"tcp://{os.environ['MASTER_ADDR']}:{port}",
            rank=int(os.environ["SLURM_PROCID"]),
            world_size=int(os.environ["SLURM_NTASKS"]),
        )
