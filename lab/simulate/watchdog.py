"""When somebody looks: the watchdog's polls, the first timeout, the dump of each rank.

After ProcessGroupNCCL.cpp (2.8 to 2.13): each process group of a process has a watchdog thread that polls its works
every 100 ms, retires those that ended, and compares the others' age since they were *enqueued* with the timeout. The
first that fires leaves a signal in the store; the monitor of every other process looks for it about once a second.
A watchdog that fired sleeps until its process ends: it retires nothing more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from lab.simulate.engine import Rank
from lab.simulate.layout import Layout
from lab.simulate.ops import Op

POLL = 0.1
SIGNAL_EVERY = 1.0


@dataclass(slots=True)
class Looks:
    """`at[rank]`: the moment of its dump; `fired[rank, group]`: when that watchdog gave up."""

    at: list[float]
    fired: dict[tuple[int, int], float] = field(default_factory=dict)
    first: int | None = None
    phase: dict[tuple[int, int], float] = field(default_factory=dict)

    def poll(self, rank: int, group: int, time: float) -> float:
        """The first poll of that watchdog at or after `time`."""
        phase = self.phase.get((rank, group), 0.0)
        return math.ceil((time - phase) / POLL) * POLL + phase


def phases(layout: Layout, rng: np.random.Generator) -> dict[tuple[int, int], float]:
    keys = [(rank, group.index) for group in layout.groups for rank in group.ranks]
    return dict(zip(keys, (rng.random(len(keys)) * POLL).tolist(), strict=True))


def has_events(op: Op) -> bool:
    """A work that the watchdog watches. Single sends and receives of a batch are none: their batch is."""
    return op.communicates and op.created is not None


def first_timeout(ranks: list[Rank], looks: Looks) -> float | None:
    """Runs all watchdogs until one fires; None if none ever does."""
    due: dict[tuple[int, int], float] = {}
    for rank in ranks:
        for op in rank.ops:
            if not has_events(op):
                continue
            assert op.group is not None and op.created is not None
            limit = op.created + op.group.timeout_ms / 1e3
            if op.end is not None and op.end <= limit and not op.unseen:
                continue
            key = (rank.number, op.group.index)
            fires = looks.poll(*key, limit)
            if (op.end is None or op.unseen or op.end > fires) and (rank.died_at is None or fires < rank.died_at):
                due[key] = min(fires, due.get(key, math.inf))
    if not due:
        return None
    (looks.first, _), when = min(due.items(), key=lambda item: item[1])[0], min(due.values())
    looks.fired = due
    return when


def dump_after(looks: Looks, when: float, world: int, rng: np.random.Generator) -> None:
    """The rank that fired writes when its monitor next wakes, the others once they have seen the signal."""
    delays = rng.uniform(0.05, SIGNAL_EVERY + 0.2, world).tolist()
    seen = rng.uniform(0.0, SIGNAL_EVERY, world).tolist()
    own: dict[int, float] = {}
    for (rank, _), fires in looks.fired.items():
        own[rank] = min(fires, own.get(rank, math.inf))
    for rank in range(world):
        told = when + (seen[rank] if rank != looks.first else 0.0)
        looks.at.append(min(told, own.get(rank, math.inf)) + delays[rank])
    looks.fired = {key: fires for key, fires in looks.fired.items() if fires <= looks.at[key[0]]}


def dump_by_hand(looks: Looks, when: float, world: int, rng: np.random.Generator) -> None:
    """Somebody asks every rank for a dump: within a second or two of each other."""
    looks.first, looks.fired = None, {}
    looks.at = (when + rng.uniform(0.0, 1.5, world)).tolist()
