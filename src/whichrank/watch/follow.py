"""The ranks of this node: their rings, and whether they live."""

from __future__ import annotations

import contextlib
import os
import select
import time
from dataclasses import dataclass
from pathlib import Path

from whichrank.evidence import ring
from whichrank.evidence.stack_class import classify
from whichrank.watch import processes
from whichrank.watch.detector import Seen


@dataclass(slots=True)
class Rank:
    """One rank process. `started` tells its pid from a later process of the same; `handle`: a pidfd, or -1."""

    rank: int
    pid: int
    path: Path
    started: int | None
    handle: int = -1
    ring: ring.Ring | None = None
    gone: bool = False
    ended_at: float | None = None  # wall clock
    signal: int | None = None  # that ended it, where its parent had not yet asked for it

    @property
    def attempt(self) -> int:
        value = self.ring.identity.get("attempt") if self.ring else None
        return value if isinstance(value, int) else 0

    @property
    def in_order(self) -> bool:
        """Did its interpreter say that it exits, without an exception?"""
        ring = self.ring
        return ring is not None and ring.exception is None and ring.beat is not None and ring.beat.exiting

    @property
    def world(self) -> int | None:
        value = self.ring.identity.get("world") if self.ring else None
        return value if isinstance(value, int) else None


class Ranks:
    """All that have a ring in this run directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[str, Rank] = {}

    def look(self) -> tuple[list[Rank], list[Rank]]:
        """Reads all rings: (new ranks, ranks that ended since the last look)."""
        new = []
        for name in self._names():
            if name not in self.known and (rank := self._meet(self.folder / name)):
                self.known[name] = rank
                new.append(rank)
        ended = []
        for rank in self.known.values():
            if rank.gone:
                continue
            alive = self._alive(rank)
            if not alive:
                rank.ended_at, rank.signal = time.time(), processes.killed_by(rank.pid, rank.started)
            rank.ring = ring.read(rank.path) or rank.ring  # read once more after it has ended
            if not alive:
                rank.gone = True
                if rank.handle >= 0:
                    os.close(rank.handle)
                    rank.handle = -1
                ended.append(rank)
        return new, ended

    def live(self) -> list[Rank]:
        return sorted((rank for rank in self.known.values() if not rank.gone), key=lambda rank: rank.rank)

    def handles(self) -> list[int]:
        """To be waited on: readable when the process ends."""
        return [rank.handle for rank in self.known.values() if rank.handle >= 0]

    def _names(self) -> list[str]:
        try:
            return sorted(path.name for path in self.folder.iterdir() if path.name.endswith(".ring"))
        except OSError:
            return []

    def _meet(self, path: Path) -> Rank | None:
        found = ring.read(path)
        if found is None or found.rank is None or found.pid is None:
            return None
        there = processes.process(found.pid)
        rank = Rank(found.rank, found.pid, path, there.started if there else None, ring=found)
        with contextlib.suppress(OSError, AttributeError):
            rank.handle = os.pidfd_open(found.pid)
        return rank

    @staticmethod
    def _alive(rank: Rank) -> bool:
        if rank.handle >= 0 and select.select([rank.handle], [], [], 0)[0]:
            return False
        return processes.alive(rank.pid, rank.started)


WAITING = ("collective", "backward", "gpu_sync")
STILL = 2.0  # seconds in one phase from which a stack is looked at


def _blocked(there: ring.Ring, now: float) -> bool:
    """Does the last sample of its stack show that it waits for others? In the backward pass no Python function tells."""
    if there.state is None or not there.samples or now - there.state.since_ns / 1e9 < STILL:
        return False
    last = there.samples[-1]
    return last.first_ns >= there.state.since_ns and classify(last.frames) in WAITING


def seen(rank: Rank, now: float) -> Seen | None:
    """What the detector is to know of a rank; None where its ring says nothing, or it is about to end in order."""
    if rank.ring is None or rank.ring.state is None:
        return None
    state = rank.ring.state
    kind = f"own:{state.name}" if state.phase == "own" else state.phase
    recent: dict[str, list[float]] = {}
    for step in rank.ring.steps:
        for phase, seconds in step.seconds.items():
            recent.setdefault(phase, []).append(seconds)
    there = processes.process(rank.pid)
    timeout = rank.ring.identity.get("timeout_s")
    return Seen(
        rank=rank.rank,
        pid=rank.pid,
        step=state.step,
        phase=kind,
        since=state.since_ns / 1e9,
        recent={phase: tuple(past) for phase, past in recent.items()},
        at=state.changes,
        state="T" if there is not None and there.state in "Tt" else there.state if there else "",
        blocked=_blocked(rank.ring, now),
        timeout=float(timeout) if isinstance(timeout, (int, float)) and timeout > 0 else None,
    )
