"""Detection training loop with smoothed losses in the log."""

import torch
import torch.distributed as dist


def is_main_process():
    return not dist.is_initialized() or dist.get_rank() == 0


def reduce_dict(values):
    names = sorted(values)
    stacked = torch.stack([values[name] for name in names])
    dist.all_reduce(stacked)
    stacked /= dist.get_world_size()
    return dict(zip(names, stacked))


def train_one_epoch(model, optimizer, loader, device, logger, print_freq):
    model.train()
    for step, (images, targets) in enumerate(loader):
        images = [image.to(device) for image in images]
        targets = [{k: v.to(device) for k, v in t.items()} for t in targets]
        loss_dict = model(images, targets)
        losses = sum(loss_dict.values())
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
        if is_main_process() and step % print_freq == 0:
            reduced = reduce_dict({k: v.detach() for k, v in loss_dict.items()})
            logger.update(**reduced)
