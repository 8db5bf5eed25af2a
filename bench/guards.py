"""What a call of each guard costs, on this machine: python bench/guards.py --python PYTHON-WITH-TORCH [--ranks 2 4 8]

All ranks on one machine, gloo over loopback. Each line: median and 95th percentile over the calls, of the slowest rank,
in microseconds; beside them an all-reduce of one number over the training's own gloo group, and no guard at all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
CALLS = 300


def measure(act: Callable[[], Any], calls: int) -> list[float]:
    spent = []
    for _ in range(calls):
        begun = time.perf_counter()
        act()
        spent.append((time.perf_counter() - begun) * 1e6)
    return sorted(spent)


def rank() -> None:
    import torch
    import torch.distributed as dist

    from whichrank import guard

    alone = measure(lambda: guard.agree(False), 10_000)
    dist.init_process_group("gloo")
    first = measure(lambda: guard.agree(False), 1)  # makes the guards' group
    one = torch.ones(1)
    config = {f"setting {number}": number for number in range(100)}
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(100)))
    acts: dict[str, Callable[[], Any]] = {
        "all_reduce of the training's group": lambda: dist.all_reduce(one),
        "agree": lambda: guard.agree(False),
        "check_shards": lambda: guard.check_shards(100),
        "same_everywhere, 100 settings": lambda: guard.same_everywhere(config),
        "same_everywhere, shapes of 200 parameters": lambda: guard.same_everywhere(model),
        "rank_zero_only": guard.rank_zero_only(lambda: None),
        "rank_zero_first": lambda: guard.rank_zero_first().__enter__().__exit__(None, None, None),
        "step_timeout": lambda: guard.step_timeout(None, 60).__enter__(),
    }
    lines = {"agree, not distributed": alone, "the first guard": first}
    for name, act in acts.items():
        measure(act, 10)
        dist.barrier()
        lines[name] = measure(act, CALLS)
    for name, spent in lines.items():
        pair = torch.tensor([spent[len(spent) // 2], spent[int(len(spent) * 0.95)]])
        dist.all_reduce(pair, dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            print(f"{dist.get_world_size():>5}  {name:<44}{pair[0]:>10.1f}{pair[1]:>10.1f}", flush=True)
    dist.barrier()


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    told.add_argument("--python", default=sys.executable)
    told.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    args = told.parse_args()
    print(f"ranks  {'µs a call':<44}{'median':>10}{'95 %':>10}")
    for world in args.ranks:
        words = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}", str(HERE)]
        more = {"PYTHONPATH": str(HERE.parents[1] / "src"), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        subprocess.run([args.python, *words], env={**os.environ, **more}, check=True)


if __name__ == "__main__":
    rank() if "LOCAL_RANK" in os.environ else main()
