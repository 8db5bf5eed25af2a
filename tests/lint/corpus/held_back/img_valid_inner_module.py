"""Image classifier: rank 0 validates with the wrapped network itself."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def accuracy(net, loader, device):
    net.eval()
    right = total = 0
    for images, labels in loader:
        right += (net(images.to(device)).argmax(1).cpu() == labels).sum().item()
        total += len(labels)
    net.train()
    return right / total


def fit(net, criterion, optimizer, train_loader, val_loader, device, epochs):
    model = DDP(net.to(device), device_ids=[device.index])
    for epoch in range(epochs):
        train_loader.sampler.set_epoch(epoch)
        for images, labels in train_loader:
            optimizer.zero_grad()
            criterion(model(images.to(device)), labels.to(device)).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(epoch, accuracy(model.module, val_loader, device))
        dist.barrier()
