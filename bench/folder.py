"""A folder of ordinary logs with one incident in it, of any size: what bench/large.py measures on.

64 ranks on 8 nodes train for as long as the size takes; rank 17's node kills it for memory at 80 % of the run, the
others go on waiting until their watchdogs fire. Each rank prints steps, now and then an evaluation, a checkpoint, a
warning of a library, a line of data with words of its own, and NCCL's start. Everything is drawn from a seed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

RANKS, NODE = 64, 8
VICTIM = 17
START = 1_780_000_000
WORDS = [
    "the",
    "a",
    "of",
    "under",
    "river",
    "market",
    "small",
    "seventh",
    "paper",
    "answer",
    "light",
    "because",
    "winter",
    "over",
    "green",
    "number",
    "table",
    "house",
    "every",
    "question",
    "water",
    "long",
    "engine",
    "quiet",
    "music",
    "north",
    "between",
    "simple",
    "letter",
    "city",
    "field",
    "bread",
    "glass",
    "order",
    "window",
    "summer",
]


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds)) + f",{int(seconds * 1000) % 1000:03d}"


def _opening(rank: int) -> Iterator[str]:
    host, pid, device = f"gpu-{rank // NODE:02d}", 40_000 + rank, rank % NODE
    yield f"{_stamp(START)} INFO launch.py:41 rank {rank}/{RANKS} local_rank {device} host {host} pid {pid} torch 2.6.0"
    yield f"{host}:{pid}:{pid} [{device}] NCCL INFO Bootstrap: Using eth0:10.0.{rank // NODE}.{1 + device}<0>"
    for phase in ("Init START", "Init COMPLETE"):
        yield (
            f"{host}:{pid}:{pid + 9} [{device}] NCCL INFO ncclCommInitRank comm 0x55d0c8e0 rank {rank} nranks {RANKS} "
            f"cudaDev {device} nvmlDev {device} busId {device + 1}b000 commId 0x8a31f00d - {phase}"
        )


def _steps(rank: int, rng: random.Random) -> Iterator[tuple[int, str]]:
    step = 0
    while True:
        step += 1
        at = _stamp(START + 60 + 1.7 * step + rng.random() / 20)
        yield (
            step,
            f"{at} INFO train.py:233 step {step} loss {2 + 9 / (step + 9):.4f} lr 3.0e-04 grad_norm "
            f"{rng.uniform(0.2, 0.9):.3f} tok/s {rng.randrange(9000, 9999)} mem {rng.uniform(61, 63):.1f}GiB",
        )
        if rng.random() < 0.02:
            yield step, f"{at} DEBUG data.py:118 sample {rng.randrange(10**9)}: {' '.join(rng.choices(WORDS, k=12))}"
        if rng.random() < 0.005:
            yield step, f"{at} WARNING tokenization.py:77 sequence of {rng.randrange(4097, 9000)} cut to 4096 tokens"
        if step % 500 == 0:
            yield (
                step,
                f"{at} INFO train.py:251 evaluation: loss {rng.uniform(1.9, 2.1):.4f} in {rng.uniform(20, 30):.1f} s",
            )
        if step % 1000 == 0 and rank == 0:
            yield step, f"{at} INFO checkpoint.py:60 saved checkpoint /ckpt/step_{step} in {rng.uniform(20, 40):.1f} s"


def _watchdog(rank: int, last: int) -> str:
    at = time.strftime("%m%d %H:%M:%S", time.gmtime(START + 60 + 1.7 * last + 600))
    return (
        f"[rank{rank}]:[E{at}.{rank:09d} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={last}, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran "
        f"for 600012 milliseconds before timing out."
    )


def build(folder: Path, size: int, seed: int = 1) -> None:
    """Logs of together about `size` bytes, and the kernel log that names the cause."""
    folder.mkdir(parents=True, exist_ok=True)
    last = max(10, size // RANKS // 135)
    for rank in range(RANKS):
        rng = random.Random(f"{seed} {rank}")
        with (folder / f"rank{rank:02d}.log").open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in _opening(rank))
            stop = last - 1 if rank == VICTIM else last
            for step, line in _steps(rank, rng):
                if step > stop:
                    break
                file.write(line + "\n")
            if rank != VICTIM:
                file.write(_watchdog(rank, last) + "\n")
    died = time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime(START + 61 + 1.7 * last))
    (folder / f"gpu-{VICTIM // NODE:02d}.dmesg").write_text(
        f"[{died}] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
        f"[{died}] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=job,mems_allowed=0-1,oom_memcg=/job,"
        f"task_memcg=/job/step_0,task=python,pid={40_000 + VICTIM},uid=1000\n"
        f"[{died}] Memory cgroup out of memory: Killed process {40_000 + VICTIM} (python) total-vm:91221356kB, "
        f"anon-rss:65509440kB, file-rss:8120kB, shmem-rss:0kB, UID:1000 pgtables:99kB oom_score_adj:0\n"
    )
