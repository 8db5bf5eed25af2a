"""Streams shards for ever and counts steps instead of epochs."""

import itertools
import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Endless(IterableDataset):
    def __init__(self, shards, read, seed):
        self.shards, self.read, self.seed = shards, read, seed

    def __iter__(self):
        mine = self.shards[dist.get_rank() :: dist.get_world_size()]
        order = random.Random(self.seed)
        while True:
            order.shuffle(mine)
            for shard in mine:
                yield from self.read(shard)


def train(net, shards, read, optimizer, device, steps):
    model = DistributedDataParallel(net.to(device))
    loader = DataLoader(Endless(shards, read, seed=3), batch_size=16, num_workers=0)
    for batch in itertools.islice(loader, steps):
        loss = model(batch.to(device)).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
