"""Two kinds of subgroups, as tensor and data parallelism have them: neighbours, and those at the same place."""

from datetime import timedelta

import shards
import torch
import torch.distributed as dist


def main() -> None:
    given, rank, data = shards.begin()
    world = dist.get_world_size()
    half = world // 2
    limit = timedelta(seconds=given.timeout)  # a new group would have the backend's own
    blocks = [dist.new_group([*range(low, low + half)], timeout=limit) for low in (0, half)]
    across = [dist.new_group([place, place + half], timeout=limit) for place in range(half)]
    block, pair = blocks[rank // half], across[rank % half]
    weight = torch.randn(48, 48)
    for step in range(len(data)):
        shards.at_step(given, step)
        record = data[step]
        if not record.rows:
            continue
        hidden = layer(torch.randn(record.rows, 48).to(getattr(torch, record.precision)), weight, record, block)
        gradient = hidden.float().mean(0).outer(hidden.float().mean(0))
        dist.all_reduce(gradient, group=pair)
        weight -= 0.001 * gradient
        if record.labelled:
            dist.all_reduce(norm := weight.norm().reshape(1))
            shards.say(f"norm {norm.item():.4f}")
        if step % given.save_every == given.save_every - 1:
            save(given, rank, weight, step)
    shards.finish(given)


def layer(x: torch.Tensor, weight: torch.Tensor, record: shards.Record, block: dist.ProcessGroup) -> torch.Tensor:
    hidden = (x.float() @ weight).to(x.dtype)
    if record.sync == "average":
        dist.all_reduce(hidden, group=block)
    else:
        dist.broadcast(hidden, dist.get_process_group_ranks(block)[0], group=block)
    return hidden


def save(given: object, rank: int, weight: torch.Tensor, step: int) -> None:
    with (given.save / f"step{step}-{rank}.pt").open("wb") as out:
        torch.save(weight, out)
    dist.barrier()


if __name__ == "__main__":
    main()
