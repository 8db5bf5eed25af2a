"""Files of different lengths per rank, under DDP's Join."""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __init__(self, files, encode):
        self.files, self.encode = files, encode

    def __iter__(self):
        for path in self.files[dist.get_rank() :: dist.get_world_size()]:
            with open(path) as lines:
                yield from map(self.encode, lines)


def train(net, files, encode, criterion, device):
    model = DDP(net.to(device), device_ids=[device.index])
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
    loader = DataLoader(Lines(files, encode), batch_size=64)
    with Join([model, optimizer]):
        for inputs, labels in loader:
            optimizer.zero_grad()
            criterion(model(inputs.to(device)), labels.to(device)).backward()
            optimizer.step()
