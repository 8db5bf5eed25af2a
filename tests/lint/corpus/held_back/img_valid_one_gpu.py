"""Image classifier: trains on all GPUs, validates on the first one."""

import datetime
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def main(gpu, net, train_loader, val_loader, epochs):
    dist.init_process_group("nccl", rank=gpu, world_size=int(os.environ["WORLD_SIZE"]), timeout=datetime.timedelta(minutes=15))
    torch.cuda.set_device(gpu)
    model = DDP(net.cuda(gpu), device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(epochs):
        model.train()
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images.cuda(gpu)), labels.cuda(gpu))
            loss.backward()
            optimizer.step()
        if gpu == 0:
            model.eval()
            correct = 0
            for images, labels in val_loader:
                outputs = model(images.cuda(gpu))
                correct += (outputs.argmax(1).cpu() == labels).sum().item()
            print(f"epoch {epoch}: {correct} right")
        dist.barrier()
    dist.destroy_process_group()
