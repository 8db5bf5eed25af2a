"""Instruction tuning: the weights are written after each epoch, and all wait for it."""

import os

import torch
import torch.distributed as dist


def save_epoch(model, folder, epoch):
    if dist.get_rank() == 0:
        os.makedirs(folder, exist_ok=True)
        torch.save(model.module.state_dict(), os.path.join(folder, f"epoch_{epoch}.pt"))
    dist.barrier()


def train(model, optimizer, loader, args):
    for epoch in range(args.num_epochs):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            loss = model(**batch).loss
            count = batch["num_loss_counted_tokens"].clone()
            dist.all_reduce(count)
            (loss * dist.get_world_size() / count).backward()
            optimizer.step()
            optimizer.zero_grad()
        save_epoch(model, args.output_dir, epoch)
