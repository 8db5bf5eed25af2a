"""Measured bandwidth: which runs fall behind their like, which host they share, and what such machines reach at all.

A run is compared with runs of the same test on as many hosts; the figure of a fabric (`REACHED`) is looked at only
where there is nothing to compare with, at the sizes for which it was measured. A table of figures says what was reached
by others: less may be a smaller fabric, so it is a hint and no proof.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from whichrank.facts import Fact
from whichrank.job.model import Job
from whichrank.job.names import canon

SLOW = 0.7  # of the best of its like: well below what runs of one fabric differ by
MIB, GIB = 1 << 20, 1 << 30


class Reached(NamedTuple):
    """All-reduce busbw in GB/s that machines of this kind reach with messages of at least `size` bytes."""

    gpu: str
    nodes: int
    per_node: int
    size: int
    busbw: float
    source: str


REACHED = (
    Reached("A100", 1, 8, GIB, 228, "Azure node health checks"),
    Reached("H100", 1, 8, 16 * GIB, 460, "Azure node health checks"),
    Reached("H100", 1, 8, 512 * MIB, 377, "82 % of that, as measured for H200"),
    Reached("H200", 1, 8, 512 * MIB, 456, "stas00/ml-engineering"),
    Reached("H200", 1, 8, 16 * GIB, 481, "stas00/ml-engineering"),
    Reached("B200", 1, 8, 16 * GIB, 839, "stas00/ml-engineering"),
    Reached("H100", 2, 8, 512 * MIB, 418, "SkyPilot docs, InfiniBand"),
    Reached("H100", 2, 8, GIB, 445, "SkyPilot docs, InfiniBand"),
    Reached("H200", 2, 8, 512 * MIB, 422, "SkyPilot docs, InfiniBand"),
    Reached("H200", 2, 8, GIB, 456, "SkyPilot docs, InfiniBand"),
    Reached("B200", 4, 8, 512 * MIB, 310, "stas00/ml-engineering"),
    Reached("B200", 4, 8, 16 * GIB, 377, "stas00/ml-engineering"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """A measurement between hosts, or within one. `busbw` in GB/s."""

    hosts: frozenset[str]
    busbw: float
    fact: Fact


@dataclass(frozen=True, slots=True)
class Short:
    """A run far below what its kind of machine reaches."""

    fact: Fact
    reached: Reached
    inside: bool  # one node: NVLink and PCIe, not the network


@dataclass(frozen=True, slots=True)
class Bandwidth:
    slow: tuple[Fact, ...]  # runs far below the best of their like
    usual: Fact | None  # the best of their like
    host: str | None  # the one that all of them share, and no good run has
    inside: bool  # they are runs on one host each
    short: Short | None
    wrong: tuple[Fact, ...]  # runs that gave wrong values


def bandwidth(job: Job) -> Bandwidth:
    runs = [
        Run(hosts, float(fact["busbw"]), fact)
        for fact in job.of("bandwidth")
        if (hosts := _hosts(fact)) and (len(hosts) > 1 or fact["gpus"]) and isinstance(fact["busbw"], (int, float))
    ]
    like: dict[tuple[object, int, object], list[Run]] = defaultdict(list)
    for run in runs:
        like[run.fact["test"], len(run.hosts), run.fact["size"]].append(run)
    wrong = tuple(job.of("wrong_values"))
    low = next((float(fact["low"]) for fact in job.of("expected_busbw") if fact["low"]), None)
    for (_, count, _), alike in sorted(like.items(), key=lambda item: -len(item[1])):
        slow, usual, host = apart(alike, low)
        if slow:
            best = usual.fact if usual else None
            return Bandwidth(tuple(run.fact for run in slow), best, host, count == 1, None, wrong)
    return Bandwidth((), None, None, False, None if low else _short(runs), wrong)


def _hosts(fact: Fact) -> frozenset[str]:
    named = fact["hosts"] or [fact["a"], fact["b"]]
    return frozenset(name for host in named if host and (name := canon(str(host))))


def apart(runs: Sequence[Run], low: float | None = None) -> tuple[tuple[Run, ...], Run | None, str | None]:
    """The slow ones of like runs, the best, and the host that all slow ones share and no good one has.

    Of fewer than three only what is expected, `low`, tells.
    """
    if len(runs) < 3:
        return tuple(run for run in runs if low and run.busbw < SLOW * low), None, None
    best = max(runs, key=lambda run: run.busbw)
    slow = tuple(run for run in runs if run.busbw < SLOW * best.busbw)
    good = [run for run in runs if run not in slow]
    if not slow or not good:
        return slow, best, None
    shared = frozenset.intersection(*(run.hosts for run in slow)) - frozenset().union(*(run.hosts for run in good))
    return slow, best, next(iter(shared)) if len(shared) == 1 else None


def _short(runs: Sequence[Run]) -> Short | None:
    """The run that falls farthest below the table."""
    found = [
        Short(run.fact, reached, reached.nodes == 1)
        for run in runs
        if (reached := _of_its_kind(run.fact)) is not None and run.busbw < SLOW * reached.busbw
    ]
    return min(found, key=lambda short: short.fact["busbw"] / short.reached.busbw, default=None)


def _of_its_kind(fact: Fact) -> Reached | None:
    """The figure for this machine and test at the largest size that the run has reached."""
    nodes, ranks = len(_hosts(fact)), fact["gpus"]
    if fact["test"] not in ("all_reduce_perf", None) or fact["groups"] or not ranks or not fact["size"]:
        return None
    fits = [
        reached
        for reached in REACHED
        if re.search(rf"\b{reached.gpu}\b", str(fact["gpu"] or ""))
        and reached.nodes == nodes
        and reached.per_node * nodes == ranks
        and reached.size <= fact["size"]
    ]
    return max(fits, key=lambda reached: reached.size, default=None)
