"""Stops after a fixed number of optimiser steps, in whichever epoch that is."""

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train(net, dataset, criterion, optimizer, device, max_steps):
    model = DistributedDataParallel(net.to(device), device_ids=[device.index])
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler, drop_last=True)
    step = epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            if step >= max_steps:
                return model.module
            loss = criterion(model(inputs.to(device)), labels.to(device))
            loss.backward()
            if (step + 1) % 4 != 0:
                step += 1
                continue
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
        epoch += 1
