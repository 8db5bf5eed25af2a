#!/usr/bin/env python3
"""How long an answer takes, beside plain tools on the same files in the same run.

    python bench/speed.py [--megabytes 1 20] [--runs 5]

Builds logs of the wanted sizes from a shipped case (its own lines, repeated with later stamps above the hang), then
times, each in a process of its own: `whichrank LOG`, a Python loop that decodes every line and tries one pattern on
it, and `grep -c`. Prints medians and ratios as a markdown table; nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
PATTERN = "Watchdog caught|Traceback|Killed process"
# As it is installed: modules compiled once.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
LOOP = f"""
import re, sys
pattern = re.compile({PATTERN!r})
print(sum(bool(pattern.search(line)) for line in open(sys.argv[1], errors="replace")))
"""


def build(size: int, out: Path) -> Path:
    """Steps of eight ranks for as long as it takes, then seven timeouts: rank 3 never arrives."""
    stamp = time.gmtime(1_780_000_000)
    lines: list[str] = []
    total = step = 0
    while total < size:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.mktime(stamp) + 2 * step))
        for rank in range(8):
            line = f"[rank{rank}]: {at},{rank:03d} INFO train.py:{200 + rank} step {step} loss {2 + 1 / (step + 1):.4f} lr 3.0e-04 grad_norm 0.{rank}{step % 97:02d} {1000 + step % 13} tok/s"
            lines.append(line)
            total += len(line) + 1
        step += 1
    for rank in (0, 1, 2, 4, 5, 6, 7):
        lines.append(
            f"[rank{rank}]:[E528 20:26:40.{rank}00000000 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={step}, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
        )
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return out


def seconds(command: Sequence[str], runs: int) -> float:
    """The median wall time of a command, output thrown away."""
    times = []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env=ENVIRONMENT)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])  # the first one fills the caches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, nargs="+", default=[0.01, 1, 20])
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    python = sys.executable
    tool = [python, "-m", "whichrank"]
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} CPUs, median of {args.runs} runs\n")
    bare = seconds([python, "-c", "pass"], args.runs)
    quick = seconds([*tool, "--help"], args.runs)
    print("| command | seconds | a bare `python -c pass` | ratio |\n| :-- | --: | --: | --: |")
    print(f"| `whichrank --help` | {quick:.3f} | {bare:.3f} | {quick / bare:.1f} |\n")
    print("| log | `whichrank LOG` | one pattern in a Python loop | ratio | `grep -cE` | MB/s |")
    print("| --: | --: | --: | --: | --: | --: |")
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in args.megabytes:
            log = build(int(megabytes * 1e6), Path(folder) / f"{megabytes:g}.log")
            ours = seconds([*tool, str(log)], args.runs)
            loop = seconds([python, "-c", LOOP, str(log)], args.runs)
            grep = seconds(["grep", "-cE", PATTERN, str(log)], args.runs)
            print(
                f"| {megabytes:g} MB | {ours:.2f} s | {loop:.3f} s | {ours / loop:.1f} | {grep:.3f} s | {megabytes / ours:.1f} |"
            )


if __name__ == "__main__":
    sys.exit(main())
