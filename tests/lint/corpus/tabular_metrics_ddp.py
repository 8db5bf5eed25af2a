"""Tabular classifier: trained with DDP, tested on one GPU with torchmetrics."""

import torch
import torch.distributed as dist
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryF1Score


def test(module, loader, device):
    metrics = MetricCollection([BinaryAUROC(), BinaryF1Score()]).to(device)
    module.eval()
    with torch.no_grad():
        for features, labels in loader:
            metrics.update(module(features.to(device)).squeeze(1), labels.to(device))
    return {name: value.item() for name, value in metrics.compute().items()}


def fit(model, optimizer, train_loader, test_loader, device, epochs):
    for _ in range(epochs):
        model.train()
        for features, labels in train_loader:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(features.to(device)).squeeze(1), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if dist.get_rank() == 0:
        print(test(model.module, test_loader, device))
    dist.barrier()
