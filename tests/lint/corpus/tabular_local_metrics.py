"""Tabular classifier tested on one GPU with metrics that stay local."""

import torch
import torch.distributed as dist
from torchmetrics.classification import BinaryAUROC


def test(module, loader, device):
    auroc = BinaryAUROC(sync_on_compute=False).to(device)
    module.eval()
    with torch.no_grad():
        for features, labels in loader:
            auroc.update(module(features.to(device)).squeeze(1), labels.to(device))
    return auroc.compute().item()


def report(model, loader, device):
    if dist.get_rank() == 0:
        print("AUROC", test(model.module, loader, device))
    dist.barrier()
