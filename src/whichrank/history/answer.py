"""The answer of `history why`: the patterns, the conclusion in words, and the tables that pictures are drawn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from whichrank.history import words
from whichrank.history.incident import History, Incident
from whichrank.history.location import Topology
from whichrank.history.why import SURE, Findings, Pattern, find
from whichrank.uncollected import uncollected

SORTS = {
    **dict.fromkeys(("node", "gpu"), "hardware"),
    **dict.fromkeys(("rank", "place", "local_rank", "role"), "rank"),
    "domain": "domain",
    **dict.fromkeys(("shard", "sample", "step"), "data"),
    **dict.fromkeys(("burst", "window", "service"), "shared_infrastructure"),
    "site": "software",
}
WIDEST = 60  # rows and columns of the heat map


@dataclass(frozen=True, slots=True)
class Why:
    """What is behind a history's incidents.

    says, action   the conclusion and the next thing to do; `commands`: to type
    confidence     posterior of the first pattern; 0 where nothing is found
    """

    history: History
    findings: Findings
    says: str
    action: str
    commands: tuple[str, ...]
    confidence: float

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        return self.findings.patterns

    @property
    def exit_code(self) -> int:
        """1 where a pattern was found, 0 where none was, 2 where there is nothing to look at."""
        if not self.history.runs and not self.history.incidents and self.history.packed is None:
            return 2
        return 1 if self.patterns else 0

    def to_json(self) -> dict[str, Any]:
        """Plain dicts and lists: the answer, what was weighed, and the tables for pictures."""
        found = self.findings
        return {
            "schema_version": 1,
            "says": self.says,
            "action": {"says": self.action, "commands": list(self.commands)},
            "confidence": round(self.confidence, 4),
            "answer": self.patterns[0].kind if self.patterns else "undecided",
            "sort": SORTS[self.patterns[0].kind] if self.patterns else "undecided",
            "name": self.patterns[0].name if self.patterns else None,
            "confounded": list(self.patterns[0].confounded) if self.patterns else [],
            "patterns": [self._pattern(pattern) for pattern in self.patterns],
            "weighed": [self._pattern(pattern) for pattern in found.weighed],
            "posterior": _bars(found),
            "incidents": found.incidents,
            "repeats_merged": found.coalesced,
            "runs": found.runs,
            "hosts": found.hosts,
            "repeats_by_chance": round(found.repeats_by_chance, 4),
            "by": tables(self.history),
            "heat": heat(self.history),
        }

    def _pattern(self, pattern: Pattern) -> dict[str, Any]:
        row = asdict(pattern)
        row["incidents"] = [self.history.incidents[place].key for place in pattern.incidents[:1000]]
        row["says"] = words.says(pattern, self.findings)
        for name in ("posterior", "log_bf", "expected", "tail"):
            row[name] = round(float(row[name]), 6)
        return row


@uncollected()
def why(history: History, topology: Topology | None = None, half_life_days: float | None = None) -> Why:
    """The answer for a history. Never raises on what it holds; "undecided" is an answer."""
    found = find(history, topology, half_life_days)
    if not found.patterns:
        return Why(history, found, words.nothing(found), words.wanted(found), (), 0.0)
    best = found.patterns[0]
    return Why(history, found, words.says(best, found), words.action(best), words.commands(best), best.posterior)


def _bars(found: Findings) -> list[dict[str, Any]]:
    """The best of each kind with its posterior, for bars."""
    best: dict[str, Pattern] = {}
    for pattern in (*found.patterns, *found.weighed):
        if pattern.kind not in best or pattern.posterior > best[pattern.kind].posterior:
            best[pattern.kind] = pattern
    rows = sorted(best.values(), key=lambda pattern: -pattern.posterior)
    return [
        {"kind": one.kind, "name": one.name, "posterior": round(one.posterior, 4), "sure": one.posterior >= SURE}
        for one in rows
    ]


def tables(history: History) -> dict[str, list[dict[str, Any]]]:
    """Incidents counted by node, rank, shard, cause, call site, hour of the day and day; most first."""
    incidents = [one for one in history.incidents if one.cause != "none"]
    counts: Mapping[str, Counter[Any]] = {
        "node": Counter(one.host for one in incidents if one.host),
        "rank": Counter(one.rank for one in incidents if one.rank is not None),
        "shard": Counter(one.shard or one.sample for one in incidents if one.shard or one.sample),
        "cause": Counter(one.cause for one in incidents),
        "site": Counter(one.site for one in incidents if one.site),
        "hour": Counter(_utc(one).hour for one in incidents if one.at is not None),
        "day": Counter(_utc(one).date().isoformat() for one in incidents if one.at is not None),
    }
    return {
        name: [
            {"name": key, "incidents": count}
            for key, count in sorted(found.items(), key=lambda row: (-row[1], str(row[0])))[:1000]
        ]
        for name, found in counts.items()
    }


def _utc(incident: Incident) -> datetime:
    return datetime.fromtimestamp(incident.at or 0.0, timezone.utc)


def heat(history: History) -> dict[str, Any]:
    """Who was blamed when: hosts by incident, in time order; 2 blamed, 1 took part, 0 was not there.

    At most the last 60 incidents, and the 60 hosts that were blamed most, then those that took part most.
    """
    incidents = sorted((one for one in history.incidents if one.cause != "none"), key=lambda one: one.order)[-WIDEST:]
    blamed = Counter(one.host for one in incidents if one.host)
    shown = {one.run for one in incidents}
    placed = {run.id: {host for host, _ in run.placement if host} for run in history.runs if run.id in shown}
    if history.packed is not None:
        placed |= history.packed.hosts_of(shown)
    there = Counter(host for one in incidents for host in placed.get(one.run, ()))
    hosts = sorted({*blamed, *there}, key=lambda host: (-blamed[host], -there[host], host))[:WIDEST]
    cells = [[2 if one.host == host else int(host in placed.get(one.run, ())) for one in incidents] for host in hosts]
    columns = [
        {
            "at": one.at,
            "run": one.run,
            "rank": one.rank,
            "host": one.host,
            "shard": one.shard or one.sample,
            "cause": one.cause,
        }
        for one in incidents
    ]
    return {"hosts": hosts, "incidents": columns, "cells": cells}
