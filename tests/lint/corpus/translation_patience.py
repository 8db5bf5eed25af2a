"""Translation model with early stopping."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class EarlyStopping:
    def __init__(self, patience):
        self.patience = patience
        self.best = float("inf")
        self.bad = 0
        self.early_stop = False

    def __call__(self, loss):
        if loss < self.best:
            self.best, self.bad = loss, 0
        else:
            self.bad += 1
            self.early_stop = self.bad >= self.patience


def train(rank, net, criterion, train_loader, val_loader, epochs):
    model = DDP(net.to(rank), device_ids=[rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    early_stopping = EarlyStopping(patience=3)
    for epoch in range(epochs):
        model.train()
        for source, target in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(source.to(rank), target[:, :-1].to(rank)), target[:, 1:].to(rank))
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses = [criterion(model(s.to(rank), t[:, :-1].to(rank)), t[:, 1:].to(rank)).item() for s, t in val_loader]
        early_stopping(sum(losses) / len(losses))
        if early_stopping.early_stop:
            print(f"rank {rank}: stopped after epoch {epoch}")
            break
