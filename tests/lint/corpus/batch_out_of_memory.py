"""Training with synchronised batch norm that survives batches which are too large."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train_epoch(net, criterion, optimizer, train_loader, gpu):
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net).cuda(gpu)
    model = DistributedDataParallel(net, device_ids=[gpu])
    skipped = 0
    for inputs, targets in train_loader:
        optimizer.zero_grad()
        try:
            outputs = model(inputs.cuda(gpu))
            loss = criterion(outputs, targets.cuda(gpu))
            loss.backward()
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            torch.cuda.empty_cache()
            skipped += 1
            continue
        optimizer.step()
    return skipped
