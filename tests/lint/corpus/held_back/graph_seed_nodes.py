"""Neighbour sampling on several GPUs: each has its share of the seed nodes."""

import math

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def run(proc_id, n_gpus, train_nid, sample_blocks, net, loss_fn, args):
    train_nid = torch.split(train_nid, math.ceil(len(train_nid) / n_gpus))[proc_id]
    loader = DataLoader(
        train_nid,
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=False,
        num_workers=args.num_workers,
        collate_fn=sample_blocks,
    )
    model = DistributedDataParallel(net.to(proc_id), device_ids=[proc_id])
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for _ in range(args.num_epochs):
        for inputs, blocks, labels in loader:
            loss = loss_fn(model(blocks, inputs.to(proc_id)), labels.to(proc_id))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
