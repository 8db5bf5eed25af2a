"""Which ranks: named by the cause's clues, by a report that names them, or by not having arrived; graded apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whichrank.causes.base import Clue
from whichrank.findings import Findings
from whichrank.findings.recorded import first_gone
from whichrank.job.model import Job
from whichrank.model import Culprit
from whichrank.verdict.scales import Score

# Causes that no rank's absence explains, and those beside which only a firm absence names somebody.
NOBODY_LATE = ("init_rendezvous", "p2p_shm", "exception")
SAY_NOTHING_OF_WHO = (
    "gradient_checkpointing",
    "timeout_not_applied",
    "timeout_too_short",
    "desync_order",
    "version_mismatch",
)
FIRM = 0.7


@dataclass(frozen=True, slots=True)
class Accused:
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    confidence: float


def accuse(job: Job, found: Findings, score: Score | None) -> Accused:
    """The ranks that the cause's clues name; else those that a report names or that did not arrive."""
    arrived = found.arrived
    by_dumps = score is not None and any(clue.kind == "dump" and clue.ranks for clue in score.support)
    if score is not None and not score.cause.blames_ranks and not by_dumps:
        hosts = tuple(dict.fromkeys(host for clue in score.support[:3] for host in clue.hosts))
        return Accused((), hosts, 0.0)
    if score is not None:
        naming = [clue for clue in score.support if clue.ranks and clue.weight >= 1.0]
        if naming:
            lead = naming[0]
            sure = lead.sure_of_ranks
            same = [clue for clue in naming[1:] if set(clue.ranks) == set(lead.ranks)]
            if same:
                sure = 1 - (1 - sure) * 0.4
            if arrived.waits and set(lead.ranks) & arrived.waiting and not same:
                sure = min(sure, 0.85)
            if _named(found, lead):
                sure = max(sure, 0.96)
            ranks = _whole_host(job, found, score, lead)
            hosts = tuple(dict.fromkeys(host for host in (job.host_of(rank) for rank in ranks) if host)) or lead.hosts
            return Accused(ranks, hosts, min(sure, 0.98, _supposed(found, ranks)))
        hosts = tuple(dict.fromkeys(host for clue in score.support[:3] for host in clue.hosts))
    else:
        hosts = ()
    ranks, sure = _not_arrived(job, found)
    if score is not None and (score.cause.id in NOBODY_LATE or (score.cause.id in SAY_NOTHING_OF_WHO and sure < FIRM)):
        ranks, sure = (), 0.0
    if score is not None and score.cause.id.startswith("desync"):
        ranks, sure = (), 0.0
    hosts = hosts or tuple(dict.fromkeys(host for host in (job.host_of(rank) for rank in ranks) if host))
    return Accused(ranks, hosts, sure)


def _whole_host(job: Job, found: Findings, score: Score, lead: Clue) -> tuple[int, ...]:
    """A disk that stalls holds all ranks of its host, though the kernel names only those it looked at."""
    suspects = found.arrived.suspects
    host = lead.hosts[0] if len(lead.hosts) == 1 else None
    if (
        score.cause.id == "slow_storage"
        and lead.kind == "kernel"
        and host
        and set(lead.ranks) < suspects
        and all(job.host_of(rank) == host for rank in suspects)
    ):
        return tuple(sorted(suspects))
    return tuple(sorted(lead.ranks))


def _named(found: Findings, lead: Clue) -> bool:
    """Does a report name them as well? Dumps that say so twice say it once."""
    named = [named for named in found.arrived.named if lead.kind != "dump" or named.by != "Flight Recorder"]
    return any(set(one.ranks) == set(lead.ranks) for one in named)


def _not_arrived(job: Job, found: Findings) -> tuple[tuple[int, ...], float]:
    """Who did not reach the collective, by reports that name them or by silence, and how sure that is."""
    arrived = found.arrived
    if arrived.named:
        best = max(arrived.named, key=lambda named: named.sure)
        return best.ranks, best.sure
    if found.stacks.odd and all(stack.rank is not None for stack in found.stacks.odd):
        return tuple(sorted(stack.rank for stack in found.stacks.odd if stack.rank is not None)), 0.85
    if (seen := found.first_seen) is not None and not arrived.waits:
        return ((), 0.0) if seen.victim or seen.fact.rank is None else ((seen.fact.rank,), seen.sure)
    if not arrived.waits:
        died = {fact.rank for fact in found.failed.exits if fact["launcher"] == "ray" and fact.rank is not None}
        if len(died) == 1:
            return tuple(died), 0.8  # Ray names the actor that it lost
        gone = first_gone(job)
        return ((gone.rank,), 0.7) if gone is not None and gone.rank is not None else ((), 0.0)
    if not job.world_size or found.sides is not None or _all_took_part(found):
        return (), 0.0
    suspects = arrived.suspects - _unknown(job, found)
    if not suspects or len(suspects) * 2 > job.world_size or len(arrived.waiting) < 2:
        return (), 0.0
    sure = 0.85 if job.world_told else 0.6
    if arrived.doubtful:
        sure -= 0.2
    if suspects - arrived.heard:
        sure = min(sure, 0.7 if len(arrived.waiting) >= 3 else 0.5)
    if arrived.lossy:
        sure = min(sure, 0.55)
    if len(suspects) > 1:
        sure = min(sure, 0.7)
    return tuple(sorted(suspects)), sure


def _all_took_part(found: Findings) -> bool:
    """Do dumps show that even those took part in the calls of whom nothing is known?"""
    return found.told is not None and found.told.traced.mechanism in ("timeout_short", "network")


def _unknown(job: Job, found: Findings) -> frozenset[int]:
    """Ranks that left neither a dump of this run nor a line, where the dumps do not point at them."""
    told = found.hung
    if told is None or told.table is None or told.traced.culprits:
        return frozenset()
    heard = {
        rank
        for rank, info in job.ranks.items()
        if info.said or any(fact.kind not in ("dump", "member") for fact in info.facts)
    }
    awaited = set(told.traced.candidates) if told.traced.mechanism == "dead" else set()
    return (told.table.missing - heard) - awaited


def _supposed(found: Findings, ranks: Sequence[int]) -> float:
    """The most that a name is worth which rests on groups or ranks that dumps do not list."""
    told = found.hung
    by_logs = any(named.by != "Flight Recorder" and set(named.ranks) == set(ranks) for named in found.arrived.named)
    if told is None or not told.supposed or set(told.traced.culprits) != set(ranks) or by_logs:
        return 1.0
    return told.traced.sure


def culprit(job: Job, rank: int) -> Culprit:
    info = job.ranks.get(rank)
    return Culprit(rank, info.host if info else None, info.pid if info else None)


def victims(job: Job, found: Findings, accused: Accused) -> tuple[int, ...]:
    if not accused.ranks and not found.arrived.waiting:
        return ()
    everyone = job.everyone() if accused.ranks else found.arrived.waiting
    if found.told is not None:  # of a rank that left neither a dump nor a line nobody knows
        everyone = set(job.ranks) | found.arrived.waiting if accused.ranks else found.arrived.waiting
    return tuple(sorted(set(everyone) - set(accused.ranks)))
