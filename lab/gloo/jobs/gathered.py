"""No wrapper: features gathered, parameters broadcast from rank 0, statistics reduced twice, barriers."""

import shards
import torch
import torch.distributed as dist


def main() -> None:
    given, rank, data = shards.begin()
    weight = torch.randn(32, 16)
    for step in range(len(data)):
        shards.at_step(given, step)
        record = data[step]
        features = (torch.randn(record.rows or 1, 32) @ weight).to(getattr(torch, record.precision))
        pool(features, record)
        counts = torch.ones(4)
        if record.labelled:
            dist.all_reduce(counts)
        sizes = torch.full((4,), float(record.rows))
        dist.all_reduce(sizes)
        dist.broadcast(weight, 0)
        if step % given.save_every == given.save_every - 1:
            save(given, rank, weight, step)
    shards.finish(given)


def pool(features: torch.Tensor, record: shards.Record) -> None:
    if record.sync == "average":
        dist.all_gather([torch.empty_like(features) for _ in range(dist.get_world_size())], features)
    else:
        dist.all_reduce(features)


def save(given: object, rank: int, weight: torch.Tensor, step: int) -> None:
    with (given.save / f"step{step}-{rank}.pt").open("wb") as out:
        torch.save(weight, out)
    dist.barrier()


if __name__ == "__main__":
    main()
