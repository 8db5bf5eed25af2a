"""gloo: all ranks met in the same call in good time, and it timed out all the same: nothing got through between hosts.

A rank that comes late makes its call late; one that never comes does not make it, and prints no timeout. Where the dumps
of all ranks end in one call, made at about the same time and by ranks of several hosts, no rank kept the others
waiting. What is left is the path between the hosts, or a limit that is too short for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.facts import Fact
from whichrank.findings.arrivals import Arrivals
from whichrank.job.model import Job


@dataclass(frozen=True, slots=True)
class Met:
    """facts: a timeout of each of two hosts."""

    op: str
    seq: int
    hosts: tuple[str, ...]
    facts: tuple[Fact, ...]


def met(job: Job, arrived: Arrivals) -> Met | None:
    table = job.table
    if table is None or table.backend != "gloo" or table.missing or len(table.rings) < 2:
        return None
    own: dict[int, Fact] = {}
    for fact in job.of("timeout"):
        if fact.rank is not None and fact["backend"] == "gloo" and isinstance(fact["timeout_ms"], int):
            own.setdefault(fact.rank, fact)
    by_host = {where: fact for rank, fact in own.items() if (where := job.host_of(rank)) is not None}
    if len(by_host) < 2 or arrived.suspects:
        return None
    limit = min(fact["timeout_ms"] for fact in own.values()) * 1_000_000
    lasts = {rank: len(ring) - 1 for rank, ring in table.rings.items() if len(ring)}
    groups = {int(table.rings[rank].group[at]) for rank, at in lasts.items()}
    if len(lasts) < len(table.rings) or len(groups) > 1:
        return None
    seqs = {rank: int(table.rings[rank].dump.seq[at]) for rank, at in lasts.items()}
    made = [int(table.rings[rank].dump.created[at]) for rank, at in lasts.items()]
    lowest, highest = min(seqs.values()), max(seqs.values())
    behind = [rank for rank, seq in seqs.items() if seq < highest]
    if highest - lowest > 1 or any(rank not in own for rank in behind) or max(made) - min(made) > limit // 2:
        return None
    ring = table.rings[min(seqs, key=lambda rank: (seqs[rank], rank))]
    op = ring.dump.names[int(ring.dump.name[len(ring) - 1])]
    return Met(op, lowest, tuple(sorted(by_host)), tuple(by_host[where] for where in sorted(by_host)[:2]))
