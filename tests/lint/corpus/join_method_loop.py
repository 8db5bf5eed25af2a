"""Graph training: unequal parts per rank, in DDP's join()."""

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def run(rank, world_size, seeds, net, loss_fn, epochs):
    mine = torch.tensor_split(seeds, world_size)[rank]
    loader = DataLoader(mine, batch_size=1024, shuffle=True)
    model = DistributedDataParallel(net.to(rank), device_ids=[rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        with model.join():
            for nodes in loader:
                loss = loss_fn(model(nodes.to(rank)), nodes)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
