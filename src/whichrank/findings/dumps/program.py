"""Ranks that run the same program make the same calls in the same order: where does one depart from the others?

Peers are ranks with the same kinds of groups and the same place in their pipelines. Their calls are compared in the
order in which they were made, all groups together. A rank that is merely behind has made fewer of the same calls; only
one that made *another* call has departed. More than half of the peers decide what the program was; where there is no
such half, the rank's own earlier turns through the same code do.

That finds skipped and added collectives also where equal calls met each other silently, exchanged orders, replicas
that ran out of data, and sends or receives that were left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from whichrank.dump import COLLECTIVE, transfer
from whichrank.findings.dumps.calls import key_of, site
from whichrank.findings.dumps.tracks import (
    AHEAD,
    Track,
    Tracks,
    begins_alike,
    first_difference,
    followers,
    other_program,
    shifted,
)
from whichrank.job.collectives import Collectives, Group, Ring

What = Literal["order", "arguments", "operation", "calls"]
CONTEXT = 6  # calls before a place that make it the same place as an earlier one


@dataclass(frozen=True, slots=True)
class Departure:
    """The first place at which peers did not make the same call.

    odd, others  who made which call
    at, other_at its index in the dump of the first of each; the others' rings may begin elsewhere
    sure         by a majority or by what the code did before; False if one stands against one
    shifted      one side made one call more, and then the same calls as the other
    left_out     that one call more is the others': the odd ones left it out
    """

    what: What
    odd: tuple[int, ...]
    others: tuple[int, ...]
    at: int
    other_at: int
    sure: bool
    by_history: bool
    shifted: bool = False
    left_out: bool = False


class Programs:
    """Which ranks are peers, and where one of them departs."""

    def __init__(self, table: Collectives) -> None:
        self.table = table
        self._tracks = Tracks(table)
        self._kinds: dict[int, tuple[object, ...]] = {}
        self._peers: dict[tuple[object, ...], list[int]] = {}
        self.judged: set[int] = set()  # ranks that could be compared with a peer
        self._p2p = {
            int(group)
            for ring in table.rings.values()
            for group in set(ring.group[ring.dump.kind != COLLECTIVE].tolist())
            if len(table.groups[int(group)].members) < table.world or table.groups[int(group)].own
        }

    def peers(self, rank: int) -> list[int]:
        """Ranks that should make the same calls, this one among them."""
        if not self._peers:
            for other, ring in self.table.rings.items():
                if not ring.active_only:
                    self._peers.setdefault(self._kind(other), []).append(other)
        return self._peers.get(self._kind(rank), [])

    def _kind(self, rank: int) -> tuple[object, ...]:
        if rank not in self._kinds:
            self._kinds[rank] = self._kind_of(rank)
        return self._kinds[rank]

    def _kind_of(self, rank: int) -> tuple[object, ...]:
        ring = self.table.rings[rank]
        mine = [self.table.groups[number] for number in ring.places]
        roles = frozenset(group.role for group in mine if len(group.members) > 1)
        places = frozenset((group.role, _place(ring, group)) for group in mine if group.number in self._p2p)
        return (roles, places)

    def departures(self, ranks: Sequence[int], sites: bool) -> list[Departure]:
        """Of each class of peers to which these ranks belong, its first departure."""
        found = []
        seen: set[tuple[object, ...]] = set()
        for rank in ranks:
            if (
                rank in self.table.rings
                and not self.table.rings[rank].active_only
                and (kind := self._kind(rank)) not in seen
            ):
                seen.add(kind)
                peers = self.peers(rank)
                while peers:
                    departure, peers = self._departure(peers, sites)
                    if departure is not None:
                        found.append(departure)
        return self._agreed(found)

    def _agreed(self, found: list[Departure]) -> list[Departure]:
        """Classes that part at the same two calls part the same way: half against half, they follow the surest."""
        found = [replace(departure, sure=False) if self._split(departure, found) else departure for departure in found]
        votes: Counter[tuple[str, str]] = Counter()
        for departure in found:
            weight = 4 * (departure.sure and not departure.by_history) + departure.sure
            votes[self._names(departure)] += weight
        return [self._turned(departure) if self._outvoted(departure, votes) else departure for departure in found]

    def _split(self, departure: Departure, found: Sequence[Departure]) -> bool:
        """Is its majority one only because a dump is missing? Elsewhere half stands against half over the same calls."""
        if not self.table.missing or departure.by_history or 2 * len(departure.odd) < len(departure.others):
            return False
        pair = set(self._names(departure))
        even = [len(other.odd) == len(other.others) for other in found if set(self._names(other)) == pair]
        return 2 * sum(even) > len(even)

    def _outvoted(self, departure: Departure, votes: Counter[tuple[str, str]]) -> bool:
        odd, others = self._names(departure)
        against = sum(count for (name, _), count in votes.items() if name == others)
        firm = departure.sure and not departure.by_history
        return not firm and against > sum(count for (name, _), count in votes.items() if name == odd)

    def _names(self, departure: Departure) -> tuple[str, str]:
        """Of both calls the operation; of a send or receive without its ends, which differ in each class."""
        one, other = self.table.rings[departure.odd[0]].dump, self.table.rings[departure.others[0]].dump
        names = one.names[int(one.name[departure.at])], other.names[int(other.name[departure.other_at])]
        return names[0].partition(" ")[0], names[1].partition(" ")[0]

    def _turned(self, departure: Departure) -> Departure:
        return replace(
            departure, odd=departure.others, others=departure.odd, at=departure.other_at, other_at=departure.at,
            sure=True, by_history=True,
        )  # fmt: skip

    # ---- one class of peers

    def _departure(self, peers: list[int], sites: bool) -> tuple[Departure | None, list[int]]:
        """Compared with one of them in turn, until it is one that did what most did; and who runs another program."""
        best: Departure | None = None
        strangers: list[int] = []
        for reference in sorted(peers, key=lambda rank: -len(self.table.rings[rank]))[:4]:
            best, strangers = self._against(reference, peers, sites)
            if best is None or reference not in best.odd:
                break
        return best, strangers

    def _against(self, reference: int, peers: list[int], sites: bool) -> tuple[Departure | None, list[int]]:
        base = self._tracks.of(reference, sites)
        shifts, parted, length = {reference: 0}, {}, {reference: len(base.letters)}
        strangers: list[int] = []
        for rank in peers:
            track = self._tracks.of(rank, sites)
            shift = self._tracks.aligned(base, track) if rank != reference else None
            if shift is None:
                continue
            at = first_difference(base.letters, track.letters, shift)
            if at is not None and other_program(base, track, at, shift):
                strangers.append(rank)
                continue
            self.judged.update((rank, reference))
            shifts[rank], length[rank] = shift, min(len(base.letters), len(track.letters) + shift)
            if at is not None:
                parted[rank] = at
        if not parted:
            return None, strangers
        first = min(parted.values())
        apart = sorted(rank for rank, at in parted.items() if at == first)
        same = [rank for rank in length if rank not in apart and length[rank] > first]
        return self._judged(apart, same, shifts, first, sites), strangers

    def _judged(self, apart: list[int], same: list[int], shifts: dict[int, int], first: int, sites: bool) -> Departure:
        """Which of the two sides departed. The first of `same` is who all were compared with, at `first` in its track."""
        odd, others = (same, apart) if len(apart) > len(same) else (apart, same)
        sure, history = 2 * len(odd) <= len(others), False  # 3 against 4 may be one replica against another
        if not sure:
            base, other = self._tracks.of(same[0], sites), self._tracks.of(apart[0], sites)
            before = self._history(base, first, other, first - shifts[apart[0]])
            if before is not None:
                sure = history = True
                odd, others = (same, apart) if before else (apart, same)
        one, at = self._tracks.of(odd[0], sites), first - shifts[odd[0]]
        beside = self.table.groups[int(one.ring.group[one.index[at]])].members
        others = sorted(others, key=lambda rank: (rank not in beside, rank))  # first who was to take part in that call
        other, other_at = self._tracks.of(others[0], sites), first - shifts[others[0]]
        return Departure(
            _what(self.table, one, at, other, other_at),
            tuple(odd),
            tuple(others),
            int(one.index[at]),
            int(other.index[other_at]),
            sure,
            history,
            shifted(one.letters[at:], other.letters[other_at:], 2),
            begins_alike(one.letters[at:], other.letters[other_at + 1 :], 2),
        )

    def _history(self, base: Track, at: int, other: Track, other_at: int) -> bool | None:
        """Which of two calls followed before, in the same place? True: the other's, so the base is odd."""
        mine, theirs = int(base.letters[at]), int(other.letters[other_at])
        for context in (3 * CONTEXT, CONTEXT):
            tally: Counter[int] = Counter()
            for track, end in ((base, at), (other, other_at)):
                tally.update(followers(track.letters, end, context))
            votes_mine, votes_theirs = tally[mine], tally[theirs]
            if votes_mine != votes_theirs and min(votes_mine, votes_theirs) * 3 <= max(votes_mine, votes_theirs):
                return votes_theirs > votes_mine
        seen = set(base.letters[:at].tolist()) | set(other.letters[:other_at].tolist())
        if (mine in seen) != (theirs in seen):
            return mine not in seen  # one of them does something that was never done before
        return None


def _place(ring: Ring, group: Group) -> int:
    """The rank's own number in a group in which it sends and receives: "send 3->4" is said by number 3."""
    if not group.own and ring.rank in group.members:
        return group.members.index(ring.rank)
    dump = ring.dump
    for at in np.flatnonzero((ring.group == group.number) & (dump.kind != COLLECTIVE)):
        if (ends := transfer(dump.names[int(dump.name[at])])) is not None:
            return ends.me
    return -1


def _what(table: Collectives, odd: Track, at: int, others: Track, other_at: int) -> What:
    """How the calls part: exchanged, made otherwise, or left out and added."""
    mine, theirs = odd.letters[at : at + AHEAD], others.letters[other_at : other_at + AHEAD]
    here, there = int(odd.index[at]), int(others.index[other_at])
    one, other = odd.ring.dump, others.ring.dump
    same_group = table.groups[int(odd.ring.group[here])].role == table.groups[int(others.ring.group[there])].role
    rest = min(len(mine), len(theirs)) - 1
    again = rest > 0 and bool((mine[1 : 1 + rest] == theirs[1 : 1 + rest]).all())
    if not same_group and _exchanged(mine.tolist(), theirs.tolist()):
        return "order"
    if same_group and not one.kind[here] and not other.kind[there]:
        key, other_key = key_of(one, here), key_of(other, there)
        if site(odd.ring, here) != site(others.ring, there):
            return "calls"  # from another line it is another call
        if key[0] == other_key[0] and not (shifted(mine, theirs) and not again):
            return "arguments"
        if key[0] != other_key[0] and (again or not rest):
            return "operation"
    return "calls"


def _exchanged(mine: list[int], theirs: list[int]) -> bool:
    """A few calls in another order, and then on as the others. Who left one out also comes to it again, a turn later."""
    both = min(len(mine), len(theirs))
    return any(
        sorted(mine[:few]) == sorted(theirs[:few]) and mine[few:both] == theirs[few:both]
        for few in range(2, min(4, both) + 1)
    )
