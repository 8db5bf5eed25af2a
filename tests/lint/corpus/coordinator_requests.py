"""Rank 0 hands work to the others and reads nothing back."""

import torch
import torch.distributed as dist


def coordinate(tasks, device):
    rank = dist.get_rank()
    if rank == 0:
        for i, task in enumerate(tasks):
            peer = 1 + i % (dist.get_world_size() - 1)
            dist.send(task.to(device), dst=peer)
        done = torch.zeros(1, device=device)
        for peer in range(1, dist.get_world_size()):
            dist.recv(done, src=peer)
        return
    task = torch.empty(4, device=device)
    for _ in range(len(tasks[rank - 1 :: dist.get_world_size() - 1])):
        dist.recv(task, src=0)
        print(rank, task.sum().item())
