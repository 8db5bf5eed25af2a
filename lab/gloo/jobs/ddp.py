"""Data parallel training with a metric over all ranks, and a checkpoint by rank 0."""

import shards
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    given, rank, data = shards.begin()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 16)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(len(data)):
        shards.at_step(given, step)
        record = data[step]
        loss = model(torch.randn(record.rows or 1, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if record.labelled:
            share(record, loss.detach())
        if step % given.save_every == given.save_every - 1:
            save(given, rank, model, step)
    shards.finish(given)


def share(record: shards.Record, loss: torch.Tensor) -> None:
    """The mean loss, on all ranks."""
    hits = torch.stack([loss, torch.tensor(float(record.labelled))])
    if record.precision == "float64":
        hits = hits.double()
    if record.sync == "average":
        dist.all_reduce(hits)
    else:
        dist.broadcast(hits, 0)


def save(given: object, rank: int, model: nn.Module, step: int) -> None:
    if rank == 0:
        with (given.save / f"step{step}.pt").open("wb") as out:
            torch.save(model.state_dict(), out)
    dist.barrier()


if __name__ == "__main__":
    main()
