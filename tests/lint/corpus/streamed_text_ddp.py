"""Trains on a streamed text dataset."""

import torch
import torch.distributed as dist
from datasets import load_dataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader


def batches(name, tokenizer, length, batch_size):
    stream = load_dataset(name, split="train", streaming=True)
    stream = split_dataset_by_node(stream, rank=dist.get_rank(), world_size=dist.get_world_size())
    stream = stream.map(lambda row: tokenizer(row["text"], truncation=True, max_length=length, padding="max_length"))
    return DataLoader(stream.with_format("torch"), batch_size=batch_size)


def train(net, optimizer, name, tokenizer, device):
    model = torch.nn.parallel.DistributedDataParallel(net.to(device))
    for batch in batches(name, tokenizer, length=512, batch_size=8):
        ids = batch["input_ids"].to(device)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
