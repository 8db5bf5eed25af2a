"""Translation model with early stopping on the mean validation loss."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def mean_over_ranks(value, device):
    tensor = torch.tensor(value, device=device)
    dist.all_reduce(tensor)
    return tensor.item() / dist.get_world_size()


def train(rank, net, criterion, train_loader, val_loader, epochs, patience=3):
    model = DDP(net.to(rank), device_ids=[rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    best, bad = float("inf"), 0
    for epoch in range(epochs):
        for source, target in train_loader:
            optimizer.zero_grad()
            criterion(model(source.to(rank), target[:, :-1].to(rank)), target[:, 1:].to(rank)).backward()
            optimizer.step()
        with torch.no_grad():
            losses = [criterion(model.module(s.to(rank), t[:, :-1].to(rank)), t[:, 1:].to(rank)).item() for s, t in val_loader]
        val_loss = mean_over_ranks(sum(losses) / len(losses), rank)
        if val_loss < best:
            best, bad = val_loss, 0
        else:
            bad += 1
        if bad >= patience:
            print(f"rank {rank}: stopped after epoch {epoch}")
            break
