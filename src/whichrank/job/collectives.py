"""Flight Recorder dumps of one incident, laid side by side: each rank's calls, under groups that all ranks share.

A process numbers and names its groups by itself; the same group is found on all ranks by its name and members. The
counters of a group are compared within it only. Three things are kept apart: a rank without a dump, a call that a ring
no longer holds, a call that was not made.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from whichrank.dump import BATCH, COLLECTIVE, NEVER, PART, SINGLE, Dump, GroupOf, purpose
from whichrank.facts import Gap
from whichrank.job.gloo_ends import reopen
from whichrank.job.latest_dumps import one_a_rank

_NONE = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Group:
    """members: global ranks, in the group's own order.

    sure    a dump lists the members; else they are the ranks that were seen to use it
    maybe   ranks without a dump that may belong to it as well
    own     its name is a process's own number: what other ranks call so need not be this group
    inferred  no dump lists its members: they follow from how the ranks use it (layouts.py)
    nth     which it is of the groups of one purpose that the same ranks have made
    """

    number: int
    name: str
    desc: str
    members: tuple[int, ...]
    sure: bool
    maybe: tuple[int, ...] = ()
    own: bool = False
    inferred: bool = False
    nth: int = 0

    @property
    def title(self) -> str:
        return purpose(self.desc) or f"group {self.name}"

    @property
    def role(self) -> tuple[str, int, int, int]:
        """What makes groups comparable: their purpose if it is named, else the stride of their ranks; their size."""
        if self.own or self.inferred:
            return (f"number {self.name}", len(self.members), 0, self.nth)
        if named := purpose(self.desc):
            return (named, len(self.members), 0, self.nth)
        stride = self.members[1] - self.members[0] if len(self.members) > 1 else 0
        return ("", len(self.members), stride, self.nth)


@dataclass(frozen=True, slots=True)
class Place:
    """What one rank's ring holds of one group's collectives. first, last: sequence numbers, NEVER if it holds none."""

    first: int
    last: int


MANY = 6  # sends and receives of one rank at a time: a pipeline has hardly more in flight
UNUSED = Place(NEVER, NEVER)


@dataclass(slots=True)
class Ring:
    """One rank's dump, its groups numbered as in the whole job.

    places: by group. open_at: indices of unfinished units (parts of a batch under their batch), oldest first.
    """

    rank: int
    dump: Dump
    group: np.ndarray
    places: dict[int, Place]
    open_at: list[int]
    active_only: bool
    made: dict[int, np.ndarray]  # of each group, the indices of its collectives
    surely: int = 1 << 60  # entries before this one that look ended have succeeded

    def ended(self, at: int) -> bool:
        return not self.dump.open[at] and at < self.surely

    def __len__(self) -> int:
        return len(self.dump)

    def may_have_lost(self, group: int) -> bool:
        """Does it show nothing of a group that it may have used before the oldest call that it still holds?"""
        dump = self.dump
        return dump.overflowed and not self.active_only and group not in self.places and not dump.status

    def find(self, group: int, seq: int) -> int | None:
        """Index of a collective, None if the ring does not hold it."""
        calls, place = self.calls(group), self.places.get(group)
        if place is None or not len(calls):
            return None
        # They are numbered one after the other as a rule: looked for first where it then must be.
        numbers, at = self.dump.seq, len(calls) - 1 - place.last + seq
        if (
            0 <= at < len(calls)
            and numbers[calls[at]] == seq
            and (at + 1 == len(calls) or numbers[calls[at + 1]] > seq)
        ):
            return int(calls[at])
        found = np.flatnonzero(numbers[calls] == seq)
        return int(calls[found[-1]]) if len(found) else None

    def calls(self, group: int) -> np.ndarray:
        """Indices of the collectives of a group, in order."""
        return self.made.get(group, _NONE)

    def parts(self, at: int) -> range:
        """The sends and receives of a unit: of a batch its parts, else itself."""
        dump = self.dump
        if dump.kind[at] == SINGLE:
            return range(at, at + 1)
        first = at
        while first and dump.kind[first - 1] == PART and dump.p2p_seq[first - 1] == dump.p2p_seq[at]:
            first -= 1
        return range(first, at)


@dataclass(slots=True)
class Collectives:
    """All dumps of one incident. world: the job's size as far as groups and ranks show it."""

    rings: dict[int, Ring]
    groups: list[Group]
    world: int
    gaps: list[Gap] = field(default_factory=list)
    start_events: bool = False
    frames: bool = False
    backend: str = "nccl"
    assumed: bool = False  # which rank a dump is of rests on the order of folders

    @property
    def missing(self) -> frozenset[int]:
        """Ranks without a dump."""
        return frozenset(range(self.world)) - set(self.rings)

    @property
    def last_ns(self) -> int:
        return max((ring.dump.last_ns for ring in self.rings.values()), default=NEVER)


def collectives(dumps: Sequence[Dump], world: int | None = None) -> Collectives | None:
    """The job's table; None where no dump says whose it is."""
    gaps: list[Gap] = []
    chosen = one_a_rank(dumps, gaps)
    if not chosen:
        return None
    size = max(dump.rank for dump in dumps if dump.rank is not None) + 1  # a leftover too says how many there are
    if world and world < size:
        why = f"told to be {world:,}, but there is a dump of rank {size - 1}: {size:,} are taken to be there"
        gaps.append(Gap("the number of ranks", why, "the right one, with --world-size"))
    listed = {group.members for dump in chosen.values() for group in dump.groups if group.members}
    size = max(size, world or 0, *(max(members[0], members[-1], *_irregular(members)) + 1 for members in listed))
    groups, numbers = _groups(chosen, size)
    active = _active_only(chosen)
    _without_leftovers(chosen, active)
    rings = {rank: _ring(rank, dump, numbers[rank], rank in active) for rank, dump in sorted(chosen.items())}
    reopen(rings, groups)
    return Collectives(
        rings,
        groups,
        size,
        gaps,
        start_events=any(bool((dump.started > 0).any()) for dump in chosen.values() if dump.backend != "gloo"),
        frames=any(len(dump.sites) > 1 for dump in chosen.values()),
        backend=Counter(dump.backend for dump in chosen.values()).most_common(1)[0][0],
    )


def _active_only(chosen: dict[int, Dump]) -> set[int]:
    """Dumps that hold only unfinished calls: asked for so, or of a rank that has none while its peers' are so."""
    shown = {rank: dump for rank, dump in chosen.items() if len(dump)}
    only = {rank for rank, dump in shown.items() if bool(dump.open[dump.kind != PART].all()) and _skips(dump)}
    if 2 * len(only) > len(shown):
        only |= {rank for rank, dump in chosen.items() if not len(dump) and dump.status}
    return only


def _without_leftovers(chosen: dict[int, Dump], active: set[int]) -> None:
    """Parts of a batch stay scheduled for ever, though the batch has ended.

    Where only unfinished calls were asked for, they are there and what closed them is not.
    """
    many = sum(int((chosen[rank].open & (chosen[rank].kind == SINGLE)).sum()) >= MANY for rank in active)
    # Not even one end of a batch may be among them: then most ranks hold more of its parts than can ever be under way.
    if 2 * many > len(active) or any(bool((dump.kind == BATCH).any()) for dump in chosen.values()):
        for rank in active:
            chosen[rank].open &= chosen[rank].kind != SINGLE


def _skips(dump: Dump) -> bool:
    """Are earlier calls of its groups known to have ended, though the ring has place for more?"""
    done = any(status.completed > 0 for status in dump.status.values())
    return done and len(dump) < 2000


# ---- groups


def _groups(chosen: dict[int, Dump], world: int) -> tuple[list[Group], dict[int, list[int]]]:
    """All groups, and for each rank the job's number of each of its own."""
    found: dict[tuple[object, ...], int] = {}
    users: dict[int, set[int]] = defaultdict(set)
    first: list[GroupOf] = []
    numbers: dict[int, list[int]] = {}
    for rank, dump in chosen.items():
        mine = []
        for group, key in zip(dump.groups, _keys(dump.groups), strict=True):
            number = found.setdefault(key, len(found))
            if number == len(first):
                first.append(group)
            mine.append(number)
            users[number].add(rank)
        numbers[rank] = mine
    groups = []
    for number, group in enumerate(first):
        members = group.members and tuple(group.members)
        if members is None and (group.name in ("0", "") or group.desc == "default_pg"):
            members = tuple(range(world))
        own = members is None and group.name == str(group.pg_id) and not group.desc
        groups.append(
            Group(number, group.name, group.desc, members or tuple(sorted(users[number])), bool(members), own=own)
        )
    return _counted(_completed(groups, set(range(world)) - set(chosen))), numbers


def _irregular(members: tuple[int, ...] | range) -> tuple[int, ...]:
    return members if isinstance(members, tuple) else ()


def _counted(groups: list[Group]) -> list[Group]:
    """Groups of one purpose and the same members are told apart by the order in which all ranks made them: their names'."""
    alike: dict[tuple[object, ...], list[Group]] = defaultdict(list)
    for group in groups:
        if not group.own and not group.inferred and len(group.members) > 1:
            alike[group.role, group.members].append(group)
    nth = {
        group.number: place
        for equal in alike.values()
        if len(equal) > 1 and all(group.name.isdecimal() for group in equal)
        for place, group in enumerate(sorted(equal, key=lambda group: int(group.name)))
    }
    return [replace(group, nth=nth[group.number]) if nth.get(group.number) else group for group in groups]


def _completed(groups: list[Group], missing: set[int]) -> list[Group]:
    """Where no dump lists the members, ranks without a dump may be among them: in groups smaller than their like."""
    largest: dict[str, int] = defaultdict(int)
    for group in groups:
        if not group.sure:
            largest[group.desc] = max(largest[group.desc], len(group.members))
    alike = Counter(group.desc for group in groups if not group.sure)
    absent = tuple(sorted(missing))
    return [
        replace(group, maybe=absent)
        if absent
        and not group.sure
        and not group.own
        and (alike[group.desc] == 1 or len(group.members) < largest[group.desc])
        else group
        for group in groups
    ]


def _keys(groups: Iterable[GroupOf]) -> list[tuple[object, ...]]:
    """The same on every member: name and members; where names are a process's own numbers, members and which of such.

    A format that lists no members (the bare list) leaves the number alone, which only the default group shares.
    """
    keys: list[tuple[object, ...]] = []
    equal: Counter[tuple[int, ...] | range] = Counter()
    for group in groups:
        own_number = group.name == str(group.pg_id) and not group.desc
        if group.members is None:
            keys.append((group.name, group.desc))
        elif own_number:
            keys.append((group.members, equal[group.members]))
            equal[group.members] += 1
        else:
            keys.append((group.name, group.members))
    return keys


# ---- rings


def _ring(rank: int, dump: Dump, numbers: list[int], active_only: bool) -> Ring:
    group = np.array(numbers, np.int32)[dump.group] if len(dump) else np.zeros(0, np.int32)
    places: dict[int, Place] = {}
    made: dict[int, np.ndarray] = {}
    collectives = np.flatnonzero(dump.kind == COLLECTIVE).astype(np.int32)
    by_group = collectives[np.argsort(group[collectives], kind="stable")]
    used, first = np.unique(group[by_group], return_index=True)
    for number, at in zip(used.tolist(), np.split(by_group, first[1:]), strict=bool(len(used))):
        made[number] = at
        places[number] = Place(int(dump.seq[at[0]]), int(dump.seq[at[-1]]))
    places = {number: places.get(number, UNUSED) for number in sorted(set(group.tolist()))}
    if active_only or not all(number in places for number in numbers):
        _from_status(dump, numbers, places)
    open_at = np.flatnonzero(dump.open & (dump.kind != PART))
    return Ring(rank, dump, group, places, open_at.tolist(), active_only, made)


def _from_status(dump: Dump, numbers: list[int], places: dict[int, Place]) -> None:
    """How far a group went of which the ring holds nothing, or only what is unfinished.

    pg_status counts by a process's own number of the group; numbers grow in the order of creation, as do names.
    """
    known = {group.pg_id: number for group, number in zip(dump.groups, numbers, strict=True) if group.pg_id != NEVER}
    pairs = {pg_id: known[pg_id] for pg_id in dump.status if pg_id in known}
    if len(dump.status) == len(dump.groups) and all(group.name.isdecimal() for group in dump.groups):
        ordered = sorted(range(len(dump.groups)), key=lambda at: int(dump.groups[at].name))
        guess = {pg_id: numbers[at] for pg_id, at in zip(sorted(dump.status), ordered, strict=True)}
        if all(guess[pg_id] == number for pg_id, number in pairs.items()):
            pairs = guess
    for pg_id, number in pairs.items():
        enqueued = dump.status[pg_id].enqueued
        if places.get(number, UNUSED).last == NEVER and enqueued > 0:
            places[number] = Place(enqueued + 1, enqueued)
