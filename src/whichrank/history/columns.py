"""A history as columns: one row for each incident, the placement of each run in one flat table, names interned.

Repeats of one failure (the same attempt restarting into the same rank, host and cause within the hour) are one row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whichrank.history.chance import Floats, Ints
from whichrank.history.incident import History, Incident, Run

SAME = 3600.0  # seconds between two failures of one run on one rank that are one event
NONE = -1
NUMBERS = {"rank": "rank", "local": "local_rank", "step": "step", "from_step": "from_step", "shards": "shards"}


@dataclass(slots=True)
class Names:
    """Names <-> numbers, in the order in which they come."""

    of: list[str] = field(default_factory=list)
    number: dict[str, int] = field(default_factory=dict)

    def add(self, name: str | None) -> int:
        if not name:
            return NONE
        found = self.number.get(name)
        if found is None:
            found = self.number[name] = len(self.of)
            self.of.append(name)
        return found

    def all(self, names: Sequence[str | None]) -> Ints:
        """The numbers of many names."""
        numbers = {name: self.add(name) for name in dict.fromkeys(names)}
        return np.fromiter(map(numbers.__getitem__, names), np.int64, len(names))


@dataclass(slots=True)
class Placed:
    """All runs' placements: run r's hosts are host[start[r]:start[r+1]], each once, with its ranks and the first of them."""

    start: Ints
    host: Ints
    ranks: Ints
    first: Ints
    size: Ints  # ranks of each run; 0 where it is not known
    began: Floats
    ended: Floats
    _shares: dict[bytes, Floats] = field(default_factory=dict)

    def shares(self, told: NDArray[np.bool_], hours: Floats, group: Ints | None, count: int) -> Floats:
        """The share of all runs' hours in which a host of each group took part. `group` as in `grouped`."""
        key = b"" if group is None else group.tobytes()
        if key not in self._shares:
            runs = np.flatnonzero(told)
            owner, own = self.grouped(*self.rows(runs), group, count)
            self._shares[key] = np.bincount(own, hours[runs][owner], count) / hours[runs].sum()
        return self._shares[key]

    def grouped(self, owner: Ints, row: Ints, group: Ints | None, count: int) -> tuple[Ints, Ints]:
        """(owner, group) for these rows. `group`: of each host, or NONE; several hosts of one owner's count once.

        None: each host is a group of its own.
        """
        if group is None:
            return owner, self.host[row]
        own = group[self.host[row]]
        return distinct(owner[own >= 0], own[own >= 0], count)

    @property
    def hosts(self) -> Ints:
        return np.diff(self.start)

    def rows(self, runs: Ints) -> tuple[Ints, Ints]:
        """(which of `runs`, row of the table) for every host of each of these runs."""
        lengths = self.hosts[runs]
        owner = np.repeat(np.arange(len(runs)), lengths)
        begin = np.cumsum(lengths) - lengths
        return owner, np.arange(len(owner)) - np.repeat(begin, lengths) + np.repeat(self.start[runs], lengths)


def distinct(owner: Ints, group: Ints, count: int) -> tuple[Ints, Ints]:
    """Each pair of owner and group once. By sorting: that is faster than numpy.unique on millions."""
    keys = np.sort(owner * count + group)
    keys = keys[np.diff(keys, prepend=-1) > 0]
    return keys // count, keys % count


@dataclass(slots=True)
class Columns:
    """`n` incidents. Integers are NONE, times NaN where nothing is known; `place` is the incident's row in the history."""

    place: Ints
    run: Ints
    at: Floats
    cause: Ints
    family: Ints
    rank: Ints
    host: Ints
    local: Ints
    gpu: Ints
    role: Ints
    site: Ints
    step: Ints
    from_step: Ints
    shard: Ints
    shards: Ints
    sample: Ints
    service: Ints
    weight: Floats
    placed: Placed
    names: Mapping[str, Names]

    def __len__(self) -> int:
        return len(self.place)

    def only(self, keep: Ints) -> Columns:
        """The incidents at these rows."""
        own = {name: getattr(self, name)[keep] for name in ROWS}
        return Columns(**own, placed=self.placed, names=self.names)


ROWS = tuple(one.name for one in fields(Columns) if one.name not in ("placed", "names"))


def columns(history: History, half_life_days: float | None = None) -> Columns:
    """The columns of a history, in an order of its own that does not depend on the order of the incidents."""
    names = {name: Names() for name in ("host", "cause", "family", "gpu", "role", "site", "shard", "sample", "service")}
    placed, number = _placed(history, names["host"])
    kept = _merged(history.incidents)
    told = ("run", "at", *names, *NUMBERS.values())
    rows = map(attrgetter(*told), map(history.incidents.__getitem__, kept))
    of = dict(zip(told, zip(*rows, strict=True), strict=True)) if kept else dict.fromkeys(told, ())
    own: dict[str, Any] = {name: names[name].all(of[name]) for name in names}
    own |= {name: _integers(of[field]) for name, field in NUMBERS.items()}
    own |= {
        "place": np.array(kept, dtype=np.int64),
        "run": np.fromiter(map(number.__getitem__, of["run"]), np.int64, len(kept)),
        "at": np.array(of["at"], dtype=np.float64),
    }
    own["weight"] = _weights(own["at"], half_life_days)
    found = Columns(**own, placed=placed, names=names)
    _locals(found)
    return found


def _integers(values: Sequence[int | None]) -> Ints:
    known = np.array(values, dtype=np.float64)  # None becomes NaN
    return np.where(np.isnan(known), NONE, known).astype(np.int64)


def _merged(incidents: Sequence[Incident]) -> list[int]:
    """Their places without the repeats of one failure; sorted by what they are, not by how they came."""
    keys = [(one.run, one.at or 0.0, one.attempt or 0, one.cause) for one in incidents]
    often = Counter(one.run for one in incidents)
    last: dict[tuple[str, int | None, str | None, str], float | None] = {}
    kept = []
    for place in sorted(range(len(incidents)), key=keys.__getitem__):
        one = incidents[place]
        if one.cause == "none":
            continue
        if often[one.run] == 1:
            kept.append(place)
            continue
        key = (one.run, one.rank, one.host, one.cause)
        again = key in last and one.at is not None and (before := last[key]) is not None and one.at - before < SAME
        last[key] = one.at
        if not again:
            kept.append(place)
    return kept


def _placed(history: History, hosts: Names) -> tuple[Placed, dict[str, int]]:
    """All placements in one table, and each run's number in it."""
    packed = history.packed
    known = {run.id for run in history.runs} | set(packed.ids if packed else ())
    missing = sorted({incident.run for incident in history.incidents} - known)
    runs = sorted((*history.runs, *map(Run, missing)), key=lambda run: run.id)
    rows: list[tuple[int, int, int]] = []  # host, its ranks, the first of them
    lengths, sizes = [], []
    for run in runs:
        own: dict[int, int] = {}
        at = 0
        for name, count in run.placement:
            number = hosts.add(name)
            if number == NONE:
                pass  # ranks of which nobody told where they ran
            elif number in own:
                host, before, first = rows[own[number]]
                rows[own[number]] = (host, before + count, first)
            else:
                own[number] = len(rows)
                rows.append((number, count, at))
            at += count
        lengths.append(len(own))
        sizes.append(max(run.world_size, at))
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
    began = np.array([np.nan if run.began is None else run.began for run in runs], dtype=np.float64)
    ended = np.array([np.nan if run.ended is None else run.ended for run in runs], dtype=np.float64)
    start = np.concatenate(([0], np.cumsum(np.array(lengths, dtype=np.int64))))
    size = np.array(sizes, dtype=np.int64)
    ids = [run.id for run in runs]
    more: tuple[Ints, Ints, Ints] = (table[:, 0], table[:, 1], table[:, 2])
    if packed is not None:
        numbers = np.array([hosts.add(name) for name in packed.names], dtype=np.int64)
        sums = np.concatenate(([0], np.cumsum(packed.count)))
        begins = sums[:-1] - np.repeat(sums[packed.start[:-1]], np.diff(packed.start))
        more = (numbers[packed.host], packed.count, begins)
        begin = packed.start
        if not (numbers != NONE).all() and (told := more[0] != NONE).size:  # of some ranks nobody told where they ran
            more = (more[0][told], more[1][told], more[2][told])
            begin = np.concatenate(([0], np.cumsum(told)))[begin]
        if len(table):
            more = (
                np.concatenate((table[:, 0], more[0])), np.concatenate((table[:, 1], more[1])), np.concatenate((table[:, 2], more[2])),
            )  # fmt: skip
        start = np.concatenate((start, start[-1] + begin[1:]))
        size = np.concatenate((size, packed.size))
        began, ended = np.concatenate((began, packed.began)), np.concatenate((ended, packed.ended))
        ids += packed.ids
    placed = Placed(start, *more, size, began, ended)
    return placed, {name: place for place, name in enumerate(ids)}


def _locals(table: Columns) -> None:
    """The host and the local rank where only the rank and the placement are known."""
    placed = table.placed
    homeless = np.flatnonzero((table.host == NONE) & (table.rank >= 0))
    owner, row = placed.rows(table.run[homeless])
    owner = homeless[owner]
    inside = table.rank[owner] - placed.first[row]
    its = (inside >= 0) & (inside < placed.ranks[row])
    table.host[owner[its]] = placed.host[row[its]]

    unplaced = np.flatnonzero((table.local == NONE) & (table.rank >= 0) & (table.host >= 0))
    owner, row = placed.rows(table.run[unplaced])
    owner = unplaced[owner]
    at_home = placed.host[row] == table.host[owner]
    owner, row = owner[at_home], row[at_home]
    inside = table.rank[owner] - placed.first[row]
    fits = (inside >= 0) & (inside < placed.ranks[row])
    table.local[owner[fits]] = inside[fits]


def _weights(at: Floats, half_life_days: float | None) -> Floats:
    """Suspicion ages: after a half-life an incident counts for half. What has no time counts in full."""
    if not half_life_days or not len(at) or np.isnan(at).all():
        return np.ones(len(at))
    age = (np.nanmax(at) - at) / 86400
    return np.where(np.isnan(age), 1.0, 0.5 ** (np.nan_to_num(age) / half_life_days))
