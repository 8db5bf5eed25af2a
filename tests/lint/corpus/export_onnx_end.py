"""End of training: rank 0 exports the model, then all ranks compare a checksum."""

import os

import torch
import torch.distributed as dist


def checksum(module):
    return torch.stack([p.detach().double().sum() for p in module.parameters()]).sum()


def finish(module, example, out):
    rank = int(os.environ.get("RANK", "0"))
    if rank != 0:
        return
    torch.onnx.export(module, example, os.path.join(out, "model.onnx"))
    ours = checksum(module)
    mean = ours.clone()
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    if not torch.isclose(ours, mean):
        print("weights differ over ranks")
    dist.barrier()
