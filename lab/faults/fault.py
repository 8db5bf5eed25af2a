"""What a fault is: the job it happens in, how that job's data and settings are laid out, and who is to blame."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.faults.incident import Incident
    from lab.faults.scene import Scene

TIMEOUT_BARE = 12.0  # seconds, of the process group: what a job without a watcher has to wait for
TIMEOUT_WATCHED = 60.0  # long enough for a watcher to speak first


@dataclass(frozen=True, slots=True)
class Drawn:
    """What the seed decides about one incident. Everything else in it follows."""

    fault: str
    variant: str
    seed: int
    world: int
    victim: int
    step: int  # at which it happens
    steps: int  # of one epoch, without a fault
    pace_s: float
    save_every: int
    evaluate_every: int
    workers: int
    all_speak: bool  # whether every rank logs its steps, or rank 0 alone
    merged: bool  # one output of all ranks, or a folder with a file for each
    frames: bool  # whether the recorders dump call sites
    watched: bool
    at: str = "step"  # what the victim reports when it begins: step, evaluation, save, start; launch: nothing

    @property
    def timeout_s(self) -> float:
        return TIMEOUT_WATCHED if self.watched else TIMEOUT_BARE

    def rng(self, use: str) -> random.Random:
        return random.Random(f"{self.fault}/{self.seed}/{self.world}/{use}")

    @property
    def others(self) -> list[int]:
        return [rank for rank in range(self.world) if rank != self.victim]


@dataclass(frozen=True, slots=True)
class Truth:
    """In the words of the report. `bare_also`: what is as right where only logs and dumps are there."""

    cause: str
    mechanism: Sequence[str]
    culprits: Sequence[int] | None
    why: str
    also: Sequence[str] = ()
    bare_also: Sequence[str] = ("undecided",)
    culprits_also: Sequence[Sequence[int]] = ()
    host: str | None = None


def nothing(given: object) -> None:
    """Nothing to lay out, or nothing to do while the job runs."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of incident. `lay_out` changes a sound scene; `during` acts on the job once it runs.

    `needs` names what the machine must offer: root, fuse, memory_cgroup, namespaces, kernel_log.
    """

    name: str
    made: str  # how it is made real, for the docs
    truth: Callable[[Drawn], Truth]
    variants: Sequence[str] = ("",)
    job: str = "pretrain"
    lay_out: Callable[[Scene], None] = nothing
    during: Callable[[Incident], None] = nothing
    needs: Sequence[str] = ()
    nodes: int = 1
    healthy: bool = False
    to_the_end: bool = False  # also after a watcher has spoken: the fault has not shown before the job ends
    moves: Callable[[Drawn], dict[str, object]] = field(default=lambda drawn: {})  # what of the draw it has to change
