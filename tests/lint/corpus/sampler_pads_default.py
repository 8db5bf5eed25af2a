"""Image classification with DistributedSampler."""

import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train(net, dataset, criterion, device, epochs):
    sampler = DistributedSampler(dataset, shuffle=True, seed=11)
    loader = DataLoader(dataset, batch_size=48, sampler=sampler, num_workers=6, pin_memory=True)
    model = DDP(net.to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            criterion(model(images.to(device, non_blocking=True)), labels.to(device)).backward()
            optimizer.step()
