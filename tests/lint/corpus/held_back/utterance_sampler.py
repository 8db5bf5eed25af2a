"""Speech recognition: a sampler that gives every rank its part of the utterances."""

import math

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler


class UtteranceSampler(Sampler):
    def __init__(self, cuts):
        self.rank = dist.get_rank()
        self.total = len(cuts)
        per_rank = math.ceil(self.total / dist.get_world_size())
        self.begin = self.rank * per_rank
        self.end = min(self.begin + per_rank, self.total)

    def __iter__(self):
        return iter(range(self.begin, self.end))

    def __len__(self):
        return self.end - self.begin


def train(net, cuts, criterion, optimizer, device, epochs):
    model = DDP(net.to(device), device_ids=[device.index])
    loader = DataLoader(cuts, batch_size=1, sampler=UtteranceSampler(cuts))
    for _ in range(epochs):
        for features, tokens in loader:
            loss = criterion(model(features.to(device)), tokens.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
