"""100,000 incidents of runs on 64 of 1,000 nodes: how long the command `whichrank history why` takes, all in all.

    python bench/history_speed.py [--incidents 100000] [--postgresql URL] [--runs 3]

The bar is 5 s by the clock, of the median; the processor's seconds tell whether the machine was idle. Exits with 1 where
it is missed.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from whichrank.history.incident import Incident, Run
from whichrank.history.store import Store

BAR = 5.0
CAUSES = (
    ("network", "network"),
    ("killed", "dead_rank"),
    ("slow_data", "straggler"),
    ("gpu_fault", "gpu_fault"),
    ("undecided", "undecided"),
)


def fill(store: Store, count: int, nodes: int = 1000, each: int = 64) -> None:
    """Bad luck, and one node that fails in a third of its runs."""
    dice = np.random.default_rng(1)
    at = 1.6e9
    for first in range(0, count, 5000):
        runs, incidents = [], []
        for number in range(first, min(count, first + 5000)):
            at += float(dice.exponential(700))
            placed = dice.choice(nodes, each, replace=False)
            run = Run(
                f"{number:032}",
                f"job {number}",
                at,
                at + float(dice.exponential(40_000)) + 600,
                tuple((f"gn{node:04}", 8) for node in placed),
                8 * each,
            )
            place = int(dice.integers(each))
            if 7 in placed and dice.random() < 0.33:
                place = int(np.flatnonzero(placed == 7)[0])
            rank = 8 * place + int(dice.integers(8))
            cause, family = CAUSES[int(dice.integers(len(CAUSES)))]
            begin = int(dice.integers(50) * 1000)
            incidents.append(Incident(
                run.id, 0, run.ended, cause, family, "likely", 0.8, rank, f"gn{placed[place]:04}", site=f"train.py:{dice.integers(40)}",
                step=begin + int(dice.exponential(4000)), from_step=begin, shard=f"part_{dice.integers(2000):05}.bin",
            ))  # fmt: skip
            runs.append(run)
        store.keep(runs, incidents)


def asked_once(url: str) -> tuple[float, float, str]:
    """Seconds by the clock, seconds of the processor, the first words of the answer."""
    command = [sys.executable, "-m", "whichrank", "history", "why", "--history", url]
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    out = subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout
    clock, after = time.perf_counter() - clock, resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return clock, worked, " ".join(out.decode().split("\n\n")[1].split())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--incidents", type=int, default=100_000)
    parser.add_argument("--postgresql", metavar="URL")
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = asked.postgresql or str(Path(folder) / "history.db")
        with Store(url) as store:
            start = time.perf_counter()
            fill(store, asked.incidents)
            print(f"{asked.incidents:,} incidents kept in {time.perf_counter() - start:.0f} s")
        runs = [asked_once(url) for _ in range(asked.runs)]
    for clock, worked, _ in runs:
        print(f"answered in {clock:.1f} s ({worked:.1f} s of the processor)")
    print(runs[0][2])
    good = statistics.median(clock for clock, *_ in runs) <= BAR and all("gn0007 itself" in says for *_, says in runs)
    print("holds" if good else "MISSED")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
