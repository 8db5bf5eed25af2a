"""gloo's recorder says that a call has ended, not how: a call that failed is retired like one that succeeded.

So after the errors of a hang nothing looks unfinished any more. What cannot have succeeded is taken as unfinished: a
call that a member never made, one that members made differently, and the last call of a rank beside a member of whom
there is no dump.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from whichrank.dump import COLLECTIVE, NEVER, PART, Ints

if TYPE_CHECKING:
    from whichrank.job.collectives import Group, Ring

BURST = 50e6  # ns: calls made in such a time were made at once, none of them waited for


def reopen(rings: dict[int, Ring], groups: Sequence[Group]) -> None:
    """Mark as open what is retired and cannot have succeeded."""
    missing = {rank for group in groups for rank in (*group.members, *group.maybe)} - set(rings)
    lowest = {group.number: _lowest(rings, group) for group in groups}
    for ring in rings.values():
        if ring.dump.backend != "gloo" or not len(ring):
            continue
        # Of a call that fails halfway some members are done, and make one more.
        ring.surely = max(0, last_burst(ring)[0] - 1)
        failed = [at for number in ring.places for at in _unmet(ring, number, lowest[number])]
        last = len(ring) - 1
        group = groups[int(ring.group[last])]
        if not ring.open_at and not failed and ring.dump.kind[last] == COLLECTIVE:
            beside = missing & {*group.members, *group.maybe} and not _went_on(rings, group, int(ring.dump.seq[last]))
            if beside or _made_otherwise(rings, group, int(ring.dump.seq[last])):
                waited = [_first_open(rings[rank], group.number) for rank in group.members if rank in rings]
                since = min((seq for seq in waited if seq is not None), default=int(ring.dump.seq[last]))
                failed = [at for at in last_burst(ring) if ring.dump.seq[at] >= since]
        if failed:
            ring.dump.open[failed] = True
            ring.open_at = np.flatnonzero(ring.dump.open & (ring.dump.kind != PART)).tolist()


def _lowest(rings: dict[int, Ring], group: Group) -> int:
    """How far the member came that is furthest behind."""
    lasts = [
        place.last if (place := rings[rank].places.get(group.number)) is not None else NEVER
        for rank in group.members
        if rank in rings
    ]
    return min(lasts, default=NEVER)


def _unmet(ring: Ring, number: int, lowest: int) -> Sequence[int]:
    """The last calls of a rank that another member did not make, if they are its last at all and were made at once."""
    calls = ring.calls(number)
    lead: Ints = calls[ring.dump.seq[calls] > lowest]
    if not len(lead) or len(ring) - int(lead[0]) > len(lead):
        return ()
    created = ring.dump.created[lead]
    return [int(at) for at in lead] if int(created[-1]) - int(created[0]) <= BURST else ()


def _first_open(ring: Ring, number: int) -> int | None:
    calls = ring.calls(number)
    still = calls[ring.dump.open[calls] & ~ring.dump.retired[calls]]
    return int(ring.dump.seq[still[0]]) if len(still) else None


def _went_on(rings: dict[int, Ring], group: Group, seq: int) -> bool:
    """Did a member make another call after this one, so that it must have succeeded?"""
    for rank in group.members:
        ring = rings.get(rank)
        if ring is not None and (at := ring.find(group.number, seq)) is not None and at < last_burst(ring)[0]:
            return True
    return False


def last_burst(ring: Ring) -> list[int]:
    """The calls of its last group that were made at once at its end: whether these succeeded gloo does not say."""
    last = len(ring) - 1
    created = ring.dump.created
    at = last
    while at and ring.group[at - 1] == ring.group[last] and int(created[last]) - int(created[at - 1]) <= BURST:
        at -= 1
    return list(range(at, last + 1))


def _made_otherwise(rings: dict[int, Ring], group: Group, seq: int) -> bool:
    """Did members pass other things at this number, or call something else?"""
    seen = set()
    for rank in group.members:
        ring = rings.get(rank)
        if ring is not None and (at := ring.find(group.number, seq)) is not None:
            dump = ring.dump
            passed = dump.signatures[int(dump.signature[at])]
            name = dump.names[int(dump.name[at])]
            seen.add(
                (name, passed.input_dtypes, passed.inputs if name.startswith(("all_reduce", "all_gather")) else ())
            )
    return len(seen) > 1
