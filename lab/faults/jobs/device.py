"""Stands for the accelerator: the time that its kernels take, and its memory."""

import random
import time

import torch

CAPACITY = 79.10  # GiB


class Device:
    """jitter: sigma of the log-normal factor on each step's time."""

    def __init__(self, rank, jitter):
        self.rank, self.jitter = rank, jitter
        self.rng = random.Random(rank)

    def synchronize(self, seconds):
        time.sleep(seconds * self.rng.lognormvariate(0.0, self.jitter))

    def reserve(self, gib):
        """Memory for activations; there is as much as a card has."""
        if gib > CAPACITY:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {gib:.2f} GiB. GPU {self.rank} has a total capacity of "
                f"{CAPACITY:.2f} GiB of which {CAPACITY - 61.3:.2f} GiB is free. Including non-PyTorch memory, this "
                f"process has 61.29 GiB memory in use. Of the allocated memory 58.02 GiB is allocated by PyTorch, and "
                f"2.11 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
                f"setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
                f"Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
            )
