"""Who called its collectives late, and by how much: from dumps alone, of a hang or of a job that runs.

Clocks of hosts differ. All members of a collective that synchronises end it together, so that the differences of their
completion times over many collectives give the difference of their clocks; then the times at which each rank made its
calls can be compared. Completions are times of *looking* (NCCL's watchdog looks every 100 ms): lateness of less than
`NOISE` says nothing. Late is who called later than the median of the group; the threshold is a robust z-score of 3.5,
raised for many ranks (docs/dumps.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from whichrank.findings.dumps.pace import those_ending_early
from whichrank.job.collectives import Collectives, Group

NOISE = 0.25  # seconds
SHARED = 3  # collectives that two ranks must have ended together for their clocks to be compared
MEMBERS = 256  # of a group that are looked at
OFTEN = 0.3  # share of its collectives in which a rank that is to blame was late
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Late:
    """One rank: in how many of its collectives it was late, and the median of those times in seconds."""

    rank: int
    late: int
    of: int
    median_s: float
    worst_s: float


@dataclass(frozen=True, slots=True)
class Lateness:
    """What the times of the calls say.

    what     "rank": the same few ranks are late again and again; "moving": lateness above the noise, of ranks that
             change: the work is uneven, no rank is bad; "none": nothing above the noise
    ranks    those to blame, where it is the same ones again and again
    late     the ranks that were ever late, the latest first
    median_s per rank, for pictures: the median of its lateness in seconds, may be negative
    calls    collectives that could be compared
    """

    what: Literal["rank", "moving", "none"]
    ranks: tuple[int, ...]
    late: tuple[Late, ...]
    median_s: dict[int, float]
    calls: int


def lateness(table: Collectives) -> Lateness | None:
    """None where too few collectives of three or more members are in the rings."""
    offsets, tied = clocks(table)
    late: dict[int, list[Floats]] = defaultdict(list)
    every: dict[int, list[Floats]] = defaultdict(list)
    calls = 0
    for group in table.groups:
        if group.own or len(group.members) < 3:
            continue
        members, created = _columns(table, group, offsets, "made")
        if not members:
            continue
        # Clocks that nothing ties together cannot be compared.
        largest = Counter(tied[rank] for rank in members).most_common(1)
        rows = [row for row, rank in enumerate(members) if tied[rank] == largest[0][0]]
        members, created = [members[row] for row in rows], _half_known(created[rows])
        if created.shape[0] < 3 or not created.shape[1]:
            continue
        calls += created.shape[1]
        delay = created - _medians(created)
        spread = _medians(np.abs(delay))
        limit = np.maximum(NOISE, _z(len(members)) * spread / 0.6745)
        for row, rank in enumerate(members):
            known = ~np.isnan(delay[row])
            every[rank].append(delay[row][known])
            late[rank].append(delay[row][known & (delay[row] > limit)])
    if not calls:
        return None
    whole = {rank: np.concatenate(delays) for rank, delays in every.items()}
    found = [
        Late(rank, len(times), len(whole[rank]), float(np.median(times)), float(times.max()))
        for rank, some in late.items()
        if len(times := np.concatenate(some))
    ]
    found.sort(key=lambda one: (-one.late * one.median_s, one.rank))
    blamed = _blamed(found, len(every))
    what: Literal["rank", "moving", "none"] = "rank" if blamed else "none"
    if not blamed and sum(one.late for one in found) >= max(3, 0.1 * calls):
        what = "moving"
    medians = {rank: float(np.median(delays)) for rank, delays in whole.items() if len(delays)}
    return Lateness(what, blamed, tuple(found), medians, calls)


def _blamed(found: list[Late], ranks: int) -> tuple[int, ...]:
    """The few ranks that are late again and again."""
    often = [one for one in found if one.late >= max(3, OFTEN * one.of)]
    return tuple(sorted(one.rank for one in often)) if len(often) <= max(1, ranks // 4) else ()


def _z(ranks: int) -> float:
    return max(3.5, float(np.sqrt(2 * np.log(max(2, ranks)))))


def _half_known(columns: Floats) -> Floats:
    return columns[:, (~np.isnan(columns)).sum(axis=0) * 2 > columns.shape[0]]


def _medians(columns: Floats, axis: int = 0) -> Floats:
    """Of each column (or row) what is known of it; the usual case, where all is known, is many times faster."""
    found: Floats = np.nanmedian(columns, axis) if np.isnan(columns).any() else np.median(columns, axis)
    return found


def clocks(table: Collectives) -> tuple[dict[int, float], dict[int, int]]:
    """Seconds that each rank's clock is ahead of another's, and whose: as far as collectives tie them together."""
    edges: dict[int, dict[int, float]] = defaultdict(dict)
    for group in table.groups:
        if group.own or len(group.members) < 2:
            continue
        members, done = _columns(table, group, {}, "ended")
        done = _half_known(done)
        if len(members) < 2 or done.shape[1] < SHARED:
            continue
        # Ends of work that some members may leave early would shift their clocks.
        differences = done - _medians(done)
        first = members[0]
        enough = np.flatnonzero((~np.isnan(differences)).sum(axis=1) >= SHARED)
        middles = _medians(differences[enough], 1).tolist() if len(enough) else []
        ahead = {members[row]: middle for row, middle in zip(enough.tolist(), middles, strict=True)}
        for rank, offset in ahead.items():
            if rank != first and first in ahead:
                edges[first][rank] = offset - ahead[first]
                edges[rank][first] = ahead[first] - offset
    return _spread(edges, table.rings)


def _spread(edges: dict[int, dict[int, float]], ranks: Iterable[int]) -> tuple[dict[int, float], dict[int, int]]:
    """From one rank to the next, over all that are tied together."""
    offsets: dict[int, float] = {}
    tied: dict[int, int] = {}
    for start in ranks:
        if start in offsets:
            continue
        offsets[start], tied[start] = 0.0, start
        todo = deque([start])
        while todo:
            rank = todo.popleft()
            for other, difference in edges.get(rank, {}).items():
                if other not in offsets:
                    offsets[other], tied[other] = offsets[rank] + difference, start
                    todo.append(other)
    return offsets, tied


def _columns(
    table: Collectives, group: Group, offsets: dict[int, float], what: Literal["ended", "made"]
) -> tuple[list[int], Floats]:
    """Members with a ring, and for each of the group's collectives when each of them ended or made it, in seconds.

    NaN where a ring does not hold it.
    """
    members = [rank for rank in group.members[:MEMBERS] if rank in table.rings]
    rows = [_calls(table, rank, group.number, what) for rank in members]
    numbers = np.unique(np.concatenate([seqs for seqs, _ in rows]))[-2000:] if rows else np.zeros(0, np.int64)
    columns = np.full((len(members), len(numbers)), np.nan)
    for row, (seqs, times) in enumerate(rows):
        known = seqs >= numbers[0] if len(numbers) else np.zeros(0, bool)
        columns[row, np.searchsorted(numbers, seqs[known])] = times[known] - offsets.get(members[row], 0.0)
    return members, columns


def _calls(
    table: Collectives, rank: int, number: int, what: Literal["ended", "made"]
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Numbers and times of the collectives of one rank in one group that all members end together."""
    ring = table.rings[rank]
    dump = ring.dump
    at = ring.calls(number)
    at = at[~those_ending_early(dump.names)[dump.name[at]] & (dump.created[at] > 0)] if len(at) else at
    if what == "made":
        return dump.seq[at], dump.created[at] / 1e9
    return dump.seq[at], np.where(dump.retired[at] & (dump.completed[at] > 0), dump.completed[at] / 1e9, np.nan)
