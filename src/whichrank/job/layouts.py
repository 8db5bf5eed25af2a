"""Which ranks share a group, where dumps do not list members (PyTorch 2.2): what regular layouts are left.

Jobs lay their ranks out as a grid (tensor, data, pipeline …), and a group is all ranks that differ in some of its
dimensions only, or the two ends of one. Of all grids of the job's size those are kept that fit what the dumps show:

- the numbers within a group that sends and receives name, and the size that gathers and scatters show;
- nobody is behind a call that ended on another member;
- members make the same calls at the same numbers, but for one of them;
- each member uses a group of that number.

What several layouts leave open stays open: whoever reasons on them has to come to the same end in all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from whichrank.dump import COLLECTIVE, NEVER, Dump, ends_early, transfer
from whichrank.job.collectives import Collectives, Group, Ring

LARGEST = 4096  # ranks
MOST = 200  # layouts
TRIED = 20_000  # choices of one grid
CALLS = 96  # of each group are compared
UNLIKE = 1  # ranks that may call other things than their group: the one at fault

Index = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Partition:
    """rows: the members of each group, in order; they differ in these axes of a grid.

    Ranks that are in none have no group of this number.
    """

    rows: Index
    axes: frozenset[int]

    @property
    def key(self) -> tuple[int, bytes]:
        return self.rows.shape[1], self.rows.tobytes()


@dataclass(slots=True)
class _Seen:
    """What the dumps show of the groups of one number. By rank; NEVER where nothing is known."""

    users: npt.NDArray[np.bool_]
    done: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]
    letters: npt.NDArray[np.int64]  # rank x call
    size: int | None
    least: int


def layouts(table: Collectives) -> list[Collectives]:
    """The table with members for those groups known by number only in which ranks wait, once for each layout left."""
    own = [group for group in table.groups if group.own]
    waiting = {int(number) for ring in table.rings.values() for number in ring.group[ring.open_at]}
    involved = [at for at, group in enumerate(own) if group.number in waiting]
    if not involved or table.world > LARGEST or len(table.rings) < 2:
        return []
    seen = [_seen(table, group) for group in own]
    present = np.zeros(table.world, bool)
    present[list(table.rings)] = True
    known: dict[tuple[int, bytes], list[bool]] = {}
    found: dict[int, dict[tuple[tuple[int, bytes], ...], list[Partition]]] = defaultdict(dict)
    for dims in _grids(table.world):
        if any(found[fewer] for fewer in range(len(dims))):
            break  # what fewer dimensions explain needs no more
        fits: list[list[Partition]] = [[] for _ in own]
        for partition in _partitions(dims):
            if partition.key not in known:
                known[partition.key] = [_fits(partition, each, present) for each in seen]
            for at, fit in enumerate(known[partition.key]):
                if fit:
                    fits[at].append(partition)
        if prod(map(len, fits)) > TRIED:
            continue
        for chosen in product(*fits):
            keys = tuple(chosen[at].key for at in involved)
            if keys not in found[len(dims)] and _apart(dims, chosen):
                found[len(dims)][keys] = [chosen[at] for at in involved]
    few = next((those for those in found.values() if those), {})
    waited_in = [own[at] for at in involved]
    return [_applied(table, waited_in, chosen) for chosen in few.values()] if len(few) <= MOST else []


def _apart(dims: tuple[int, ...], chosen: Sequence[Partition]) -> bool:
    """Is each dimension there for a reason: in some group, and not always together with another one?"""
    columns = [tuple(axis in partition.axes for partition in chosen) for axis in range(len(dims))]
    return all(map(any, columns)) and len(set(columns)) == len(columns)


# ---- what there could be


def _grids(world: int) -> Iterator[tuple[int, ...]]:
    """Dimensions whose product is the number of ranks, the outermost first: at most four, none of one."""

    def split(rest: int, left: int) -> Iterator[tuple[int, ...]]:
        if rest > 1:
            yield (rest,)
        for first in range(2, rest // 2 + 1) if left > 1 else ():
            if rest % first == 0:
                for others in split(rest // first, left - 1):
                    yield (first, *others)

    yield from sorted(split(world, 4 if world <= 512 else 3), key=len)


def _partitions(dims: tuple[int, ...]) -> Iterator[Partition]:
    """Groups of a grid: all that differ in some dimensions; the two ends of one."""
    grid = np.arange(prod(dims), dtype=np.int32).reshape(dims)
    axes = range(len(dims))
    for chosen in range(1, 1 << len(dims)):
        inner = [axis for axis in axes if chosen >> axis & 1]
        outer = [axis for axis in axes if axis not in inner]
        rows = grid.transpose([*outer, *inner]).reshape(-1, prod(dims[axis] for axis in inner))
        yield Partition(np.ascontiguousarray(rows), frozenset(inner))
    for axis in axes:
        if dims[axis] > 2:
            ends = np.take(grid, [0, dims[axis] - 1], axis)
            rows = np.moveaxis(ends, axis, -1).reshape(-1, 2)
            yield Partition(np.ascontiguousarray(rows), frozenset((axis,)))


# ---- what the dumps show


def _seen(table: Collectives, group: Group) -> _Seen:
    world = table.world
    shown = _Seen(
        users=np.zeros(world, bool), done=np.full(world, NEVER, np.int64), last=np.full(world, NEVER, np.int64),
        place=np.full(world, NEVER, np.int64), letters=np.full((world, CALLS), NEVER, np.int64), size=None, least=2,
    )  # fmt: skip
    first = _window(table, group)
    letters: dict[object, int] = {}
    sizes: set[int] = set()
    for rank, ring in table.rings.items():
        if group.number not in ring.places:
            continue
        shown.users[rank] = True
        calls, dump = ring.calls(group.number), ring.dump
        if len(calls):
            shown.last[rank] = int(dump.seq[calls[-1]])
            early = np.array([ends_early(name) for name in dump.names], bool)
            ended = calls[~dump.open[calls] & ~early[dump.name[calls]]]
            shown.done[rank] = int(dump.seq[ended[-1]]) if len(ended) else NEVER
        for at in calls.tolist():
            column = int(dump.seq[at]) - first
            if 0 <= column < CALLS:
                shown.letters[rank, column] = letters.setdefault(_letter(dump, at), len(letters))
        sizes |= _sizes(ring, group.number)
        _transfers(shown, ring, group.number)
    shown.size = sizes.pop() if len(sizes) == 1 else None
    return shown


def _window(table: Collectives, group: Group) -> int:
    """The first of the numbers that are compared: those before the rank that is furthest behind."""
    lasts = [
        place.last for ring in table.rings.values() if (place := ring.places.get(group.number)) and place.last >= 0
    ]
    return max(0, (sorted(lasts)[len(lasts) // 2] if lasts else 0) - CALLS + 8)


def _letter(dump: Dump, at: int) -> object:
    """What is equal on all members: all-to-alls and gathers differ by right."""
    name, passed = dump.names[int(dump.name[at])], dump.signatures[int(dump.signature[at])]
    if name.startswith(("all_to_all", "alltoall", "scatter", "gather")):
        return name
    return name, passed.inputs, passed.outputs


def _sizes(ring: Ring, group: int) -> set[int]:
    """How many members gathers and scatters show: what comes out is so many times what went in."""
    dump, found = ring.dump, set()
    calls = ring.calls(group)
    for name, signature in {(int(dump.name[at]), int(dump.signature[at])) for at in calls}:
        passed = dump.signatures[signature]
        given, taken = (sum(prod(shape) for shape in shapes) for shapes in (passed.inputs, passed.outputs))
        text = dump.names[name].lstrip("_")
        if text.startswith("all_gather") and given and taken > given and taken % given == 0:
            found.add(taken // given)
        elif text.startswith("reduce_scatter") and taken and given > taken and given % taken == 0:
            found.add(given // taken)
    return found


def _transfers(shown: _Seen, ring: Ring, group: int) -> None:
    dump = ring.dump
    for name in np.unique(dump.name[(ring.group == group) & (dump.kind != COLLECTIVE)]).tolist():
        if (ends := transfer(dump.names[name])) is not None:
            shown.place[ring.rank] = ends.me
            shown.least = max(shown.least, ends.me + 1, ends.peer + 1)


# ---- what fits


def _fits(partition: Partition, seen: _Seen, present: npt.NDArray[np.bool_]) -> bool:
    rows = partition.rows
    used = seen.users[rows]
    here = present[rows]
    mine = used.any(1)
    if not mine.any() or (here & ~used)[mine].any() or seen.users.sum() > used.sum():
        return False
    if rows.shape[1] < seen.least or (seen.size is not None and rows.shape[1] != seen.size):
        return False
    places = seen.place[rows]
    if ((places >= 0) & (places != np.arange(rows.shape[1]))).any():
        return False
    behind = np.where(used, seen.last[rows], np.iinfo(np.int64).max).min(1)
    # 2.2 counts sends and receives with the collectives: who left one out has lower numbers from then on.
    if not (seen.place >= 0).any() and (seen.done[rows].max(1) > behind).any():
        return False
    return _unlike(seen.letters[rows[mine]]) <= UNLIKE


def _unlike(letters: npt.NDArray[np.int64]) -> int:
    """How many members call other things than most of their group. Of the shape groups x members x calls."""
    known = letters >= 0
    count = known.sum(1)
    middle = np.sort(np.where(known, letters, np.iinfo(np.int64).max), axis=1)
    usual = np.take_along_axis(middle, np.maximum(count - 1, 0)[:, None, :] // 2, axis=1)
    return int((known & (letters != usual)).any(2).sum())


# ---- the table with them


def _applied(table: Collectives, own: Sequence[Group], chosen: Sequence[Partition]) -> Collectives:
    groups = list(table.groups)
    number: list[Index] = []
    for group, partition in zip(own, chosen, strict=True):
        of_rank = np.full(table.world, group.number, np.int32)
        for row in partition.rows:
            if not any(int(rank) in table.rings and group.number in table.rings[int(rank)].places for rank in row):
                continue
            members = tuple(row.tolist())
            groups.append(Group(len(groups), group.name, group.desc, members, True, inferred=True))
            of_rank[row] = len(groups) - 1
        groups[group.number] = replace(group, own=False, members=())  # nobody uses it any more
        number.append(of_rank)
    rings = {rank: _renumbered(ring, own, number) for rank, ring in table.rings.items()}
    return replace(table, groups=groups, rings=rings)


def _renumbered(ring: Ring, own: Sequence[Group], number: Sequence[Index]) -> Ring:
    new = {group.number: int(of_rank[ring.rank]) for group, of_rank in zip(own, number, strict=True)}
    group = ring.group.copy()
    for old, at in new.items():
        group[ring.group == old] = at
    return replace(
        ring,
        group=group,
        places={new.get(old, old): place for old, place in ring.places.items()},
        made={new.get(old, old): calls for old, calls in ring.made.items()},
    )
