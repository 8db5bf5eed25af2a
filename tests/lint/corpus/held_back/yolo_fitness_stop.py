"""Object detector: rank 0 validates and decides when to stop."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

RANK = 0


class Stopper:
    def __init__(self, patience=30):
        self.best_fitness, self.best_epoch, self.patience = 0.0, 0, patience

    def __call__(self, epoch, fitness):
        if fitness >= self.best_fitness:
            self.best_epoch, self.best_fitness = epoch, fitness
        return epoch - self.best_epoch >= self.patience


def train(net, loader, optimizer, compute_loss, validate, epochs, rank, device):
    model = DDP(net, device_ids=[device.index])
    stopper, stop = Stopper(), False
    for epoch in range(epochs):
        for images, targets in loader:
            loss, _ = compute_loss(model(images.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if rank in (-1, RANK):
            stop = stopper(epoch, validate(model.module))
        if stop:
            break
    torch.cuda.empty_cache()
