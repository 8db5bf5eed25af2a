"""gloo: all ranks met in the same call in good time, and it did not end: nothing got through between hosts.

A rank that comes late makes its call late; one that never comes does not make it, and prints no timeout. Where the dumps
of all ranks end in one call, made at about the same time and by ranks of several hosts, no rank kept the others waiting.
What is left is the path between the hosts, or a limit that is too short for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichrank.facts import Fact
from whichrank.findings.arrivals import Arrivals
from whichrank.findings.recorded import Recorded
from whichrank.job.model import Job

if TYPE_CHECKING:
    from whichrank.job.collectives import Collectives

LONG = 10.0  # seconds that all ranks' recorders show them waiting


@dataclass(frozen=True, slots=True)
class Met:
    """facts: what shows on each of two hosts that a rank waited long."""

    op: str
    seq: int
    hosts: tuple[str, ...]
    facts: tuple[Fact, ...]


def met(job: Job, arrived: Arrivals, recorded: Recorded | None) -> Met | None:
    table = job.table
    if table is None or table.backend != "gloo" or table.missing or len(table.rings) < 2 or arrived.suspects:
        return None
    waited = _timed_out(job) or _stood(recorded)
    hosts = {where: fact for rank, fact in waited.items() if (where := job.host_of(rank)) is not None}
    if len(hosts) < 2 or (call := _one_call(table, waited)) is None:
        return None
    return Met(*call, tuple(sorted(hosts)), tuple(hosts[where] for where in sorted(hosts)[:2]))


def _timed_out(job: Job) -> dict[int, Fact]:
    """Each rank's own first timeout."""
    found: dict[int, Fact] = {}
    for fact in job.of("timeout"):
        if fact.rank is not None and fact["backend"] == "gloo" and isinstance(fact["timeout_ms"], int):
            found.setdefault(fact.rank, fact)
    return found


def _stood(recorded: Recorded | None) -> dict[int, Fact]:
    waits = recorded.waits if recorded is not None and not recorded.stood else ()
    return {fact.rank: fact for fact in waits if fact.rank is not None and float(fact["seconds"] or 0) >= LONG}


def _patience(fact: Fact) -> float:
    """ns that it had waited."""
    return fact["timeout_ms"] * 1e6 if fact.kind == "timeout" else float(fact["seconds"]) * 1e9


def _one_call(table: Collectives, waited: dict[int, Fact]) -> tuple[str, int] | None:
    """Operation and number of the call that holds them, if it is one of one group for all, and nobody made it late.

    The call before it may still hold some, if these have waited themselves: it had ended for the others.
    """
    oldest = {rank: ring.open_at[0] if ring.open_at else len(ring) - 1 for rank, ring in table.rings.items()}
    return _alike(table, waited, oldest) or _alike(table, waited, {rank: len(table.rings[rank]) - 1 for rank in oldest})


def _alike(table: Collectives, waited: dict[int, Fact], at: dict[int, int]) -> tuple[str, int] | None:
    if min(at.values()) < 0 or len({int(table.rings[rank].group[place]) for rank, place in at.items()}) > 1:
        return None
    numbers = {rank: int(table.rings[rank].dump.seq[place]) for rank, place in at.items()}
    made = [int(table.rings[rank].dump.created[place]) for rank, place in at.items()]
    first, last = min(numbers.values()), max(numbers.values())
    if last - first > 1 or any(rank not in waited for rank, number in numbers.items() if number < last):
        return None
    if max(made) - min(made) > min(map(_patience, waited.values())) / 2:
        return None
    rank = min(numbers, key=lambda rank: (numbers[rank], rank))
    dump = table.rings[rank].dump
    return dump.names[int(dump.name[at[rank]])], first
