"""Mean loss of all ranks in TensorBoard."""

import torch
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter


class Board:
    def __init__(self, folder):
        self.rank = dist.get_rank()
        self.writer = SummaryWriter(folder) if self.rank == 0 else None

    def loss(self, loss, step):
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if self.rank == 0:
            self.writer.add_scalar("train/loss", mean.item(), step)
            if step % 100 == 0:
                print(f"{step}: {mean.item():.4f}")
                self.writer.flush()

    def memory(self, step):
        if self.rank == 0:
            self.writer.add_scalar("memory/allocated", torch.cuda.max_memory_allocated(), step)
