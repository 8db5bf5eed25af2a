"""Two towers, images and texts, whose gradients and scores are reduced in groups of their own."""

from datetime import timedelta

import progress
import saver
import torch
import torch.distributed as dist
from device import Device
from session import begin, finish
from shards import batches_of


def main():
    given, rank, say = begin()
    device = Device(rank, given.jitter)
    limit = timedelta(seconds=given.timeout)
    groups = {name: dist.new_group(timeout=limit) for name in ("image", "text")}
    weights = {name: torch.randn(given.width, given.width) for name in groups}
    step = 0
    for epoch in range(given.epochs):
        batches = iter(batches_of(f"{given.data}/epoch{epoch}/rank{rank}", given.batch, given.workers))
        while True:
            progress.report(step)
            batch = next(batches, None)
            if batch is None:
                break
            device.synchronize(given.pace)
            for name in batch["modalities"]:
                update(weights[name], groups[name])
            if batch["captions"]:
                contrast(weights, say, step)
            step += 1
            if step % given.evaluate_every == 0:
                progress.report(step, "evaluation")
                recall(weights["image"], batch["regions"], say, step)
            if step % given.save_every == 0:
                saver.save(given.saver, given.save, weights, step, rank, say)
        dist.all_reduce(torch.tensor([float(step)]))
    finish(given, say)


def update(weight, group):
    gradient = weight.tanh()
    dist.all_reduce(gradient, group=group)
    weight -= 1e-4 * gradient


def contrast(weights, say, step):
    logits = (weights["image"] @ weights["text"]).mean(0)
    dist.all_reduce(logits)
    say(f"step {step} contrast {logits.mean():.4f}")


def recall(weight, regions, say, step):
    found = weight[: int(regions)].contiguous()
    everyone = [torch.empty_like(found) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, found)
    say(f"recall at step {step}: {torch.stack(everyone).mean():.4f}")


if __name__ == "__main__":
    main()
