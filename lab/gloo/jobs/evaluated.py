"""Data parallel training with an evaluation now and then whose scores and predictions are gathered."""

import shards
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    given, rank, data = shards.begin()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 300), nn.Tanh(), nn.Linear(300, 8)), bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(len(data)):
        shards.at_step(given, step)
        record = data[step]
        if not record.rows:
            continue
        loss = model(torch.randn(record.rows, 32)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 3 == 2:
            evaluate(model.module, record)
        if step % given.save_every == given.save_every - 1:
            save(given, rank, model, step)
    shards.finish(given)


def evaluate(model: nn.Module, record: shards.Record) -> None:
    with torch.no_grad():
        scores = model(torch.randn(record.rows, 32))
    if record.labelled:
        dist.all_reduce(total := scores.sum(0))
        shards.say(f"score {total.mean():.4f}")
    scores = scores.to(getattr(torch, record.precision))
    if record.sync == "average":
        dist.all_gather([torch.empty_like(scores) for _ in range(dist.get_world_size())], scores)
    else:
        dist.broadcast(scores, 0)


def save(given: object, rank: int, model: nn.Module, step: int) -> None:
    if rank == 0:
        with (given.save / f"step{step}.pt").open("wb") as out:
            torch.save(model.state_dict(), out)
    dist.barrier()


if __name__ == "__main__":
    main()
