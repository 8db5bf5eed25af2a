"""Averages the loss over data-parallel ranks, in the stage that has it."""

import torch
from megatron.core import parallel_state as mpu


def average_losses(losses):
    averaged = torch.cat([loss.detach().view(1) for loss in losses])
    torch.distributed.all_reduce(averaged, group=mpu.get_data_parallel_group())
    return averaged / torch.distributed.get_world_size(group=mpu.get_data_parallel_group())


def log_step(losses, iteration, timers):
    text = f"iteration {iteration}"
    if mpu.is_pipeline_last_stage():
        mean = average_losses(losses)
        text += " | " + " ".join(f"{value:.4f}" for value in mean.tolist())
        if mpu.get_data_parallel_rank() == 0 and mpu.get_tensor_model_parallel_rank() == 0:
            print(text, flush=True)
    timers("step").stop()
