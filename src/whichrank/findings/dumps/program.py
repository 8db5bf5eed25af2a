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

from whichrank.dump import BATCH, COLLECTIVE, Dump
from whichrank.findings.dumps.calls import key_for, key_of, site
from whichrank.job.collectives import Collectives, Group, Ring

What = Literal["order", "arguments", "operation", "calls"]
CONTEXT = 6  # calls before a place that make it the same place as an earlier one
FEW = 16  # calls among which the first common one is looked for before all others
MATCH = 3  # calls in a row that must agree for two rings to be aligned


@dataclass(frozen=True, slots=True)
class Departure:
    """The first place at which peers did not make the same call.

    odd, others: who made which call; at, other_at: its index in the dump of the first of each (the others may have it
    elsewhere: their rings begin elsewhere); sure: by a majority or
    by what the code did before; False if one stands against one.
    """

    what: What
    odd: tuple[int, ...]
    others: tuple[int, ...]
    at: int
    other_at: int
    sure: bool
    by_history: bool
    shifted: bool = False  # one side made one call more, and then the same calls as the other


@dataclass(slots=True)
class _Track:
    """One rank's calls in order. letters: what must be equal among peers."""

    ring: Ring
    index: np.ndarray
    letters: np.ndarray
    where: dict[int, int] | None = None  # place of each mark, once it was asked for


class _Letters(dict[int, int]):
    """Letters of dumps whose tables are the same, by one number for role, name, shapes, stack and sort of call."""

    def __init__(self, like: Dump, known: dict[tuple[object, ...], int]) -> None:
        """known: the letters of all dumps, so that those with other tables can be compared too."""
        self.like, self.known = like, known

    def of(self, dump: Dump, role: np.ndarray, index: np.ndarray, sites: bool) -> np.ndarray:
        code = role * len(dump.names) + dump.name[index]
        code = code * len(dump.signatures) + dump.signature[index]
        code = code * len(dump.sites) + (dump.site[index] if sites else 0)
        code = code * 2 + (dump.kind[index] == COLLECTIVE)
        return np.array([*map(self.__getitem__, code.tolist())], np.int32)

    def __missing__(self, code: int) -> int:
        dump = self.like
        code_, collective = divmod(code, 2)
        code_, site = divmod(code_, len(dump.sites))
        code_, signature = divmod(code_, len(dump.signatures))
        role, name = divmod(code_, len(dump.names))
        passed = dump.signatures[signature]
        called: object = key_for(dump.names[name], passed) if collective else (*_distance(dump.names[name]), passed)
        letter = (role, called, dump.sites[site])
        self[code] = self.known.setdefault(letter, len(self.known))
        return self[code]


class Programs:
    """The tracks of a job's ranks, made when asked for."""

    def __init__(self, table: Collectives) -> None:
        self.table = table
        self._letters: dict[tuple[object, ...], int] = {}
        self._books: dict[tuple[int, ...], _Letters] = {}
        roles: dict[object, int] = {}
        self._roles = np.array([roles.setdefault(group.role, len(roles)) for group in table.groups], np.int64)
        self._kinds: dict[int, tuple[object, ...]] = {}
        self._peers: dict[tuple[object, ...], list[int]] = {}
        self._tracks: dict[tuple[int, bool], _Track] = {}
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
        votes: Counter[tuple[str, str]] = Counter()
        for departure in found:
            weight = 4 * (departure.sure and not departure.by_history) + departure.sure
            votes[self._names(departure)] += weight
        return [self._turned(departure) if self._outvoted(departure, votes) else departure for departure in found]

    def _outvoted(self, departure: Departure, votes: Counter[tuple[str, str]]) -> bool:
        odd, others = self._names(departure)
        against = sum(count for (name, _), count in votes.items() if name == others)
        firm = departure.sure and not departure.by_history
        return not firm and against > sum(count for (name, _), count in votes.items() if name == odd)

    def _names(self, departure: Departure) -> tuple[str, str]:
        one, other = self.table.rings[departure.odd[0]].dump, self.table.rings[departure.others[0]].dump
        return one.names[int(one.name[departure.at])], other.names[int(other.name[departure.other_at])]

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
        base = self._track(reference, sites)
        shifts, parted, length = {reference: 0}, {}, {reference: len(base.letters)}
        strangers: list[int] = []
        for rank in peers:
            track = self._track(rank, sites)
            shift = self._aligned(base, track) if rank != reference else None
            if shift is None:
                continue
            at = _first_difference(base.letters, track.letters, shift)
            if at is not None and _other_program(base, track, at, shift):
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
            base, other = self._track(same[0], sites), self._track(apart[0], sites)
            before = self._history(base, first, other, first - shifts[apart[0]])
            if before is not None:
                sure = history = True
                odd, others = (same, apart) if before else (apart, same)
        one, other = self._track(odd[0], sites), self._track(others[0], sites)
        at, other_at = first - shifts[odd[0]], first - shifts[others[0]]
        return Departure(
            _what(self.table, one, at, other, other_at),
            tuple(odd),
            tuple(others),
            int(one.index[at]),
            int(other.index[other_at]),
            sure,
            history,
            _shifted(one.letters[at:], other.letters[other_at:], 2),
        )

    def _history(self, base: _Track, at: int, other: _Track, other_at: int) -> bool | None:
        """Which of two calls followed before, in the same place? True: the other's, so the base is odd."""
        mine, theirs = int(base.letters[at]), int(other.letters[other_at])
        for context in (3 * CONTEXT, CONTEXT):
            tally: Counter[int] = Counter()
            for track, end in ((base, at), (other, other_at)):
                tally.update(_followers(track.letters, end, context))
            votes_mine, votes_theirs = tally[mine], tally[theirs]
            if votes_mine != votes_theirs and min(votes_mine, votes_theirs) * 3 <= max(votes_mine, votes_theirs):
                return votes_theirs > votes_mine
        seen = set(base.letters[:at].tolist()) | set(other.letters[:other_at].tolist())
        if (mine in seen) != (theirs in seen):
            return mine not in seen  # one of them does something that was never done before
        return None

    def _track(self, rank: int, sites: bool) -> _Track:
        if (rank, sites) not in self._tracks:
            self._tracks[rank, sites] = self._made(self.table.rings[rank], sites)
        return self._tracks[rank, sites]

    def _made(self, ring: Ring, sites: bool) -> _Track:
        dump = ring.dump
        index = np.flatnonzero(dump.kind != BATCH).astype(np.int32)
        tables = (id(dump.names), id(dump.signatures), id(dump.sites))
        book = self._books.get(tables)
        if book is None:
            book = self._books[tables] = _Letters(dump, self._letters)
        return _Track(ring, index, book.of(dump, self._roles[ring.group[index]], index, sites))

    def _marks(self, track: _Track, upto: int | None = None) -> list[int]:
        """Role and number of each collective in one number, -1 for other calls."""
        index, dump = track.index[:upto], track.ring.dump
        marks = self._roles[track.ring.group[index]] * (1 << 40) + dump.seq[index]
        return np.where(dump.kind[index] == COLLECTIVE, marks, -1).tolist()  # type: ignore[no-any-return]

    def _aligned(self, base: _Track, track: _Track) -> int | None:
        """How far `track` has to be moved to stand beside `base`: by the first common collective."""
        if base.where is None:
            base.where = {mark: at for at, mark in enumerate(self._marks(base)) if mark >= 0}
        for upto in (FEW, None):  # it is nearly always one of the first
            for at, mark in enumerate(self._marks(track, upto)):
                there = base.where.get(mark)
                if there is None:
                    continue
                run = min(MATCH, len(base.letters) - there, len(track.letters) - at)
                if (base.letters[there : there + run] == track.letters[at : at + run]).all():
                    return there - at
        return None


def _place(ring: Ring, group: Group) -> int:
    """The rank's own number in a group in which it sends and receives: "send 3->4" is said by number 3."""
    if not group.own and ring.rank in group.members:
        return group.members.index(ring.rank)
    dump = ring.dump
    for at in np.flatnonzero((ring.group == group.number) & (dump.kind != COLLECTIVE)):
        me = dump.names[int(dump.name[at])].partition(" ")[2].partition("->")[0].partition("<-")[0]
        if me.isdecimal():
            return int(me)
    return -1


def _distance(text: str) -> tuple[str, int]:
    """
    >>> _distance("send 3->4"), _distance("recv 3<-2")
    (('send', 1), ('recv', -1))
    """
    what, _, ends = text.partition(" ")
    me, _, peer = ends.partition("->" if what == "send" else "<-")
    return (what, int(peer) - int(me)) if me.isdecimal() and peer.isdecimal() else (text, 0)


def _first_difference(base: np.ndarray, letters: np.ndarray, shift: int) -> int | None:
    start, end = max(0, shift), min(len(base), len(letters) + shift)
    different = np.flatnonzero(base[start:end] != letters[start - shift : end - shift])
    return int(different[0]) + start if len(different) else None


def _other_program(base: _Track, track: _Track, at: int, shift: int) -> bool:
    """Does one of them make a call again and again that the other never makes? Then it is no slip.

    Looked at is what both rings hold.
    """
    start, end = max(0, shift), min(len(base.letters), len(track.letters) + shift)
    one, other = base.letters[start:end], track.letters[start - shift : end - shift]
    return any(
        np.count_nonzero(mine == mine[at - start]) >= 2 and not (theirs == mine[at - start]).any()
        for mine, theirs in ((one, other), (other, one))
    )


def _followers(letters: np.ndarray, end: int, context: int) -> list[int]:
    """What came, in earlier turns, after the calls that stand right before `end`."""
    if end < context:
        return []
    wanted = letters[end - context : end]
    if end - 1 < context:
        return []
    places = np.lib.stride_tricks.sliding_window_view(letters[: end - 1], context)
    return [int(letters[at + context]) for at in np.flatnonzero((places == wanted).all(axis=1))]


def _what(table: Collectives, odd: _Track, at: int, others: _Track, other_at: int) -> What:
    """How the calls part: exchanged, made otherwise, or left out and added."""
    ahead = 12
    mine, theirs = odd.letters[at : at + ahead], others.letters[other_at : other_at + ahead]
    here, there = int(odd.index[at]), int(others.index[other_at])
    one, other = odd.ring.dump, others.ring.dump
    same_group = table.groups[int(odd.ring.group[here])].role == table.groups[int(others.ring.group[there])].role
    rest = min(len(mine), len(theirs)) - 1
    again = rest > 0 and bool((mine[1 : 1 + rest] == theirs[1 : 1 + rest]).all())
    shifted = _shifted(mine, theirs)
    if not same_group and len(mine) > 1 and len(theirs) > 1 and mine[0] in theirs[1:4] and theirs[0] in mine[1:4]:
        return "order"
    if same_group and not one.kind[here] and not other.kind[there]:
        key, other_key = key_of(one, here), key_of(other, there)
        if site(odd.ring, here) != site(others.ring, there):
            return "calls"  # from another line it is another call
        if key[0] == other_key[0] and not (shifted and not again):
            return "arguments"
        if key[0] != other_key[0] and (again or not rest):
            return "operation"
    return "calls"


def _shifted(mine: np.ndarray, theirs: np.ndarray, least: int = 1) -> bool:
    """Does one side make one call more, and then at least so many of those that the other makes?"""
    mine, theirs = mine[:12], theirs[:12]
    return any(
        min(len(one), len(more) - 1) >= least and _prefix(one, more[1:])
        for one, more in ((mine, theirs), (theirs, mine))
    )


def _prefix(one: np.ndarray, other: np.ndarray) -> bool:
    size = min(len(one), len(other))
    return size > 0 and bool((one[:size] == other[:size]).all())


def by_rank(departures: Sequence[Departure]) -> dict[int, Departure]:
    found: dict[int, Departure] = {}
    for departure in departures:
        for rank in departure.odd:
            found.setdefault(rank, departure)
    return found
