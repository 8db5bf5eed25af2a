"""Writes tests/history/runs: five folders of six runs each, with logs as such jobs leave them, and truth.json beside.

    python tests/history/make_runs.py

Sixteen ranks on four of twelve nodes, each run on other nodes or in another order. Formats as in PyTorch 2.4 to 2.7 and
Linux 5.15; what is wrong differs from run to run even where one thing is behind all of them.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).parent / "runs"
GPUS = 4


@dataclass
class Run:
    """One run: its nodes in order, when it began, how far it got."""

    name: str
    nodes: list[str]
    begin: datetime
    step: int
    first: int
    dice: random.Random
    rank: int = 0  # the culprit
    at: datetime = datetime(2026, 1, 1)
    lines: dict[int, list[tuple[datetime, str]]] = field(default_factory=dict)
    kernel: dict[str, list[tuple[datetime, str]]] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return self.nodes[self.rank // GPUS]

    @property
    def gpu(self) -> str:
        """The bus of the culprit's GPU."""
        return ("1b", "43", "89", "c4")[self.rank % GPUS]

    def pid(self, rank: int) -> int:
        return 41000 + 37 * rank + self.first % 97

    def say(self, rank: int, at: datetime, text: str) -> None:
        self.lines.setdefault(rank, []).append((at, text))

    def kern(self, host: str, at: datetime, text: str) -> None:
        self.kernel.setdefault(host, []).append((at, text))


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")


def healthy_part(run: Run, pace: float, every: int) -> None:
    """Start and progress of all ranks up to the incident; `pace` seconds a step."""
    world = GPUS * len(run.nodes)
    for rank in range(world):
        host = run.nodes[rank // GPUS]
        at = run.begin + timedelta(seconds=rank % 5)
        run.say(
            rank,
            at,
            f"[rank{rank}] {stamp(at)} INFO rank {rank} of {world} on {host}, local rank {rank % GPUS}, pid {run.pid(rank)}",
        )
        if run.first:
            run.say(
                rank,
                at + timedelta(seconds=20),
                f"[rank{rank}] {stamp(at + timedelta(seconds=20))} INFO resumed from step {run.first}",
            )
    start = run.begin + timedelta(seconds=90)
    step = run.first
    while step < run.step:
        step = min(run.step, step + every) if step + every <= run.step else run.step
        at = start + timedelta(seconds=(step - run.first) * pace)
        for rank in range(world):
            if step % every == 0 or step == run.step:
                run.say(
                    rank,
                    at,
                    f"[rank{rank}] {stamp(at)} INFO step {step} loss {2.9 - 0.00001 * step + run.dice.uniform(-0.03, 0.03):.4f} {pace:.2f} s/step",
                )
    run.at = start + timedelta(seconds=(run.step - run.first) * pace + run.dice.uniform(1, 2))


def timeouts(run: Run) -> None:
    """The others wait ten minutes and say so."""
    seq = run.step * 3 + 5
    world = GPUS * len(run.nodes)
    fired = run.at + timedelta(seconds=600)
    for rank in range(world):
        if rank == run.rank:
            continue
        at = fired + timedelta(milliseconds=run.dice.randint(0, 900))
        glog = f"E{at.month:02}{at.day:02} {at.strftime('%H:%M:%S.%f')}"
        run.say(rank, at, (
            f"[rank{rank}]:[{glog} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
            f"WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=25559081, NumelOut=25559081, Timeout(ms)=600000) ran for "
            f"{600000 + run.dice.randint(10, 98)} milliseconds before timing out."
        ))  # fmt: skip
        run.say(
            rank,
            at,
            f"[rank{rank}]:[{glog} ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {seq + 2}, last completed work: {seq - 1}",
        )
        run.say(
            rank,
            at,
            f"[rank{rank}]:[{glog} ProcessGroupNCCL.cpp:684] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.",
        )


def traceback(run: Run, *lines: str) -> None:
    """The culprit raises, and the others wait for it."""
    for text in ("Traceback (most recent call last):", *lines):
        run.say(run.rank, run.at, f"[rank{run.rank}] {text}")
    timeouts(run)


def gpu_lost(run: Run) -> None:
    at = run.at
    run.kern(
        run.host, at, f"NVRM: GPU at PCI:0000:{run.gpu}:00: GPU-5f1c2a{run.rank:02}-77aa-1be0-9d2e-{run.gpu}0e4b77a1c2"
    )
    run.kern(
        run.host,
        at,
        f"NVRM: Xid (PCI:0000:{run.gpu}:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    )
    run.say(run.rank, at, f"[rank{run.rank}] RuntimeError: CUDA error: unspecified launch failure")
    timeouts(run)


def ecc(run: Run) -> None:
    at = run.at
    run.kern(
        run.host,
        at,
        f"NVRM: Xid (PCI:0000:{run.gpu}:00): 48, pid={run.pid(run.rank)}, name=python, Double Bit ECC Error",
    )
    run.kern(
        run.host,
        at,
        f"NVRM: Xid (PCI:0000:{run.gpu}:00): 94, pid={run.pid(run.rank)}, name=python, Contained: SM (0x1). RST: No, D-RST: No",
    )
    traceback(
        run, '  File "/home/ml/gpt/train.py", line 233, in <module>', "    main()",
        '  File "/home/ml/gpt/train.py", line 201, in main', "    loss.backward()",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    )  # fmt: skip


def host_oom(run: Run) -> None:
    at = run.at
    run.kern(
        run.host,
        at,
        "python invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0",
    )
    run.kern(
        run.host,
        at,
        f"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/system.slice/slurmstepd.scope,task=python,pid={run.pid(run.rank)},uid=1004",
    )
    run.kern(
        run.host,
        at,
        f"Out of memory: Killed process {run.pid(run.rank)} (python) total-vm:181231412kB, anon-rss:120442312kB, file-rss:71232kB, shmem-rss:8123kB, UID:1004 pgtables:240112kB oom_score_adj:0",
    )
    timeouts(run)


def stuck(run: Run) -> None:
    """It never comes: no word in any log."""
    timeouts(run)


def nfs(run: Run) -> None:
    at = run.at
    run.kern(run.host, at + timedelta(seconds=150), "nfs: server 10.40.0.12 not responding, still trying")
    run.say(
        run.rank,
        at,
        f"[rank{run.rank}] {stamp(at)} INFO reading shard /mnt/corpus/tok/part_{run.dice.randint(0, 900):05}.bin",
    )
    run.kern(run.host, at + timedelta(seconds=700), "nfs: server 10.40.0.12 OK")
    timeouts(run)


def slow_read(run: Run) -> None:
    at = run.at
    run.say(
        run.rank,
        at,
        f"[rank{run.rank}] {stamp(at)} INFO reading shard /mnt/corpus/tok/part_{run.dice.randint(0, 900):05}.bin",
    )
    run.kern(
        run.host,
        at + timedelta(seconds=190),
        f"INFO: task python:{run.pid(run.rank)} blocked for more than 120 seconds.",
    )
    run.kern(
        run.host,
        at + timedelta(seconds=190),
        f"task:python          state:D stack:    0 pid:{run.pid(run.rank):5} ppid: 40960 flags:0x00000000",
    )
    for frame in (
        "__schedule+0x2d0/0x940",
        "schedule+0x5f/0xd0",
        "io_schedule+0x12/0x40",
        "nfs_wait_on_request+0x44/0x60 [nfs]",
        "nfs_readpage_async+0x1b3/0x2a0 [nfs]",
        "vfs_read+0x9d/0x1a0",
    ):
        run.kern(run.host, at + timedelta(seconds=190), f" {frame}")
    timeouts(run)


SAMPLE = "clip_00417733.mp4"


def bad_clip_raises(run: Run) -> None:
    traceback(
        run, '  File "/srv/vid/train_vid.py", line 188, in <module>', "    main()",
        '  File "/srv/vid/train_vid.py", line 141, in main', "    for batch in loader:",
        '  File "/srv/vid/clips.py", line 77, in __getitem__', "    frames = decode(path)",
        f"RuntimeError: could not decode /mnt/clips/0417/{SAMPLE}: moov atom not found",
    )  # fmt: skip


def bad_clip_hangs(run: Run) -> None:
    at = run.at
    run.say(
        run.rank,
        at,
        f"[rank{run.rank}] {stamp(at)} INFO decoding clip /mnt/clips/0417/{SAMPLE} ({run.dice.randint(300, 900)} frames)",
    )
    timeouts(run)


def cuda_oom(run: Run) -> None:
    free = run.dice.randint(10, 900)
    traceback(
        run, '  File "/home/ml/gpt/train.py", line 233, in <module>', "    main()",
        '  File "/home/ml/gpt/train.py", line 199, in main', "    loss = head(hidden, labels)",
        '  File "/home/ml/gpt/head.py", line 58, in forward', "    logits = hidden @ self.weight.t()",
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.81 GiB. GPU {run.rank % GPUS} has a total capacity of 79.15 GiB of which {free}.19 MiB is free.",
    )  # fmt: skip


def bug(run: Run) -> None:
    kind, place = run.dice.choice(
        [
            ("KeyError: 'labels'", 'collate.py", line 31, in collate'),
            ("ValueError: too many values to unpack (expected 2)", 'eval.py", line 90, in score'),
            ("AssertionError: lr must be positive", 'sched.py", line 12, in step'),
        ]
    )
    traceback(
        run, '  File "/home/ml/gpt/train.py", line 233, in <module>', "    main()", f'  File "/home/ml/gpt/{place}', "    pass", kind,
    )  # fmt: skip


def write(run: Run, folder: Path, layout: str) -> None:
    """One file a rank in a folder a node, one file for all, or one a node; kernel logs beside."""
    folder.mkdir(parents=True)
    texts: dict[str, list[tuple[datetime, str]]] = {}
    for rank, lines in sorted(run.lines.items()):
        host = run.nodes[rank // GPUS]
        name = {
            "ranks": f"{host}/rank{rank:02}.log",
            "one": f"slurm-{hash_of(run)}.out",
            "nodes": f"{host}.log",
        }[layout]
        texts.setdefault(name, []).extend(lines)
    for name, lines in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        ordered = sorted(lines, key=lambda line: line[0])
        path.write_text("".join(text + "\n" for _, text in ordered), encoding="utf-8")
    for host, lines in run.kernel.items():
        text = "".join(
            f"[{at.strftime('%a %b %e %H:%M:%S %Y')}] {line}\n" for at, line in sorted(lines, key=lambda line: line[0])
        )
        (folder / f"{host}.dmesg.txt").write_text(text, encoding="utf-8")


def hash_of(run: Run) -> int:
    return 880000 + run.begin.toordinal() % 1000 * 10 + run.begin.hour % 10


def folder_of(
    kind: str,
    seed: int,
    names: str,
    prefix: str,
    faults: list[Callable[[Run], None]],
    layout: str,
    pick: Callable[[int, random.Random, list[str]], tuple[list[str], int]],
    clock: Callable[[int, random.Random], tuple[datetime, float]],
    truth: dict[str, object],
) -> None:
    dice = random.Random(seed)
    nodes = [f"{prefix}{number:02}" for number in range(1, 13)]
    for number, fault in enumerate(faults):
        placed, rank = pick(number, dice, nodes)
        end, pace = clock(number, dice)
        first = dice.choice([0, 2000, 4000, 8000])
        steps = dice.randint(900, 2500)
        begin = end - timedelta(seconds=steps * pace + 95)
        run = Run(
            names.format(number + 1), placed, begin, first + steps, first, random.Random(seed * 100 + number), rank
        )
        healthy_part(run, pace, 250)
        fault(run)
        write(run, ROOT / kind / run.name, layout)
    (ROOT / kind / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")


def any_four(dice: random.Random, nodes: list[str], must: str | None = None) -> list[str]:
    chosen = dice.sample([node for node in nodes if node != must], 3 if must else 4)
    if must:
        chosen.insert(dice.randint(0, 3), must)
    return chosen


def anytime(number: int, dice: random.Random) -> tuple[datetime, float]:
    day = datetime(2026, 3, 2) + timedelta(days=3 * number + dice.randint(0, 2))
    return day + timedelta(hours=(7 * number + dice.randint(0, 5)) % 24, minutes=dice.randint(0, 59)), dice.uniform(
        1.5, 4.0
    )


def main() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)

    def bad_node(number: int, dice: random.Random, nodes: list[str]) -> tuple[list[str], int]:
        placed = any_four(dice, nodes, "hx07")
        return placed, placed.index("hx07") * GPUS + (1, 3, 0, 2, 1, 3)[number]

    folder_of("one-node", 11, "run{}", "hx", [gpu_lost, stuck, ecc, gpu_lost, host_oom, stuck], "ranks", bad_node, anytime,
              {"answer": ["node", "gpu"], "name": "hx07"})  # fmt: skip

    spread = ([3, 9, 14, 6, 1, 12], [0, 4, 8, 2, 10, 7])

    def moving(number: int, dice: random.Random, nodes: list[str]) -> tuple[list[str], int]:
        order = nodes[spread[1][number] :] + nodes[: spread[1][number]]
        return order[:4], spread[0][number]

    def nightly(number: int, dice: random.Random) -> tuple[datetime, float]:
        day = datetime(2026, 4, 6) + timedelta(days=(0, 2, 3, 7, 8, 11)[number])
        return day + timedelta(hours=3, minutes=12 + dice.randint(0, 35)), dice.uniform(1.5, 4.0)

    folder_of("storage-window", 12, "2026-04-night{}", "pt-", [nfs, slow_read, stuck, nfs, slow_read, nfs], "nodes", moving, nightly,
              {"answer": ["window", "burst", "service"], "name": None})  # fmt: skip
    folder_of("one-sample", 13, "job-{}", "vd", [bad_clip_raises, bad_clip_hangs, bad_clip_raises, bad_clip_raises, bad_clip_hangs, bad_clip_raises],
              "one", moving, anytime, {"answer": ["shard", "sample"], "name": SAMPLE})  # fmt: skip

    def last(number: int, dice: random.Random, nodes: list[str]) -> tuple[list[str], int]:
        return moving(number, dice, nodes)[0], 15

    folder_of("one-rank", 14, "exp{}", "rk", [cuda_oom, stuck, cuda_oom, cuda_oom, stuck, cuda_oom], "ranks", last, anytime,
              {"answer": ["rank", "role"], "name": "rank 15"})  # fmt: skip
    folder_of("nothing", 15, "attempt-{}", "zz", [gpu_lost, bug, host_oom, stuck, bug, nfs], "nodes", moving, anytime,
              {"answer": ["undecided"], "name": None})  # fmt: skip


if __name__ == "__main__":
    main()
