"""Who waits for whom: from each rank's oldest unfinished call to the ranks that keep it from ending.

A rank is held by the oldest call that has not ended on it, because calls end in the order in which they were made (on
one stream they must, on several they nearly always do). A member of that call keeps it from ending if it did not make
it (`absent`), if it made it but has an older call open itself (`queued`), or if nobody knows (`unknown`: no dump, or a
ring that says nothing). Where every member is in and none of them has an older one, the call is `met`: what stops it
lies on the GPUs or between them, or in its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from whichrank.dump import COLLECTIVE, NEVER, transfer
from whichrank.job.collectives import Collectives, Ring

Stand = Literal["absent", "queued", "in", "done", "unknown"]


class Unit(NamedTuple):
    """An unfinished call of one rank. seq: of a collective; sends and receives carry NEVER."""

    rank: int
    at: int
    group: int
    seq: int


class Transfer(NamedTuple):
    """A send or receive of one rank, what its other half is called, and the global rank at the other end."""

    text: str
    half: str
    group: int
    peer: int
    kind: int


Call = tuple[int, int, int]  # a collective: (group, seq, NEVER); another unit: (rank, index, its first peer)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the members of one unfinished call stand with it."""

    stands: dict[int, Stand]
    blockers: tuple[int, ...]  # absent, or queued behind an older call of their own
    doubts: tuple[int, ...]
    done: tuple[int, ...]


@dataclass(slots=True)
class Waits:
    """held: each rank's oldest unfinished call; calls: the same by what members share; idle: nothing is unfinished."""

    held: dict[int, Unit]
    call_of: dict[int, Call]
    calls: dict[Call, Standing]
    idle: frozenset[int]
    missing: frozenset[int]
    held_by: dict[Call, list[int]] = field(default_factory=dict)

    def standing(self, rank: int) -> Standing:
        return self.calls[self.call_of[rank]]

    def holders(self, call: Call) -> list[int]:
        """The ranks that are held by this very call."""
        if not self.held_by:
            for rank, theirs in self.call_of.items():
                self.held_by.setdefault(theirs, []).append(rank)
        return self.held_by.get(call, [])


def waits(table: Collectives) -> Waits:
    book = Transfers(table)
    held: dict[int, Unit] = {}
    call_of: dict[int, Call] = {}
    calls: dict[Call, Standing] = {}
    for rank, ring in table.rings.items():
        if not ring.open_at:
            continue
        at = ring.open_at[0]
        group = int(ring.group[at])
        if ring.dump.kind[at] == COLLECTIVE:
            held[rank] = Unit(rank, at, group, int(ring.dump.seq[at]))
            call = (group, held[rank].seq, NEVER)
            if call not in calls:
                calls[call] = _standing(_members(table, group, rank, held[rank].seq))
        else:
            held[rank] = Unit(rank, at, group, NEVER)
            call = (rank, at, 0)
            calls[call] = _standing(book.stands(ring, at))
        call_of[rank] = call
    return Waits(held, call_of, calls, frozenset(set(table.rings) - set(held)), table.missing)


def _members(table: Collectives, group: int, rank: int, seq: int) -> dict[int, Stand]:
    known = table.groups[group]
    if known.own:  # who else calls a group by this number may mean another one
        return {rank: "in"}
    stands = {member: _stand(table, member, group, seq) for member in known.members}
    return stands | dict.fromkeys(known.maybe, "unknown")


def _standing(stands: dict[int, Stand]) -> Standing:
    def those(*wanted: Stand) -> tuple[int, ...]:
        return tuple(member for member, stand in stands.items() if stand in wanted)

    return Standing(stands, those("absent", "queued"), those("unknown"), those("done"))


def _stand(table: Collectives, member: int, group: int, seq: int) -> Stand:
    """Where a member stands with a collective that is unfinished elsewhere."""
    ring = table.rings.get(member)
    if ring is None:
        return "unknown"
    place = ring.places.get(group)
    if place is None or place.last == NEVER:
        # Never used as far as the ring goes back: not made, unless what it lost included that.
        return "unknown" if ring.may_have_lost(group) else "absent"
    if place.last < seq:
        return "absent"
    if seq < place.first:
        return "done" if ring.active_only else "unknown" if not ring.open_at else "done"
    at = ring.find(group, seq)
    if at is None:
        return "done"  # only what is unfinished was asked for
    if not ring.dump.open[at]:
        return "done"
    return "queued" if ring.open_at[0] < at else "in"


class Transfers:
    """Sends and receives, matched pair by pair, because their numbers differ between the two ends.

    The n-th receive of a pair belongs to its n-th send. Where a ring no longer goes back to the start, only unfinished
    ones are counted: both ends of a transfer end together.
    """

    def __init__(self, table: Collectives) -> None:
        self.table = table

    def stands(self, ring: Ring, at: int) -> dict[int, Stand]:
        """Where the other ends of this unit's sends and receives stand."""
        around: dict[int, Stand] = {}
        order = {"done": 0, "in": 1, "queued": 2, "unknown": 3, "absent": 4}
        for part in ring.parts(at):
            transfer = self.of(ring, part)
            if transfer is None:
                continue
            stand = self._stand(ring, part, transfer)
            if transfer.peer not in around or order[stand] > order[around[transfer.peer]]:
                around[transfer.peer] = stand
        return around

    def of(self, ring: Ring, at: int) -> Transfer | None:
        """Who is at the other end; ranks in the text are numbered within the group."""
        text = ring.dump.names[int(ring.dump.name[at])]
        ends = transfer(text)
        group = int(ring.group[at])
        if ends is None or self.table.groups[group].own:
            return None
        members = self.table.groups[group].members
        if ends.peer >= len(members):
            return None
        return Transfer(text, ends.half, group, members[ends.peer], int(ring.dump.kind[at]))

    def _stand(self, ring: Ring, part: int, mine: Transfer) -> Stand:
        """Has the other end made its half, and is it its turn there?"""
        other = self.table.rings.get(mine.peer)
        if other is None:
            return "unknown"
        whole = not any(end.dump.overflowed or end.active_only for end in (ring, other))
        here = self._entries(ring, mine.text, mine, whole)
        there = self._entries(other, mine.half, mine, whole)
        place = int((here < part).sum())
        if place >= len(there):
            return "absent"
        at = int(there[place])
        if not other.dump.open[at]:
            return "done"
        return "queued" if other.open_at[0] < at else "in"

    def _entries(self, ring: Ring, text: str, transfer: Transfer, whole: bool) -> np.ndarray:
        """Where such transfers stand in a ring: all of them, or those that are unfinished."""
        dump = ring.dump
        if text not in dump.names:
            return np.zeros(0, np.int64)
        alike = (dump.name == dump.names.index(text)) & (ring.group == transfer.group) & (dump.kind == transfer.kind)
        return np.flatnonzero(alike if whole else alike & dump.open)
