"""Leaves out broken samples after the data was divided over the ranks."""

import os

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset


def readable(dataset, index):
    try:
        dataset[index]
    except OSError:
        return False
    return True


def train(dataset, net, criterion, optimizer, device):
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    mine = [i for i in range(rank, len(dataset), world_size) if readable(dataset, i)]
    loader = DataLoader(Subset(dataset, mine), batch_size=32, shuffle=True, num_workers=8)
    model = DistributedDataParallel(net.to(device))
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize(device)
