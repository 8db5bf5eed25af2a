"""Checkpoints and failures: how long a checkpoint takes, how often to write one, how often a job is interrupted.

    write    = bytes / min(writers * bandwidth of a writer, file system) + bytes / (writers * serialise)
    interval = Young sqrt(2 C M); Daly sqrt(2 C M) (1 + sqrt(C/2M)/3 + (C/2M)/9) - C, for C < 2 M
    lost     = C/interval + interval/(2 M) + restart/M
with C the seconds that training stands still for a checkpoint and M the mean time between failures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from whichrank.plan.catalog import Book
from whichrank.plan.quantities import Range

DAY = 86400.0
MOST_LOST = 0.99  # a job that only writes and restarts still ends one day


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Bytes and seconds."""

    size: float
    seconds: Range


def checkpoint(
    parameters: float, writers: int, book: Book, writer: Range | None = None, file_system: Range | None = None
) -> Checkpoint:
    """Of a model's whole state, written by `writers` ranks at once while training waits."""
    size = parameters * book.number("reliability.storage.bytes_per_parameter")
    each = writer or book.range("reliability.storage.writer")
    shared = file_system or book.range("reliability.storage.file_system")
    serialise = size / (writers * book.number("reliability.storage.serialise"))
    slow, likely, fast = (
        size / min(writers * one, whole) + serialise
        for one, whole in ((each.low, shared.low), (each.likely, shared.likely), (each.high, shared.high))
    )
    return Checkpoint(size, Range(fast, likely, slow))


@dataclass(frozen=True, slots=True)
class Failures:
    """`between`: seconds; `lost`: share of the time for checkpoints, work done again and restarts."""

    per_week: Range
    between: Range
    young: float
    daly: float
    lost: Range


def failures(nodes: int, stall: float, book: Book) -> Failures:
    """At this many nodes, with `stall` seconds of standing still for a checkpoint."""
    rate = book.range("reliability.failures.per_node_day") * nodes
    between = Range(DAY / rate.high, DAY / rate.likely, DAY / rate.low)
    young, daly = young_daly(stall, between.likely)
    restart = book.range("reliability.failures.restart")

    def lost(mean: float, again: float) -> float:
        return min(MOST_LOST, stall / daly + daly / (2 * mean) + again / mean)

    return Failures(
        rate * 7.0,
        between,
        young,
        daly,
        Range(lost(between.high, restart.low), lost(between.likely, restart.likely), lost(between.low, restart.high)),
    )


def young_daly(stall: float, mean: float) -> tuple[float, float]:
    """Seconds between checkpoints by Young (1974) and Daly (2006)."""
    young = math.sqrt(2 * stall * mean)
    if stall >= 2 * mean:
        return young, mean
    ratio = stall / (2 * mean)
    return young, young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - stall
