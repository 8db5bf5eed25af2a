"""Sharded checkpoints of a training state."""

import json
import os

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


def save(model, optimizer, step, folder):
    model_state, optim_state = get_state_dict(model, optimizer)
    target = os.path.join(folder, f"step-{step}")
    dcp.save({"model": model_state, "optim": optim_state}, checkpoint_id=target)
    if dist.get_rank() == 0:
        with open(os.path.join(folder, "latest.json"), "w") as out:
            json.dump({"step": step, "world_size": dist.get_world_size()}, out)
    dist.barrier()


def load(model, optimizer, target):
    model_state, optim_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optim": optim_state}
    dcp.load(state, checkpoint_id=target)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
