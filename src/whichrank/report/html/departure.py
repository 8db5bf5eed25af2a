"""Calls that differ, side by side: what the deviating rank called, what a healthy one did, from which lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from whichrank.dump import BATCH, COLLECTIVE, Signature
from whichrank.findings.dumps.calls import Key, written
from whichrank.findings.dumps.trace import Traced
from whichrank.job.collectives import Collectives, Ring
from whichrank.ranges import ranks as rank_ranges
from whichrank.report.html import shown

BEFORE, AFTER = 5, 4


class Call(NamedTuple):
    """here: the first call that differs."""

    what: str
    sizes: str
    place: str
    state: str
    here: bool


@dataclass(frozen=True, slots=True)
class Side:
    """One rank's calls around the place, standing for all ranks that did the same."""

    ranks: str
    rank: int
    calls: tuple[Call, ...]
    stack: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Apart:
    """sides: the deviating rank, then a healthy one. ways: the same call as members made it: (what, ranks)."""

    says: str
    sides: tuple[Side, ...] = ()
    ways: tuple[tuple[str, str], ...] = field(default=())


_WHAT = {
    "order": "the same calls in another order",
    "arguments": "the same call with another shape or type",
    "operation": "another operation in the same place",
    "calls": "a call left out or added",
}


def apart(table: Collectives, traced: Traced) -> Apart | None:
    """None where all ranks made the same calls as far as the dumps show."""
    found = traced.departure
    ways = tuple((_way(key), rank_ranges(ranks, 60)) for key, ranks in traced.sides.ways) if traced.sides else ()
    if found is None:
        return Apart("Members of one group made this call differently.", (), ways) if ways else None
    says = f"The first difference: {_WHAT[found.what]}."
    if not found.sure:
        says += " Which of the two is wrong the dumps do not tell."
    elif found.by_history:
        says += " What this code did in earlier turns says which of the two is odd."
    sides = [_side(table, found.odd, found.at), _side(table, found.others, found.other_at)]
    return Apart(says, tuple(side for side in sides if side is not None), ways)


def group_apart(table: Collectives, traced: Traced) -> int | None:
    """Number of the group in whose grid the odd rank's call stands out, or the lack of one that it left out."""
    found = traced.departure
    if found is None:
        return None
    rank, at = (found.others[0], found.other_at) if found.left_out else (found.odd[0], found.at)
    ring = table.rings[rank]
    group = table.groups[int(ring.group[at])]
    # The others' group may be one like that of the odd rank; sends and receives are in no grid.
    return group.number if ring.dump.kind[at] == COLLECTIVE and found.odd[0] in group.members else None


def _way(key: Key) -> str:
    name, shapes, dtypes = key
    tensors = shown.sizes(Signature(shapes, (), dtypes)) or ", ".join(map(shown.text, dtypes))
    return f"{shown.text(name)} {tensors}".strip()


def _side(table: Collectives, ranks: tuple[int, ...], at: int) -> Side | None:
    ring = next((table.rings[rank] for rank in ranks if rank in table.rings), None)
    if ring is None or not 0 <= at < len(ring):
        return None
    index = np.flatnonzero(ring.dump.kind != BATCH)
    place = int(np.searchsorted(index, at))
    around = index[max(0, place - BEFORE) : place + AFTER + 1]
    calls = tuple(_call(table, ring, int(each), int(each) == at) for each in around)
    stack = tuple(shown.stack(ring.dump.sites[int(ring.dump.site[at])]))
    return Side(rank_ranges(ranks, 60), ring.rank, calls, stack)


def _call(table: Collectives, ring: Ring, at: int, here: bool) -> Call:
    dump = ring.dump
    return Call(
        shown.call(table, ring, at),
        shown.sizes(dump.signatures[int(dump.signature[at])]),
        shown.place(written(ring, at)),
        "unfinished" if dump.open[at] else "ended",
        here,
    )
