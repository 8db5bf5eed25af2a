"""Pretraining loop with one-file checkpoints."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def full_state(model):
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        return model.state_dict()


def pretrain(model, optimizer, batches, save_every, path):
    model = FSDP(model)
    is_main = dist.get_rank() == 0
    for step, batch in enumerate(batches, start=1):
        loss = model(batch).loss
        loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % save_every == 0:
            state = full_state(model)
            if is_main:
                torch.save({"model": state, "step": step}, path.format(step=step))
            del state
