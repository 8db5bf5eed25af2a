"""Fetches MNIST on rank 0, then opens it everywhere."""

import torch.distributed as dist
from torchvision import datasets, transforms


def open_mnist(root):
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    if dist.get_rank() == 0:
        train = datasets.MNIST(root, train=True, download=True, transform=transform)
        dist.barrier()
    else:
        dist.barrier()
        train = datasets.MNIST(root, train=True, download=False, transform=transform)
    return train
