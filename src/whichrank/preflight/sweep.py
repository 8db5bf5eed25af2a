"""python -m whichrank.preflight.sweep JSON: all-reduces of growing size in a process group of its own. Needs torch.

One process a rank, started by its rank (collective.py) and left behind if it hangs. Each stage is said before it
begins, so that whoever stopped where is known. Of each size the middle of some rounds counts, of the slowest rank:
every rank waits for it. busbw = algbw x 2 (n - 1) / n, as nccl-tests count.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from datetime import timedelta
from importlib import import_module
from typing import Any

ROUNDS = 5


def say(**row: object) -> None:
    print(json.dumps(row), flush=True)


def main(told: dict[str, Any]) -> int:
    say(stage="importing torch")
    torch: Any = import_module("torch")
    dist: Any = import_module("torch.distributed")
    rank, world, backend = told["rank"], told["world"], told["backend"]
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", told["local_rank"] % torch.cuda.device_count())
        torch.cuda.set_device(device)
        say(gpu=torch.cuda.get_device_name(device))
    limit = timedelta(seconds=told["seconds"])
    try:
        say(stage="connecting to the store")
        store = dist.TCPStore(told["host"], told["port"], world, rank == 0, timeout=limit)
        say(stage="init_process_group")
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=limit)
        say(stage="first all_reduce")
        dist.all_reduce(torch.ones(1, device=device))
        for size in told["sizes"]:
            say(stage=f"all_reduce of {size} bytes")
            say(size=size, seconds=_timed(torch, dist, size, world, device))
        say(stage="barrier")
        dist.barrier()
        say(stage="done")
        if backend == "gloo":
            dist.destroy_process_group()
    except Exception as error:  # of any kind: what torch raises has changed over time
        say(error=str(error).splitlines()[0][:400] if str(error) else type(error).__name__)
        return 1
    return 0


def _timed(torch: Any, dist: Any, size: int, world: int, device: Any) -> float:
    """Seconds of one all_reduce, of the slowest rank. Raises RuntimeError if a sum is wrong."""
    values = torch.ones(max(1, size // 4), dtype=torch.float32, device=device)
    took = []
    for turn in range(ROUNDS + 1):
        values.fill_(1.0)
        if device.type == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        dist.all_reduce(values)
        if device.type == "cuda":
            torch.cuda.synchronize()
        if turn:
            took.append(time.perf_counter() - begin)
    if bool((values != world).any()):
        raise RuntimeError(f"wrong sum: an all_reduce of ones over {world} ranks gave {float(values.min())}")
    slowest = torch.tensor([statistics.median(took)], device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest[0])


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
