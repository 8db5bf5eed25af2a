"""Why it keeps happening: the same node, rank, shard … behind the incidents, shared infrastructure, or nothing that shows.

Four questions are asked of the same incidents, each with chance as one of its answers: where (node, GPU, rank, rack …),
what was read (shard, step), when (bursts, hours of the day), what for (call site, service). The strongest pattern is
taken, its incidents are set aside, and the rest is asked again: two causes may be mixed. A pattern is an answer only
where its posterior is high, and the classical test of its kind agrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from whichrank.history import common, confounding, data, location, timing
from whichrank.history.chance import Ints, binomial_tail, hypergeometric_tail, permuted_most
from whichrank.history.columns import Columns, columns
from whichrank.history.incident import History
from whichrank.history.location import Topology
from whichrank.history.model import Kind, Weighed, weigh

SURE, LIKELY = 0.9, 0.75  # posterior of an answer, and of one that is only likely
FEWEST = 3  # incidents of a pattern, and of a history that is asked at all
FALSE = 0.15  # q-value of the classical test: the posterior has paid for the search already
TIMES = 3.0  # the odds of a hit against those of chance: less is no cause worth a name
MOST = 4  # patterns of one history
LARGE = 20_000  # incidents: such a history is asked once, over all causes together
PLACES = ("node", "gpu", "rank", "place", "local_rank", "role", "domain")
SOFTWARE = ("site",)
SHARED = ("burst", "window", "service")
# What explains more precisely comes first: no node knows the step, no rank the hour.
ORDER = (
    "sample",
    "shard",
    "step",
    "domain",
    "gpu",
    "node",
    "window",
    "burst",
    "rank",
    "place",
    "local_rank",
    "role",
    "service",
    "site",
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One thing behind several incidents.

    kind       node, gpu, rank, place, local_rank, role, domain, shard, step, burst, window, service or site
    posterior  of this one; `log_bf`: against chance, before the search is paid for
    hits, of   incidents that it explains, of those that it could have
    expected   hits by chance alone; `tail`: how often chance does as much, all candidates counted
    incidents  their places in the history; `confounded`: what the same runs cannot tell apart from it
    """

    kind: str
    name: str
    posterior: float
    log_bf: float
    hits: int
    of: int
    expected: float
    tail: float
    incidents: tuple[int, ...]
    confounded: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    domain: str = ""
    hosts: int = 0
    family: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """What `find` finds: the patterns that are answers, best first; what was weighed and fell short.

    top_host, top_hits   the node that is blamed most; `repeats_by_chance`: how often chance blames some node as often
    placed               is it known where the runs ran?
    """

    patterns: tuple[Pattern, ...]
    weighed: tuple[Pattern, ...]
    incidents: int
    runs: int
    coalesced: int
    hosts: int
    top_host: str = ""
    top_hits: int = 0
    repeats_by_chance: float = 1.0
    placed: bool = True


def find(history: History, topology: Topology | None = None, half_life_days: float | None = None) -> Findings:
    """All patterns of a history, over all causes together and within each family of causes."""
    table = columns(history, half_life_days)
    topology = topology or {}
    found: list[Pattern] = []
    weighed: list[Pattern] = []
    rest = np.arange(len(table))
    while len(found) < MOST and len(rest) >= FEWEST:
        candidates = list(_candidates(table.only(rest), topology, families=len(table) <= LARGE))
        weighed = weighed or candidates
        answers = [pattern for pattern in candidates if _is_answer(pattern)]
        if not answers and not found:  # better a likely answer, called so, than none
            answers = [pattern for pattern in candidates if _is_answer(pattern, LIKELY)]
        if not answers:
            break
        best = _first(answers)
        found.append(best)
        if best.posterior < SURE:
            break
        if len(table) > LARGE:  # asked once: what is left of so many is much the same
            found += _others(best, answers)
            break
        rest = rest[~np.isin(table.place[rest], np.array(best.incidents))]
    merged = len(history.incidents) - len(table)
    return Findings(
        tuple(found), tuple(sorted(weighed, key=lambda pattern: -pattern.posterior)[:12]), len(table),
        len(history.runs) + (len(history.packed.ids) if history.packed else 0), merged, len(table.names["host"].of),
        *_repeats(table), bool(table.placed.hosts[table.run].any()),
    )  # fmt: skip


def _repeats(table: Columns) -> tuple[str, int, float]:
    """The node that is blamed most, how often, and how often chance would blame some node as often.

    If each run's blame fell on one of its nodes at random: with 10 incidents on 64 nodes some node is blamed twice in
    half of all histories.
    """
    named = np.flatnonzero(table.host >= 0)
    if not len(named):
        return "", 0, 1.0
    counts = np.bincount(table.host[named])
    top = int(counts.argmax())
    most = int(counts[top])
    if len(named) > 2000 or most < 2:
        return table.names["host"].of[top], most, 1.0
    owner, row = table.placed.rows(table.run[named])
    if not len(row):
        return table.names["host"].of[top], most, 1.0
    dice = np.random.default_rng(11)
    spread = np.bincount(owner, minlength=len(named))
    begin = np.cumsum(spread) - spread
    placed = spread > 0
    hits = 0
    for _ in range(500):
        drawn = table.placed.host[row[(begin + dice.random(len(named)) * spread).astype(np.int64)[placed]]]
        hits += int(np.bincount(drawn).max(initial=0)) >= most
    return table.names["host"].of[top], most, hits / 500


def _is_answer(pattern: Pattern, least: float = SURE) -> bool:
    if pattern.posterior < least or pattern.hits < FEWEST or pattern.tail > FALSE:
        return False
    odds = (pattern.hits + 0.5) / (max(0.0, pattern.of - pattern.hits) + 0.5)
    return odds * max(0.0, pattern.of - pattern.expected) >= TIMES * pattern.expected


def _first(answers: list[Pattern]) -> Pattern:
    """The best of several answers: the one whose incidents no more precise one explains as well."""
    for name in ORDER:
        for pattern in sorted((one for one in answers if one.kind == name), key=lambda one: (-one.hits, -one.log_bf)):
            mine = set(pattern.incidents)
            rivals = [one for one in answers if one is not pattern and mine & set(one.incidents)]
            if all(len(mine & set(one.incidents)) >= 0.5 * min(len(mine), len(one.incidents)) for one in rivals):
                return replace(
                    pattern, also=tuple(dict.fromkeys(one.name for one in rivals if one.kind != pattern.kind))
                )
    return max(answers, key=lambda one: one.log_bf)


def _others(best: Pattern, answers: list[Pattern]) -> list[Pattern]:
    """Further answers of the same asking, whose incidents are others."""
    taken = set(best.incidents)
    found: list[Pattern] = []
    for one in sorted(answers, key=lambda one: -one.log_bf):
        if one is not best and len(taken & set(one.incidents)) < 0.2 * len(one.incidents) and len(found) < MOST - 1:
            found.append(one)
            taken |= set(one.incidents)
    return found


def _candidates(table: Columns, topology: Topology, families: bool) -> Iterator[Pattern]:
    """The best of each component, over all incidents and within each larger family of causes."""
    yield from _of_all(table, topology, 1.0, "")
    if not families:
        return
    seen, counts = np.unique(table.family, return_counts=True)
    large = [one for one, count in zip(seen, counts, strict=True) if FEWEST <= count < 0.8 * len(table)]
    for family in large:
        part = table.only(np.flatnonzero(table.family == family))
        yield from _of_all(part, topology, 0.5 / len(large), table.names["family"].of[family])


def _of_all(table: Columns, topology: Topology, share: float, family: str) -> Iterator[Pattern]:
    """`share`: of the prior, where this is one of several ways to cut the same history."""
    places = [_scaled(kind, share) for kind in location.kinds(table, topology)]
    yield from _where(table, weigh(places), topology, family)
    common_kinds = [kind for kind in common.kinds(table) if not family or kind.name != "service"]  # a family shares its
    for kinds in (data.kinds(table), common_kinds):
        yield from _labelled(table, weigh([_scaled(kind, share) for kind in kinds]), family)
    for timed in timing.kinds(table):
        odds = timed.prior * share / (1 - timed.prior * share) * np.exp(min(500.0, timed.log_bf))
        hosts = _hosts(table, timed.rows)
        told = int((table.host[timed.rows] >= 0).sum())
        spread = hosts >= min(3, max(2, told)) if told >= 2 else told == 0
        enough = timed.hits >= 4 if timed.name == "burst" else timed.groups >= 4
        yield Pattern(
            timed.name, timed.label, float(odds / (1 + odds)) if spread and enough else 0.0, timed.log_bf, timed.hits,
            timed.of, timed.expected, timed.tail, _places(table, timed.rows), hosts=hosts, family=family,
        )  # fmt: skip


def _scaled(kind: Kind, share: float) -> Kind:
    return replace(kind, prior=kind.prior * share)


def _hosts(table: Columns, rows: Ints) -> int:
    return len(np.unique(table.host[rows][table.host[rows] >= 0]))


def _places(table: Columns, rows: Ints) -> tuple[int, ...]:
    return tuple(np.sort(table.place[rows]).tolist())


def _pattern(
    table: Columns, kind: Kind, candidate: int, posterior: float, log_bf: float, tail: float, family: str
) -> Pattern:
    rows = np.flatnonzero(kind.hit == candidate)
    domain = kind.note.get("domain", "")
    return Pattern(
        "domain" if domain else kind.name, f"{domain} {kind.labels[candidate]}" if domain else kind.labels[candidate],
        posterior, log_bf, len(rows), max(len(rows), round(float(kind.present[candidate]))), float(kind.expected[candidate]),
        tail, _places(table, rows), domain=domain, hosts=_hosts(table, rows), family=family,
    )  # fmt: skip


def _where(table: Columns, weighed: Weighed, topology: Topology, family: str) -> Iterator[Pattern]:
    """The best place, and with it what the placement cannot tell apart from it."""
    best = _leaders(weighed)
    if not best:
        return
    tails = {number: kind.tails()[1] for number, kind in enumerate(weighed.kinds)}
    patterns = []
    for number, candidate, posterior, log_bf in best:
        kind = weighed.kinds[number]
        tail = float(tails[number][candidate])
        if kind.name == "rank":
            sizes = table.placed.size[table.run][table.rank >= 0]
            sizes = np.maximum(sizes, table.rank[table.rank >= 0] + 1)
            tail = max(tail, permuted_most(sizes, int((kind.hit == candidate).sum())) if len(sizes) else 1.0)
        if kind.note and not table.placed.hosts[table.run].any():
            tail = max(tail, _under_one(table, topology[kind.note["domain"]], kind, candidate))
        patterns.append(_pattern(table, kind, candidate, posterior, log_bf, tail, family))
    yield from confounding.settle(table, patterns, weighed)


def _leaders(weighed: Weighed) -> list[tuple[int, int, float, float]]:
    """The best candidate of each kind: (kind, candidate, posterior, log Bayes factor)."""
    _, firsts = np.unique(weighed.kind, return_index=True)  # they are sorted, the best first
    return [
        (
            int(weighed.kind[place]),
            int(weighed.candidate[place]),
            float(weighed.posterior[place]),
            float(weighed.log_bf[place]),
        )
        for place in np.sort(firsts).tolist()
    ]


def _under_one(table: Columns, homes: Mapping[str, str], kind: Kind, candidate: int) -> float:
    """The hypergeometric tail of the blamed nodes under one domain, times the number of domains."""
    names = table.names["host"].of
    label = kind.labels[candidate]
    hosts = np.unique(table.placed.host[table.placed.rows(np.unique(table.run))[1]])
    known = {int(host) for host in hosts if names[host] in homes}
    blamed = {int(host) for host in np.unique(table.host[table.host >= 0])} & known
    under = {host for host in known if homes[names[host]] == label}
    if not known or not blamed:
        return 1.0
    return min(1.0, hypergeometric_tail(len(blamed & under), len(blamed), len(under), len(known)) * len(kind.labels))


def _labelled(table: Columns, weighed: Weighed, family: str) -> Iterator[Pattern]:
    """The best shard or step; the best site and service."""
    best: dict[str, Pattern] = {}
    for number, candidate, posterior, log_bf in _leaders(weighed):
        kind = weighed.kinds[number]
        hits = int((kind.hit == candidate).sum())
        if kind.name in ("site", "service"):
            tail = binomial_tail(hits, int(max(kind.present[candidate], hits)), float(kind.note["chance"]))
            rows = np.flatnonzero(kind.hit == candidate)
            if _hosts(table, rows) < min(FEWEST, hits) or hits < 0.4 * len(table):
                posterior = 0.0  # on one node it is the node; one site of many is none
        else:
            tail = float(kind.tails()[1][candidate])
        pattern = _pattern(table, kind, candidate, posterior, log_bf, tail, family)
        if kind.name == "step":
            pattern = replace(pattern, posterior=min(1.0, weighed.of("step")) if posterior > 0.05 else posterior)
            if kind.note["near"] != "0":
                pattern = replace(pattern, name=f"{pattern.name} ± {kind.note['near']}")
        if kind.name not in best or pattern.log_bf > best[kind.name].log_bf:
            best[kind.name] = pattern
    yield from best.values()
