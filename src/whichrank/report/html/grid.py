"""The grid: ranks down, sequence numbers across, one picture for each group, small enough to be embedded in a page.

Ranks that stand alike are one pattern; a pattern is written as runs of states. So 4,096 ranks that wait in one call for
one rank are two patterns. Only a window of sequence numbers around the hang is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import numpy.typing as npt

from whichrank.dump import NEVER
from whichrank.findings.dumps.waits import Waits
from whichrank.job.collectives import Collectives, Group, Place, Ring
from whichrank.ranges import ranks as rank_ranges
from whichrank.report.html import shown
from whichrank.report.html.shown import Book
from whichrank.report.printable import many

# One letter for each state of a call on one rank. Three that must not be confused: NO_DUMP, GONE, ABSENT.
DONE, WAITING, QUEUED, ABSENT, GONE, NO_DUMP, MADE, UNKNOWN = "DWQAGNMU"
_DONE, _WAITING, _QUEUED, _ABSENT, _GONE, _NO_DUMP, _MADE, _UNKNOWN = range(8)
LETTERS = DONE + WAITING + QUEUED + ABSENT + GONE + NO_DUMP + MADE + UNKNOWN

COLUMNS = 120_000  # over all groups
MOST, LEAST = 1000, 64  # columns of one group
CELLS = 2_000_000  # of one group
GROUPS = 600  # with a grid
EXCEPTIONS = 4000  # cells of a group that hold another call than most of their column
CONTEXT = 12  # columns before the first rank's last call, where ranks are far apart

States = npt.NDArray[np.int8]
Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Grid:
    """One group.

    whose       the members in words
    ranks       runs of members as (first, how many), ascending
    lo          sequence number of the first column
    columns     runs of (call, how many): what most members called; -1 where no ring holds it
    patterns    the different rows as runs, "40D1W"
    rows        runs of (pattern, how many members)
    says        for each pattern, where its ranks stand
    odd         (member, column, call): another call than most of its column made
    differ      those of them that may not differ
    earlier     columns that are left out before `lo`
    """

    number: int
    name: str
    note: str
    whose: str
    ranks: tuple[tuple[int, int], ...]
    lo: int
    columns: tuple[tuple[int, int], ...]
    patterns: tuple[str, ...]
    rows: tuple[tuple[int, int], ...]
    says: tuple[str, ...]
    open: bool
    earlier: int = 0
    odd: tuple[tuple[int, int, int], ...] = ()
    differ: tuple[int, ...] = ()
    more_odd: int = 0


@dataclass(slots=True)
class Grids:
    """All groups that are drawn, the one to open first. left_out: groups for which there was no room."""

    grids: list[Grid] = field(default_factory=list)
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    left_out: int = 0


def grids(
    table: Collectives, waits: Waits, culprits: Iterable[int], apart: int | None = None, verdict: int | None = None
) -> Grids:
    """apart, verdict: numbers of the group in which calls part, and of the one in which most wait."""
    marked = frozenset(culprits)
    chosen, left_out = _chosen(table, waits, marked, apart, verdict)
    width = max(LEAST, min(MOST, COLUMNS // max(1, len(chosen))))
    book = Book()
    found = [_grid(table, waits, group, width, marked, book) for group in chosen]
    return Grids([grid for grid in found if grid is not None], book.entries, left_out)


def _chosen(
    table: Collectives, waits: Waits, marked: frozenset[int], apart: int | None, verdict: int | None
) -> tuple[list[Group], int]:
    """Groups worth a picture: where calls part, where a culprit keeps most waiting, the verdict's, unfinished, large ones."""
    used = {number for ring in table.rings.values() for number, place in ring.places.items() if place.last != NEVER}
    unfinished = {
        int(ring.group[at]) for ring in table.rings.values() for at in ring.open_at[:64] if not ring.dump.kind[at]
    }
    kept: Counter[int] = Counter()
    for rank, unit in waits.held.items():
        if unit.seq != NEVER and rank not in marked and marked.intersection(waits.standing(rank).stands):
            kept[unit.group] += 1 + len(waits.standing(rank).stands) * bool(
                marked.intersection(waits.standing(rank).blockers)
            )
    ordered = sorted(
        (table.groups[number] for number in used),
        key=lambda group: (
            group.number != apart,
            group.number not in kept,
            -kept[group.number],
            group.number != verdict,
            group.number not in unfinished,
            not marked.intersection(group.members),
            -len(group.members),
            group.number,
        ),
    )
    return ordered[:GROUPS], max(0, len(ordered) - GROUPS)


def _window(places: Sequence[Place | None], width: int) -> tuple[int, int, int]:
    """First and last sequence number to show, and how many that some ring holds are left out before."""
    lasts = [place.last for place in places if place is not None and place.last != NEVER]
    firsts = [min(place.first, place.last) for place in places if place is not None and place.last != NEVER]
    hi, oldest = max(lasts), max(0, min(firsts))
    lo = max(oldest, hi - width + 1)
    if min(lasts) - CONTEXT < lo:  # a rank that is far behind has to be seen where it stands
        lo = max(oldest, min(lasts) - CONTEXT, hi - 4 * width)
    return lo, hi, lo - oldest


def _grid(
    table: Collectives, waits: Waits, group: Group, width: int, marked: frozenset[int], book: Book
) -> Grid | None:
    members = sorted({*group.members, *group.maybe})
    rings = [table.rings.get(member) for member in members]
    places = [ring.places.get(group.number) if ring is not None else None for ring in rings]
    if all(place is None or place.last == NEVER for place in places):
        return None
    lo, hi, earlier = _window(places, min(width, CELLS // len(members)))
    states = np.full((len(members), hi - lo + 1), _NO_DUMP, np.int8)
    calls = np.full(states.shape, -1, np.int32)
    keys = np.full(states.shape, -1, np.int32)
    for row, ring in enumerate(rings):
        if ring is not None:
            _fill(ring, group.number, lo, states[row], calls[row], keys[row], book)
    blamed = [rank in marked for rank in members]
    usual, odd, differ, more = _exceptions(calls, keys, np.array(blamed, bool))
    patterns, of = _patterns(states, {(row, column) for row, column, _ in odd}, blamed)
    says = _says(table, waits, group, members, states, of, len(patterns))
    return Grid(
        group.number,
        shown.title(group),
        _note(group, members, table),
        rank_ranges(members, 30),
        tuple(ranges(members)),
        lo,
        tuple(runs(usual.tolist())),
        tuple(_written(pattern) for pattern in patterns),
        tuple(runs(of)),
        tuple(says),
        bool(np.isin(states, (_WAITING, _QUEUED)).any()),
        earlier,
        tuple(odd),
        tuple(differ),
        more,
    )


def _fill(ring: Ring, group: int, lo: int, states: States, calls: Codes, keys: Codes, book: Book) -> None:
    """One rank's row."""
    place = ring.places.get(group)
    if place is None or place.last == NEVER:
        # Not once as far as the ring goes back; whether before that, only a counter could tell.
        states[:] = _UNKNOWN if ring.may_have_lost(group) else _ABSENT
        return
    states[:] = _ABSENT
    states[: max(0, place.last - lo + 1)] = _MADE if ring.active_only else _GONE
    at = ring.calls(group)
    seqs = ring.dump.seq[at].astype(np.int64)
    shown_here = (seqs >= lo) & (seqs < lo + states.shape[-1])  # a broken dump may count in any order
    at, columns = at[shown_here], seqs[shown_here] - lo
    held = ring.open_at[0] if ring.open_at else NEVER
    states[columns] = np.where(ring.dump.open[at], np.where(at <= held, _WAITING, _QUEUED), _DONE)
    call_codes, key_codes = book.codes(ring)
    calls[columns], keys[columns] = call_codes[at], key_codes[at]


def _exceptions(
    calls: Codes, keys: Codes, blamed: npt.NDArray[np.bool_]
) -> tuple[Codes, list[tuple[int, int, int]], list[int], int]:
    """What most members called in each column; who called another; which of these may not differ; how many are left out."""
    usual, usual_keys = _most(calls, blamed), _most(keys, blamed)
    rows, columns = np.nonzero((calls >= 0) & (calls != usual))
    wrong = keys[rows, columns] != usual_keys[columns]
    order = np.lexsort((columns, rows, ~wrong))[:EXCEPTIONS]
    odd = [(int(rows[i]), int(columns[i]), int(calls[rows[i], columns[i]])) for i in order]
    return usual, odd, [place for place, i in enumerate(order) if wrong[i]], max(0, len(rows) - EXCEPTIONS)


def _most(codes: Codes, blamed: npt.NDArray[np.bool_]) -> Codes:
    """The most frequent number of each column, -1 left aside; of two as frequent that of the innocent."""
    found: Codes = codes.max(axis=0, initial=-1)
    lowest = np.where(codes < 0, np.iinfo(np.int32).max, codes).min(axis=0)
    for column in np.flatnonzero((found >= 0) & (lowest != found)):
        here = codes[:, column]
        values, of = np.unique(here[here >= 0], return_inverse=True)
        found[column] = values[np.bincount(of, np.where(blamed[here >= 0], 1.0, 1.0 + 1e-6)).argmax()]
    return found


def _patterns(states: States, odd: set[tuple[int, int]], marked: Sequence[bool]) -> tuple[list[States], list[int]]:
    """The different rows in the order of their first member, and each member's."""
    numbers: dict[object, int] = {}
    patterns: list[States] = []
    of: list[int] = []
    odd_of: dict[int, list[int]] = {}
    for row, column in sorted(odd):
        odd_of.setdefault(row, []).append(column)
    for row in range(len(states)):
        key = (states[row].tobytes(), tuple(odd_of.get(row, ())), marked[row])
        number = numbers.setdefault(key, len(patterns))
        if number == len(patterns):
            patterns.append(states[row])
        of.append(number)
    return patterns, of


def _says(
    table: Collectives,
    waits: Waits,
    group: Group,
    members: Sequence[int],
    states: States,
    of: Sequence[int],
    patterns: int,
) -> list[str]:
    """Where the ranks of each pattern stand."""
    texts: list[dict[str, None]] = [{} for _ in range(patterns)]
    for row, number in enumerate(of):
        if len(texts[number]) < 4:
            texts[number][_standing(table, waits, group, members[row], states[row])] = None
    said = []
    for some in texts:
        first = next(iter(some), "")
        said.append(first if len(some) == 1 else f"{first}, or the like in other groups")
    return said


def _standing(table: Collectives, waits: Waits, group: Group, rank: int, states: States) -> str:
    ring = table.rings.get(rank)
    if ring is None:
        return "no dump of it"
    unit = waits.held.get(rank)
    here = ring.places.get(group.number)
    if unit is not None and unit.group == group.number and unit.seq != NEVER:
        return f"waiting in {shown.call(table, ring, unit.at, False)}"
    last = f"#{here.last} was its last call here" if here is not None and here.last != NEVER else "no call here"
    if bool((states == _QUEUED).any()):
        last = "its calls here stand behind an older one"
    elif not bool((states == _ABSENT).any()):
        last = "has made them all"
    elif bool((states == _UNKNOWN).all()):
        return "its ring does not go back far enough to tell"
    if unit is None:
        return f"{last}; nothing of its own is unfinished"
    return f"{last}; waiting in {shown.call(table, ring, unit.at)}"


def _note(group: Group, members: Sequence[int], table: Collectives) -> str:
    parts = [many(len(members), "rank")]
    if gone := sum(1 for member in members if member not in table.rings):
        parts.append(f"{gone:,} without a dump")
    if group.own:
        parts.append("its name is a number of each process: whether others mean the same group is not on record")
    elif not group.sure:
        parts.append("no dump lists its members: these are the ranks that used it")
    return ", ".join(parts)


def _written(pattern: States) -> str:
    return "".join(f"{count}{LETTERS[state]}" for state, count in runs(pattern.tolist()))


def runs(values: Iterable[int]) -> list[tuple[int, int]]:
    return [(value, sum(1 for _ in same)) for value, same in groupby(values)]


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """
    >>> ranges([0, 1, 2, 8])
    [(0, 3), (8, 1)]
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((number, 1))
    return found
