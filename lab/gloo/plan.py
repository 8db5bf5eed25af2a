"""What goes wrong, where, in which job: drawn from a seed, and laid out as the data that the job reads.

The jobs' code is the same with and without a fault. A record that a rank gets at one step decides: a pipe that nobody
writes to, a file that is damaged, a label that is missing, another number of rows.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass
from pathlib import Path

FAULTS = ("stall", "skip", "mismatch", "exception", "kill", "healthy")
JOBS = ("ddp", "evaluated", "grid", "gathered")
WORLDS = (4, 4, 5, 6, 8)
ROWS = 16

# how a record or a checkpoint holds a rank up
STALLS = ("read", "decoder", "prefetch", "arrives", "save")
# what the record at fault says; where a job calls something only in some steps, the step is one of those
SKIPS = {"ddp": ("label",), "evaluated": ("label", "empty"), "grid": ("label", "empty"), "gathered": ("label",)}
MISMATCHES = {
    "ddp": ("dtype", "op"),
    "evaluated": ("shape", "dtype", "op"),
    "grid": ("shape", "dtype", "op"),
    "gathered": ("shape", "dtype", "op"),
}
EXCEPTIONS = ("missing", "damaged", "decoder")
KILLS = ("between", "inside")


@dataclass(frozen=True, slots=True)
class Plan:
    """One incident. victim is None in a healthy job; holder keeps a killed rank waiting inside a collective."""

    fault: str
    variant: str
    job: str
    world: int
    steps: int
    victim: int | None
    holder: int | None
    step: int
    when: str  # request: dumped while all wait; errors: after the timeout or the errors
    frames: bool
    ring: int
    timeout_s: float
    save_every: int
    wait_for_peers: bool
    pace_s: float  # a step's computation: dumps of a job that runs must catch it running

    @property
    def pipe(self) -> str | None:
        """The pipe, below the data, at which a rank stands still."""
        if self.fault == "kill" or (self.fault == "stall" and self.variant in ("read", "decoder", "prefetch")):
            at = self.victim if self.holder is None else self.holder
            return f"rank{at}/{self.step:04d}.json"
        return None

    def group(self) -> list[int]:
        """The members of the collective at fault."""
        if self.fault == "mismatch" and self.victim is not None:
            return block(self.job, self.world, self.victim)
        return [*range(self.world)]


def block(job: str, world: int, rank: int) -> list[int]:
    """With whom a rank makes the first call of a step: in grid its half of the ranks, elsewhere all."""
    size = world // 2 if job == "grid" else world
    low = rank // size * size
    return [*range(low, low + size)]


def draw(seed: int, number: int, fault: str | None = None, worlds: tuple[int, ...] = WORLDS) -> Plan:
    """Incident `number` of a suite: faults take turns, and so do jobs."""
    rng = random.Random(f"{seed}/{number}")
    fault = fault or FAULTS[number % len(FAULTS)]
    job = rng.choice(JOBS)
    variant = {
        "stall": rng.choice(STALLS),
        "skip": rng.choice(SKIPS[job]),
        "mismatch": rng.choice(MISMATCHES[job]),
        "exception": rng.choice(EXCEPTIONS),
        "kill": rng.choice(KILLS),
        "healthy": rng.choice(("running", "finished")),
    }[fault]
    world = rng.choice([w for w in worlds if job != "grid" or w % 2 == 0])
    victim = rng.randrange(world)
    steps, save_every = rng.randint(9, 24), rng.choice((4, 5, 7))
    step = rng.randint(3, steps - 2)
    if variant == "running":
        steps = 600  # longer than all dumps take; the launcher is told to stop once they are there
    if job == "evaluated" and (fault == "mismatch" or variant == "label"):
        evaluated = step // 3 * 3 + 2
        step = evaluated if evaluated < steps else 2
    if variant == "save":
        step = save_every * rng.randint(1, steps // save_every) - 1
        victim = 0 if job in ("ddp", "evaluated") else victim
    holder = None
    if variant == "inside":
        holder = rng.choice([rank for rank in block(job, world, victim) if rank != victim])
    hangs = fault in ("stall", "skip", "mismatch")
    when = rng.choice(("request", "errors")) if hangs else "request" if variant == "running" else "errors"
    return Plan(
        fault=fault, variant=variant, job=job, world=world, steps=steps,
        victim=None if fault == "healthy" else victim, holder=holder, step=step,
        when=when,
        frames=rng.random() < 0.6, ring=rng.choice((2000, 2000, 24)), timeout_s=rng.choice((10.0, 12.0, 15.0)),
        save_every=save_every, wait_for_peers=rng.random() < 0.5, pace_s=0.1 if variant == "running" else 0.0,
    )  # fmt: skip


def lay_out(plan: Plan, data: Path, save: Path) -> None:
    """Writes each rank's records, and makes the pipe at which one stands still."""
    rng = random.Random(plan.step * 1000 + plan.world)
    save.mkdir(parents=True)
    for rank in range(plan.world):
        folder = data / f"rank{rank}"
        folder.mkdir(parents=True)
        index = []
        for step in range(plan.steps):
            record = sound(rng.randint(1, 9))
            listed = {"path": f"{step:04d}.json"}
            text = json.dumps(record)
            if step == plan.step and rank in (plan.victim, plan.holder):
                text = _faulty(plan, rank, record, listed) or text
            if f"rank{rank}/{listed['path']}" == plan.pipe:
                os.mkfifo(folder / listed["path"])
            elif text != "absent":
                (folder / listed["path"]).write_text(text)
            index.append(listed)
        (folder / "index.json").write_text(json.dumps(index))
    if plan.variant == "save":
        name = f"step{plan.step}.pt" if plan.job in ("ddp", "evaluated") else f"step{plan.step}-{plan.victim}.pt"
        os.mkfifo(save / name)


def sound(labelled: int = 3) -> dict[str, object]:
    return {"rows": ROWS, "labelled": labelled, "precision": "float32", "sync": "average"}


def _faulty(plan: Plan, rank: int, record: dict[str, object], listed: dict[str, object]) -> str:
    """The text of the record at fault, '' where the plain one stays; may change how it is listed."""
    if rank != plan.victim:
        return ""
    if plan.fault == "stall":
        if plan.variant == "decoder":
            listed["decoder"] = ["cat"]
        elif plan.variant == "prefetch":
            listed["prefetch"] = listed["path"]
        elif plan.variant == "arrives":
            listed["arrives"] = True
            return "absent"
    elif plan.fault == "exception":
        if plan.variant == "decoder":
            listed["decoder"] = ["grep", "-x", "rows"]
        return {"missing": "absent", "damaged": '{"rows": 16, "labelled"', "decoder": ""}[plan.variant]
    else:
        record |= {
            "label": {"labelled": 0},
            "empty": {"rows": 0},
            "shape": {"rows": ROWS - 5},
            "dtype": {"precision": "float64"},
            "op": {"sync": "first"},
        }.get(plan.variant, {})
    return json.dumps(record)
