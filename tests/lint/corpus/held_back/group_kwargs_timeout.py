"""Builds the arguments of the process group from the configuration."""

from datetime import timedelta

import torch
import torch.distributed as dist


def start(cfg):
    options = {
        "backend": cfg.get("backend", "nccl"),
        "timeout": timedelta(seconds=cfg["timeout_s"]),
    }
    if "init_method" in cfg:
        options["init_method"] = cfg["init_method"]
    dist.init_process_group(**options)
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    return dist.get_rank(), dist.get_world_size()
