"""Reports the gradient norm of a tensor- and data-parallel model."""

import torch
from megatron.core import parallel_state as mpu


def local_norm(model):
    squares = [p.main_grad.float().pow(2).sum() for p in model.parameters() if p.main_grad is not None]
    return torch.stack(squares).sum()


def report_grad_norm(model, writer, iteration):
    total = local_norm(model)
    torch.distributed.all_reduce(total, group=mpu.get_tensor_model_parallel_group())
    if mpu.get_data_parallel_rank() == 0:
        torch.distributed.all_reduce(total, op=torch.distributed.ReduceOp.MAX, group=mpu.get_data_parallel_group())
        if writer is not None:
            writer.add_scalar("grad-norm", total.sqrt().item(), iteration)
