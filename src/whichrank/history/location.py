"""Where: the same node, GPU, rank, place in the job, local rank, role, rack or switch behind many incidents.

Chance here is not even: where the blame is wrong it falls on rank 0 more often than on others, whose log is the one
that everybody keeps, and a node's trouble is told by its first rank more often than by its others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from whichrank.history.chance import Floats, Ints, summed
from whichrank.history.columns import NONE, Columns
from whichrank.history.model import SHARES, Kind

Topology = Mapping[str, Mapping[str, str]]  # kind of domain (rack, switch …) -> host -> its domain

TO_RANK_0 = 0.12  # of chance's blame
TO_FIRST = 0.15  # of a node's, on its first rank
MOST_BY_RUNS = 3.0  # what the failures of whole runs may add to a node's log Bayes factor
MOST_BY_TURNS = 2.2  # and where healthy runs are not known
PRIOR = {"node": 0.14, "gpu": 0.05, "rank": 0.07, "place": 0.02, "local_rank": 0.04, "role": 0.02, "domain": 0.08}


def kinds(table: Columns, topology: Topology) -> list[Kind]:
    """All kinds of places, for the incidents that name a rank or a host."""
    where = _Where(table)
    found = [where.nodes(), where.gpus(), where.ranks(), where.last(), where.places(), where.locals(), where.roles()]
    found += [where.domains(name, homes) for name, homes in topology.items()]
    return [kind for kind in found if kind is not None]


def _more_often(here: Floats, total: float, part: Floats, most: float) -> Floats:
    """log-likelihood of so many incidents with and without a node, for each share; at most `most` either way."""
    part = np.clip(part, 1e-9, 1 - 1e-9)
    more = 1 / (1 - SHARES[:, None])
    logs = here * np.log(more / (more * part + 1 - part)) - (total - here) * np.log(more * part + 1 - part)
    return np.asarray(np.clip(logs, -most, most))


class _Where:
    """The incidents' hosts and ranks against what their runs held."""

    def __init__(self, table: Columns) -> None:
        self.table, self.placed = table, table.placed
        self.hosts = table.names["host"].of
        self.owner, self.row = self.placed.rows(table.run)  # one for each host of each incident's run
        self.size = self.placed.size[table.run].astype(np.float64)  # ranks
        self.spread = self.placed.hosts[table.run]  # hosts
        self.told = self.spread > 0
        self.host = table.host
        self.there = self.placed.host[self.row]
        self._own()
        self.by_weight = self._held(table.weight)
        self.by_number = self.by_weight if (table.weight == 1).all() else self._held(np.ones(len(table)))

    def _own(self) -> None:
        """Each incident's own host within its run: how many ranks it has, and which place."""
        many = max(1, len(np.unique(self.host[self.host >= 0])))
        self.share = np.full(len(self.table), 1 / max(2, many))  # chance's blame on that host
        self.on = np.ones(len(self.table))  # ranks there
        self.at = np.full(len(self.table), NONE)  # the host's place in the run
        mine = self.there == self.host[self.owner]
        owner, row = self.owner[mine], self.row[mine]
        self.on[owner] = self.placed.ranks[row]
        self.at[owner] = row - self.placed.start[self.table.run[owner]]
        self.share[owner] = self._blame(owner, row)
        self.home = np.zeros(len(self.table), dtype=bool)
        self.home[owner] = True
        foreign = self.told & ~self.home  # a host that the placement does not hold: as if one more
        self.share[foreign] = 1 / (self.spread[foreign] + 1)
        self._alone()

    def _alone(self) -> None:
        """Runs on one node can blame no other: there the hours of all such runs are what chance goes by."""
        single = self.placed.hosts == 1
        hours = (self.placed.ended - self.placed.began) / 3600
        known = single & np.isfinite(hours)
        self.rate = np.zeros(len(self.hosts))
        self.alone = np.zeros(len(self.table), dtype=bool)
        if not known.any() or not np.isfinite(hours[single]).all() or hours[known].sum() <= 0:
            return
        host = self.placed.host[self.placed.start[:-1][known]]
        self.rate = (
            np.bincount(host, np.maximum(0.0, hours[known]), len(self.hosts)) / np.maximum(0.0, hours[known]).sum()
        )
        self.alone = self.home & (self.spread == 1) & (self.rate[self.host] > 0)
        self.share[self.alone] = self.rate[self.host[self.alone]]

    def _blame(self, owner: Ints, row: Ints) -> Floats:
        """Chance's share of the blame for these hosts of these incidents' runs."""
        return np.asarray(
            (1 - TO_RANK_0) * self.placed.ranks[row] / np.maximum(1, self.size[owner])
            + TO_RANK_0 * (self.placed.first[row] == 0)
        )

    def _kind(self, name: str, labels: list[str], hit: Ints, lift: Floats, present: Floats, expected: Floats) -> Kind:
        return Kind(name, labels, hit, lift, present, expected, self.table.weight, PRIOR[name])

    def nodes(self) -> Kind | None:
        """Blamed on a node, whichever of its ranks: the lift is one over chance's share of that node."""
        count = len(self.hosts)
        if not count:
            return None
        located = (self.host >= 0) & ~self.alone
        weight = self.table.weight
        blame = self._blame(self.owner, self.row)
        if not located.all():
            blame *= located[self.owner]
        expected = summed(self.there, blame, count)
        present = self.by_weight.copy()
        stray = located & ~self.home  # no placement of the run is known
        expected += np.bincount(self.host[stray], self.share[stray], count)
        if self.alone.any():
            present -= np.bincount(self.host[self.alone], weight[self.alone], count)
            present += np.where(self.rate > 0, weight[self.alone].sum(), 0.0)
            expected += self.rate * self.alone.sum()
        kind = self._kind("node", self.hosts, self.host, self._within() / self.share, present, expected)
        return replace(kind, held=self.by_number, extra=self.failing)

    @cached_property
    def failing(self) -> Floats | None:
        """Of each host by itself."""
        return self._failing(None, len(self.hosts))

    def _failing(self, group: Ints | None, count: int) -> Floats | None:
        """Do runs that held a node (or any of its group) fail more often, by the hour, than those without it?

        A bad node that is behind a share `pi` of its runs' incidents makes them 1 / (1 - pi) times as frequent. Jobs
        differ in how often they fail for reasons of their own, and keep their nodes: this alone never decides.
        """
        placed = self.placed
        hours = placed.ended - placed.began
        told = (placed.hosts > 0) & np.isfinite(hours) & (hours > 0)
        failed = np.zeros(len(told), dtype=bool)
        failed[self.table.run] = True
        if told.sum() < 0.8 * len(told) or (told & ~failed).sum() < 3:
            return self._turning_up(count) if group is None else None
        part = placed.shares(told, hours, group, count)
        inside = told[self.table.run].astype(np.float64)
        its, groups = self.placed.grouped(self.owner, self.row, group, count)
        here: Floats = np.bincount(groups, (self.table.weight * inside)[its], count).astype(np.float64)
        return _more_often(here, float((self.table.weight * inside).sum()), part, MOST_BY_RUNS)

    def _turning_up(self, count: int) -> Floats:
        """Without healthy runs: does a node take part in more of the failed ones than the nodes beside it do?

        A scheduler that keeps all nodes of a job tells nothing by that; one that changes the others and not this one
        may have its reasons: it counts for little.
        """
        runs = np.unique(self.table.run)
        owner, row = self.placed.rows(runs)
        host = self.placed.host[row]
        here = np.bincount(host, minlength=count).astype(np.float64)
        spread = self.placed.hosts[runs]
        each = 1 / np.maximum(1, spread - 1)
        # In a run the nodes beside one are together what all are, less itself.
        together = summed(owner, here[host], len(runs)) * each
        beside = summed(host, np.repeat(together, spread), count) - here * summed(host, np.repeat(each, spread), count)
        usual = beside / np.maximum(1, here)
        return _more_often(here, float(len(runs)), usual / max(1, len(runs)), MOST_BY_TURNS)

    def _within(self) -> Floats:
        """How well a node explains the rank that was named on it, against chance's even deal of its ranks."""
        inner = np.ones(len(self.table))
        first = (self.table.local == 0) | (self.table.rank == 0)
        known = (self.table.rank >= 0) & self.home & (self.on > 1)
        inner[known] = ((1 - TO_FIRST) + TO_FIRST * self.on * first)[known]
        even = (1 - TO_RANK_0) * self.on / np.maximum(1, self.size)
        of_zero = self.home & (self.at == 0)
        # on the node of rank 0 chance itself prefers that rank
        chance = np.ones(len(self.table))
        zero = known & of_zero
        total = even + TO_RANK_0
        chance[zero] = (
            np.where(first, even / np.maximum(1, self.on) + TO_RANK_0, even / np.maximum(1, self.on)) / total * self.on
        )[zero]
        return np.asarray(inner / chance)

    def gpus(self) -> Kind | None:
        """One GPU of a node: by its own name where evidence has it, else by the local rank."""
        named = (self.host >= 0) & ((self.table.gpu >= 0) | (self.table.local >= 0)) & (self.on > 1)
        if not named.any():
            return None
        gpus = self.table.names["gpu"].of
        own = np.where(self.table.gpu >= 0, self.table.gpu, len(gpus) + self.table.local)
        width = int(own.max()) + 1
        ids, inverse = np.unique((self.host * width + own)[named], return_inverse=True)
        hit = np.full(len(self.table), NONE)
        hit[named] = inverse
        labels = [self._gpu(int(one) // width, int(one) % width, gpus) for one in ids]
        chance = self._rank_chance()
        times = np.bincount(inverse)
        even = np.bincount(inverse, chance[named]) / times  # of its node's runs, about
        host = ids // width
        kind = self._kind("gpu", labels, hit, 1 / chance, self.by_weight[host], self.by_number[host] * even)
        size = float(len(self.hosts) * max(1.0, self.on[named].max()))
        extra = self.failing[:, host] if self.failing is not None else None
        return replace(kind, size=size, held=self.by_number[host], extra=extra)

    def _gpu(self, host: int, own: int, gpus: list[str]) -> str:
        return (
            f"{gpus[own]} of {self.hosts[host]}" if own < len(gpus) else f"GPU {own - len(gpus)} of {self.hosts[host]}"
        )

    def _held(self, weight: Floats) -> Floats:
        """For each host the weight of the located incidents whose runs held it."""
        located = self.host >= 0
        found = np.bincount(self.there, np.where(located, weight, 0.0)[self.owner], len(self.hosts))
        stray = located & ~self.home
        return np.asarray(found + np.bincount(self.host[stray], weight[stray], len(self.hosts)))

    def _rank_chance(self) -> Floats:
        """Chance's share of the blame for the rank that is named; of the host where none is."""
        size = np.where(self.size > 0, self.size, np.maximum(2, self.table.rank.max(initial=0) + 1))
        one = (1 - TO_RANK_0) / size + TO_RANK_0 * (self.table.rank == 0)
        return np.where(self.table.rank >= 0, one, self.share)

    def ranks(self) -> Kind | None:
        """The same rank number, wherever it ran. Ranks that no incident names are candidates too."""
        rank = self.table.rank
        named = rank >= 0
        if not named.any():
            return None
        size = np.where(self.size > 0, self.size, rank.max() + 1).astype(np.int64)
        ids, inverse = np.unique(rank[named], return_inverse=True)
        hit = np.full(len(rank), NONE)
        hit[named] = inverse
        sizes, weight = size[named], self.table.weight[named]
        order = np.argsort(sizes)
        above = np.concatenate((np.cumsum(weight[order][::-1])[::-1], [0.0]))
        chances = np.concatenate((np.cumsum((1 / sizes[order])[::-1])[::-1], [0.0]))
        at = np.searchsorted(sizes[order], ids, side="right")
        expected = (1 - TO_RANK_0) * chances[at] + np.where(ids == 0, TO_RANK_0 * named.sum(), 0.0)
        kind = self._kind("rank", [f"rank {one}" for one in ids], hit, 1 / self._rank_chance(), above[at], expected)
        return replace(kind, size=float(np.median(sizes)))

    def last(self) -> Kind | None:
        """The last rank of jobs of several sizes: the end of a pipeline, the one with the short batch."""
        named = (self.table.rank >= 0) & (self.size > 1)
        if len(np.unique(self.size[named])) < 2:
            return None
        hit = np.where(named & (self.table.rank == self.size - 1), 0, NONE)
        present = np.array([float(self.table.weight[named].sum())])
        expected = np.array([float(((1 - TO_RANK_0) / self.size[named]).sum())])
        return self._kind("role", ["the last rank"], hit, 1 / self._rank_chance(), present, expected)

    def places(self) -> Kind | None:
        """The n-th node of the job, whichever it is: its ranks have one part of the model, one shard, one duty."""
        named = (self.at >= 0) & (self.spread > 1) & (self.on > 1)
        if not named.any():
            return None
        count = int(self.at[named].max()) + 1
        weight = self.table.weight[named]
        spread = self.spread[named]
        present = np.array([weight[spread > place].sum() for place in range(count)])
        expected = np.array([(1 / spread[spread > place]).sum() for place in range(count)]) * (1 - TO_RANK_0)
        expected[0] += TO_RANK_0 * named.sum()
        hit = np.where(named, self.at, NONE)
        lift = self._within() / self.share
        kind = self._kind("place", [f"node {place} of the job" for place in range(count)], hit, lift, present, expected)
        return replace(kind, size=float(np.median(spread)))

    def locals(self) -> Kind | None:
        """The same local rank on whichever node: a GPU slot, a NUMA node, a NIC by design."""
        named = (self.table.local >= 0) & self.home & (self.on > 1) & (self.spread > 1)
        if not named.any():
            return None
        ids, inverse = np.unique(self.table.local[named], return_inverse=True)
        hit = np.full(len(self.table), NONE)
        hit[named] = inverse
        first = self.table.local == 0
        chance = (1 - TO_RANK_0 - 0.15) / self.on + (TO_RANK_0 + 0.15) * first  # first ranks are named for their nodes
        lift = 1 / chance
        present = np.full(len(ids), float(self.table.weight[named].sum()))
        even = (0.73 / self.on[named]).sum()
        expected = np.where(ids == 0, even + 0.27 * named.sum(), even)
        labels = [f"local rank {one}" for one in ids]
        size = float(self.on[named].max())
        return Kind(
            "local_rank", labels, hit, lift, present, expected, self.table.weight, PRIOR["local_rank"], size=size
        )

    def roles(self) -> Kind | None:
        """The same role by name, as logs or users give it. How many there are is guessed from those seen."""
        role = self.table.role
        names = self.table.names["role"].of
        if not names or not (role >= 0).any():
            return None
        size = max(3.0, float(len(names)))
        many = np.full(len(names), float(self.table.weight[role >= 0].sum()))
        expected = np.full(len(names), (role >= 0).sum() / size)
        return Kind(
            "role", names, role, np.full(len(role), size), many, expected, self.table.weight, PRIOR["role"], size=size
        )

    def domains(self, name: str, homes: Mapping[str, str]) -> Kind | None:
        """Racks, switches, rooms …: the hosts of a domain together."""
        labels = sorted(set(homes.values()))
        number = {label: place for place, label in enumerate(labels)}
        domain = np.array([number[homes[host]] if host in homes else NONE for host in self.hosts], dtype=np.int64)
        if not labels or not len(domain):
            return None
        hit = np.where(self.host >= 0, domain[self.host], NONE)
        rows = (hit >= 0)[self.owner] & (domain[self.placed.host[self.row]] >= 0)
        owner, row = self.owner[rows], self.row[rows]
        key = owner * len(labels) + domain[self.placed.host[row]]
        blame = np.bincount(key, self._blame(owner, row)) if len(key) else np.zeros(0)
        pairs = np.flatnonzero(blame)
        chance = np.minimum(1.0, blame[pairs])
        present = summed(pairs % len(labels), self.table.weight[pairs // len(labels)], len(labels))
        expected = summed(pairs % len(labels), chance, len(labels))
        own = np.ones(len(self.table))
        mine = hit[pairs // len(labels)] == pairs % len(labels)
        own[pairs[mine] // len(labels)] = chance[mine]
        stray = (hit >= 0) & ~self.home
        hit[stray] = NONE
        extra = self._failing(domain, len(labels))
        return Kind(
            name, labels, hit, 1 / own, present, expected, self.table.weight, PRIOR["domain"], note={"domain": name}, extra=extra,
        )  # fmt: skip
