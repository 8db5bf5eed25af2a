"""Streams click logs; each rank reads the files that fall to it."""

import glob
import json

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class ClickLogs(IterableDataset):
    def __init__(self, pattern):
        self.files = sorted(glob.glob(pattern))

    def __iter__(self):
        for path in self.files[dist.get_rank() :: dist.get_world_size()]:
            with open(path) as lines:
                for line in lines:
                    row = json.loads(line)
                    yield torch.tensor(row["features"]), torch.tensor(row["clicked"])


def train(net, pattern, optimizer, device):
    model = DDP(net.to(device))
    loader = DataLoader(ClickLogs(pattern), batch_size=512)
    for features, clicked in loader:
        optimizer.zero_grad()
        logits = model(features.to(device)).squeeze(1)
        torch.nn.functional.binary_cross_entropy_with_logits(logits, clicked.float().to(device)).backward()
        optimizer.step()
