"""Who waits for whom: from each rank's oldest unfinished call to the ranks that keep it from ending.

A rank is held by the oldest call that has not ended on it, because calls end in the order in which they were made (on
one stream they must, on several they nearly always do). A member of that call keeps it from ending if it did not make
it (`absent`), if it made it but has an older call open itself (`queued`), or if nobody knows (`unknown`: no dump, or a
ring that says nothing). Where every member is in and none of them has an older one, the call is `met`: what stops it
lies on the GPUs or between them, or in its arguments.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal, NamedTuple

from whichrank.dump import BATCH, COLLECTIVE, NEVER, SINGLE
from whichrank.job.collectives import Collectives, Ring

Stand = Literal["absent", "queued", "in", "done", "unknown"]


class Unit(NamedTuple):
    """An unfinished call of one rank. seq: of a collective; sends and receives carry NEVER."""

    rank: int
    at: int
    group: int
    seq: int


class Transfer(NamedTuple):
    """A send or receive of one rank: global ranks where the group's members are known."""

    sends: bool
    group: int
    peer: int
    single: bool


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

    def standing(self, rank: int) -> Standing:
        return self.calls[self.call_of[rank]]

    def holders(self, call: Call) -> list[int]:
        """The ranks that are held by this very call."""
        return [rank for rank, theirs in self.call_of.items() if theirs == call]


def waits(table: Collectives) -> Waits:
    book = _Transfers(table)
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
                members = table.groups[group].members
                calls[call] = _standing({member: _stand(table, member, *call[:2]) for member in members})
        else:
            held[rank] = Unit(rank, at, group, NEVER)
            call = (rank, at, 0)
            calls[call] = _standing(book.stands(ring, held[rank]))
        call_of[rank] = call
    return Waits(held, call_of, calls, frozenset(set(table.rings) - set(held)), table.missing)


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
        return "unknown" if ring.dump.overflowed and not ring.active_only and place is None and not ring.dump.status else "absent"
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


class _Transfers:
    """Sends and receives, matched pair by pair.

    Their numbers differ between the two ends. The n-th unfinished receive of a pair belongs to the n-th unfinished
    send, because both ends of one transfer end together; where both rings go back to the start, they are counted.
    """

    def __init__(self, table: Collectives) -> None:
        self.table = table
        self._open: dict[int, dict[tuple[int, int, int, bool], list[int]]] = {}

    def stands(self, ring: Ring, unit: Unit) -> dict[int, Stand]:
        around: dict[int, Stand] = {}
        order = {"in": 0, "done": 0, "queued": 1, "unknown": 2, "absent": 3}
        for part in ring.parts(unit.at):
            transfer = self.of(ring, part)
            if transfer is None:
                continue
            stand = self._stand(ring, unit.at, transfer)
            if transfer.peer not in around or order[stand] > order[around[transfer.peer]]:
                around[transfer.peer] = stand
        return around

    def of(self, ring: Ring, at: int) -> Transfer | None:
        """Who is at the other end; ranks in the text are numbered within the group."""
        text = ring.dump.names[int(ring.dump.name[at])]
        sends = text.startswith("send ")
        me, _, peer = text.partition(" ")[2].partition("->" if sends else "<-")
        group = int(ring.group[at])
        members = self.table.groups[group].members
        if not (peer.isdecimal() and int(peer) < len(members)):
            return None
        return Transfer(sends, group, members[int(peer)], bool(ring.dump.kind[at] == SINGLE))

    def _stand(self, ring: Ring, at: int, mine: Transfer) -> Stand:
        """Has the other end made its half, and is it its turn there?"""
        other = self.table.rings.get(mine.peer)
        if other is None:
            return "unknown"
        here = self._unfinished(ring).get((mine.group, mine.peer, int(mine.sends), mine.single), [])
        there = self._unfinished(other).get((mine.group, ring.rank, int(not mine.sends), mine.single), [])
        place = sum(unit < at for unit in here)
        if place >= len(there):
            return "absent"
        return "queued" if other.open_at[0] < there[place] else "in"

    def _unfinished(self, ring: Ring) -> dict[tuple[int, int, int, bool], list[int]]:
        """Units with an unfinished transfer, by group, peer, direction and whether it goes by itself."""
        if ring.rank not in self._open:
            found: dict[tuple[int, int, int, bool], list[int]] = defaultdict(list)
            for at in ring.open_at:
                if ring.dump.kind[at] in (SINGLE, BATCH):
                    for part in ring.parts(at):
                        if (transfer := self.of(ring, part)) is not None:
                            found[transfer.group, transfer.peer, int(transfer.sends), transfer.single].append(at)
            self._open[ring.rank] = found
        return self._open[ring.rank]
