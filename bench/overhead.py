#!/usr/bin/env python3
"""What the recorder costs a training: python bench/overhead.py --python PYTHON-WITH-TORCH

A DDP training on gloo and CPU under torchrun, one rank a core, with the recorder as `whichrank run` puts it in. Within
the same processes, blocks of steps alternate: with it, and with its wrappers taken out and its thread asleep. Of each
block counts the mean step of the slowest rank; of each pair of blocks the difference; the bound is the upper end of a
one-sided 95 % interval (Student) of the mean difference.

On a machine that others use, the times of blocks may scatter more than what is looked for. Then the processor time of the
ranks is compared in the same way, and where that scatters too, the recorder's own time is counted: what its calls take
in each step of the training, and the processor time of its thread. Instructions are not
counted: virtual machines rarely have a counter for them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "src" / "whichrank" / "record"
BARS = {100: 0.3, 10: 1.0}  # ms of a step: percent that the bound must stay under
MEMORY = 5.0  # MiB a rank
# Student's t, one-sided 95 %, by degrees of freedom; the normal distribution beyond.
STUDENT = {19: 1.729, 24: 1.711, 29: 1.699, 39: 1.685, 59: 1.671, 99: 1.660}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--ranks", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--blocks", type=int, default=30, help="pairs of blocks for each length of a step")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a block")
    options = parser.parse_args()
    for milliseconds, bar in BARS.items():
        found = run(options.python, options.ranks, milliseconds, options.blocks, options.seconds)
        report(found, milliseconds, bar)


def run(python: str, ranks: int, milliseconds: int, blocks: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:  # noqa: PTH112
        words = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), __file__]
        told = [str(milliseconds), str(blocks), str(seconds), f"{folder}/found.json"]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "WHICHRANK_RUN": f"{folder}/run",
            "PYTHONPATH": str(RECORD / "inject"),
        }
        subprocess.run([python, *words, "--inside", *told], env=environment, check=True)
        return dict(json.loads(Path(folder, "found.json").read_text(encoding="utf-8")))


def bound(differences: Sequence[float]) -> tuple[float, float]:
    """The mean, and how far above it the 95 % bound lies."""
    freedom = len(differences) - 1
    factor = next((factor for least, factor in sorted(STUDENT.items(), reverse=True) if freedom >= least), 1.83)
    return statistics.fmean(differences), factor * statistics.stdev(differences) / math.sqrt(len(differences))


def report(found: dict[str, Any], milliseconds: int, bar: float) -> None:
    without = statistics.fmean(found["wall"][1])
    print(f"steps of {without:.1f} ms, {len(found['wall'][0])} pairs of blocks, {found['ranks']} ranks, bar {bar} %")
    settled = False
    for name, says in (("wall", "slowest rank's time"), ("cpu", "processor time of the ranks")):
        pairs = zip(*found[name], strict=True)
        mean, above = bound([100 * (with_ / base - 1) for with_, base in pairs])
        noisy = above > bar
        verdict = "too noisy to tell" if noisy else "under the bar" if mean + above < bar else "OVER the bar"
        print(f"  {says:30} {mean:+.3f} %, bound {mean + above:+.3f} %   {verdict}")
        settled = settled or not noisy
    hooks, above = bound(found["hooks_us"])
    own = 100 * ((hooks + above) / 1e3 / without + found["sampler"])
    print(
        f"  {'counted: hooks of a step':30} {hooks:.1f} us, bound {hooks + above:.1f} us; {found['changes']:.1f} changes"
    )
    print(f"  {'counted: the thread':30} {100 * found['sampler']:.4f} % of a core")
    print(f"  {'counted together':30} bound {own:.3f} %   {'under the bar' if own < bar else 'OVER the bar'}")
    memory = found["memory_mib"]
    print(f"  {'memory of a rank':30} {memory:.1f} MiB   {'under' if memory < MEMORY else 'OVER'} {MEMORY:g} MiB")
    if not settled:
        print("  this machine is too noisy for the clock: what was counted stands")


# --- inside a rank


class Recorder:
    """The recorder of this process, taken out and put in again."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        package = sys.modules["_whichrank_record"]
        self.hooks, self.sampler = package.hooks, package._sampler
        self.recorder = self.hooks.active
        holders = [dist, dist.distributed_c10d, dist.Work, torch, torch.serialization, torch.nn.Module]
        holders += [torch.utils.data.DataLoader, torch.utils.data.dataloader._BaseDataLoaderIter]
        self.places = [
            (holder, name, wrapper)
            for holder in holders
            for name, wrapper in list(vars(holder).items())
            if callable(wrapper) and "_whichrank" in getattr(wrapper, "__dict__", {})
        ]
        assert len(self.places) > 60
        self.sample = self.sampler._beat
        optim = sys.modules["torch.optim.optimizer"]
        self.registers = [(optim._global_optimizer_pre_hooks, self.hooks.before_step)]
        self.registers.append((optim._global_optimizer_post_hooks, self.hooks.after_step))

    def put(self, there: bool) -> None:
        for holder, name, wrapper in self.places:
            setattr(holder, name, wrapper if there else wrapper.__wrapped__)
        for register, hook in self.registers:
            register.clear()
            if there:
                register[0] = hook
        self.hooks.active = self.recorder if there else None
        self.sampler._beat = self.sample if there else lambda sampling=True: None


class Training:
    def __init__(self, milliseconds: float) -> None:
        import torch
        import torch.distributed as dist
        from torch.utils.data import DataLoader

        torch.set_num_threads(1)
        self.torch, self.dist = torch, dist
        self.width = 256
        layers = [torch.nn.Linear(self.width, self.width) for _ in range(2)]
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.rows = 8
        self.times = 1
        self.loader = iter(DataLoader(range(1 << 40), batch_size=4, num_workers=0))  # type: ignore[arg-type]
        for _ in range(5):  # the fastest of a few: others use the machine as well
            took = min(self.steps(max(2, round(100 / milliseconds))) for _ in range(5))
            self.times = max(1, round(self.times * milliseconds / 1e3 / took))
        shared = torch.tensor(self.times)
        dist.broadcast(shared, 0)
        self.times = int(shared)

    def steps(self, count: int) -> float:
        """Seconds of a step."""
        begin = time.perf_counter()
        for _ in range(count):
            next(self.loader)
            batch = self.torch.ones(self.rows, self.width)
            for _ in range(self.times):
                self.model.module(batch)
            self.model(batch).square().mean().backward()
            self.dist.all_reduce(self.torch.ones(1))
            self.optimizer.step()
            self.optimizer.zero_grad()
        return (time.perf_counter() - begin) / count


class Timed:
    """A recorder whose calls are timed: `spent` nanoseconds in the clock of the wall, whoever else runs meanwhile."""

    def __init__(self, recorder: Any, hooks: Any) -> None:
        self.recorder, self.spent = recorder, 0
        for name in ("enter", "leave", "stepped", "batch"):
            setattr(self, name, self._timed(getattr(recorder, name)))
        hooks.named = self._timed(hooks.named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.recorder, name)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            begin = time.perf_counter_ns()
            try:
                return function(*args)
            finally:
                self.spent += time.perf_counter_ns() - begin

        return timed


def hooks_alone(recorder: Recorder, training: Training, milliseconds: float) -> list[float]:
    """Microseconds of a step of the training that its hooks take, once for each of 40 blocks."""
    timed = recorder.hooks.active = Timed(recorder.recorder, recorder.hooks)
    count = max(3, round(300 / milliseconds))
    found = []
    for _ in range(40):
        timed.spent = 0
        training.steps(count)
        found.append(timed.spent / 1e3 / count)
    recorder.hooks.active = recorder.recorder
    return found


def memory() -> float:
    """MiB that are this process's own, and what it shares with nobody else of the ring."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as lines:  # noqa: PTH123
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def inside(milliseconds: float, blocks: int, seconds: float, path: str) -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    training = Training(milliseconds)
    recorder = Recorder()
    count = max(4, round(seconds * 1e3 / milliseconds))
    found: dict[str, list[list[float]]] = {"wall": [[], []], "cpu": [[], []]}
    changes = 0
    for pair in range(blocks):
        for absent in (False, True) if pair % 2 else (True, False):
            recorder.put(not absent)
            training.steps(2)
            dist.barrier()
            before = recorder.recorder.ring.changes
            processor = time.process_time()
            took = torch.tensor([training.steps(count), 0.0], dtype=torch.float64)
            took[1] = (time.process_time() - processor) / count
            changes += recorder.recorder.ring.changes - before
            recorder.put(False)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            found["wall"][absent].append(1e3 * float(took[0]))
            found["cpu"][absent].append(1e3 * float(took[1]))
    recorder.put(True)
    begin, own = time.monotonic(), recorder.recorder
    ring = own.ring
    first = sampler_ns(ring)
    training.steps(max(1, round(5e3 / milliseconds)))
    spent = (sampler_ns(ring) - first) / 1e9 / (time.monotonic() - begin)
    results = {
        **found,
        "hooks_us": hooks_alone(recorder, training, milliseconds),
        "sampler": spent,
        "changes": changes / count / blocks,
        "ranks": dist.get_world_size(),
        "memory_mib": own_memory(recorder),
    }
    if dist.get_rank() == 0:
        Path(path).write_text(json.dumps(results), encoding="utf-8")
    dist.barrier()
    os._exit(0)


def sampler_ns(ring: Any) -> int:
    from struct import Struct

    at, size, _ = sys.modules["_whichrank_record.ring"].PLACES[b"BEAT"]
    return max(int(Struct("<qqqqqqQB").unpack_from(ring.memory, at + size * slot + 16)[4]) for slot in (0, 1))


def own_memory(recorder: Recorder) -> float:
    """MiB: the ring, the modules' objects and the thread's stack, measured in a fresh interpreter with and without."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import overhead; print(overhead.memory())"
    found = []
    for there in (True, False):
        environment = {name: value for name, value in os.environ.items() if name != "WHICHRANK_RANK_PID"}
        if not there:
            del environment["WHICHRANK_RUN"]
        words = [sys.executable, "-c", "import threading, json, atexit, traceback, mmap, struct, zlib\n" + code]
        several = [
            float(
                subprocess.run([*words, str(ROOT / "bench")], env=environment, capture_output=True, check=True).stdout
            )
            for _ in range(5)
        ]
        found.append(statistics.median(several))
    return found[0] - found[1]


if __name__ == "__main__":
    if "--inside" in sys.argv:
        milliseconds, blocks, seconds, path = sys.argv[sys.argv.index("--inside") + 1 :]
        inside(float(milliseconds), int(blocks), float(seconds), path)
    else:
        main()
