"""Object detector: rank 0 validates, all stop when it says so."""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer, compute_loss, validate, stopper, epochs, rank, device):
    model = DDP(net, device_ids=[device.index])
    for epoch in range(epochs):
        for images, targets in loader:
            loss, _ = compute_loss(model(images.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        stop = False
        if rank == 0:
            stop = stopper(epoch, validate(model.module))
        decision = [stop if rank == 0 else None]
        dist.broadcast_object_list(decision, 0)
        if rank != 0:
            stop = decision[0]
        if stop:
            break
    dist.barrier()
