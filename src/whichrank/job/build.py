"""Evidence -> jobs: one clock, known hosts, runs and attempts told apart, every line with its rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from whichrank.evidence import Evidence
from whichrank.facts import MOST_RANKS, Fact, Gap, Identity, Said
from whichrank.job import clocks, coverage, strangers
from whichrank.job.model import NOTHING_TOLD, Job, Told, both, moment
from whichrank.job.people import introduce
from whichrank.job.places import with_hosts
from whichrank.job.segments import segments

if TYPE_CHECKING:
    from whichrank.dump import Dump

_RANKS = ("group_rank", "rank_in_comm", "task", "from_rank", "tasks", "global_ranks", "lagging")


def _possible(who: Identity) -> Identity:
    """Without a rank that no job has: each rank up to the highest would be looked for."""
    return replace(who, rank=None) if who.rank is not None and not 0 <= who.rank < MOST_RANKS else who


def _fact(fact: Fact) -> Fact:
    if (who := _possible(fact.who)) is not fact.who:
        fact = replace(fact, who=who)
    if wrong := [name for name in _RANKS if _beyond(fact.values.get(name))]:
        fact = replace(fact, values={name: value for name, value in fact.values.items() if name not in wrong})
    return fact


def _line(line: Said) -> Said:
    return line if (who := _possible(line.who)) is line.who else replace(line, who=who)


def _beyond(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_beyond, value))
    return isinstance(value, int) and not 0 <= value < MOST_RANKS


def build(evidence: Evidence, told: Told = NOTHING_TOLD) -> list[Job]:
    """One job for each run and attempt that the evidence shows, in time order; always at least one."""
    facts, said = clocks.settle(list(map(_fact, evidence.facts)), list(map(_line, evidence.said)))
    if told.since_ns is not None:
        facts = [fact for fact in facts if fact.at_ns is None or fact.clock == "boot" or fact.at_ns >= told.since_ns]
        said = [line for line in said if line.at_ns is None or line.at_ns >= told.since_ns]
    facts, said, hosts = with_hosts(facts, said, evidence.sources)
    dumps, gaps, assumed = evidence.dumps, evidence.gaps, False
    if dumps:
        from whichrank.job import dump_ranks

        facts, dumps, gaps, assumed = dump_ranks.settle(facts, dumps, gaps)
        hosts |= {fact.who.host for fact in facts if fact.kind == "dump" and fact.who.host}
    jobs = []
    found = segments(facts, said, evidence.sources, told)
    everywhere = hosts
    for label, attempt, sources, some_facts, some_said in found:
        if len(found) > 1:  # each has its own hosts
            hosts = {item.who.host for item in both(some_facts, some_said) if item.who.host} or everywhere
        job = Job(sorted(some_facts, key=moment), some_said, sources, list(gaps), label=label, attempt=attempt)
        job.hosts = hosts
        introduce(job, told)
        if (moved := clocks.aligned(job)) is not None:
            job = Job(sorted(moved[0], key=moment), moved[1], sources, job.gaps, label=label, attempt=attempt)
            job.hosts = hosts
            introduce(job, told)
        if strangers.leave(job):
            job = Job(job.facts, job.said, sources, job.gaps, label=label, attempt=attempt)
            job.hosts = hosts
            introduce(job, told)
        coverage.judge(job)
        if dumps:
            _with_dumps(job, dumps, told)
            if job.table is not None:
                job.table.assumed = assumed
        jobs.append(job)
    return jobs


def _of_the_last_stall(job: Job, dumps: list[Dump]) -> list[Dump]:
    """Without those that were taken at a stall which passed: of what came after it they know nothing."""
    over = max((fact["passed_ns"] for fact in job.of("stall") if isinstance(fact["passed_ns"], int)), default=0)
    kept = [dump for dump in dumps if not 0 < dump.last_ns < over]
    if len(kept) < len(dumps):
        old = next(dump for dump in dumps if 0 < dump.last_ns < over)
        why = f"taken at a stall that passed (one of {len(dumps) - len(kept)}): the job went on after it"
        job.gaps.append(Gap(old.source.path, why, "dumps of the last stall"))
    return kept


def _with_dumps(job: Job, dumps: Sequence[Dump], told: Told) -> None:
    """The dumps that lie beside this job's other evidence, and how many ranks they show it to have."""
    from whichrank.job.collectives import collectives  # with numpy: only where there is a dump

    own = {source.path for source in job.sources}
    since = told.since_ns or 0
    mine = [dump for dump in dumps if dump.source.path in own and not 0 < dump.last_ns < since]
    mine = _of_the_last_stall(job, mine)
    job.table = collectives(mine, told.world_size)
    if job.table is None:
        return
    job.gaps.extend(job.table.gaps)
    if not job.world_told or not job.world_size or job.world_size <= max(job.table.rings):
        job.world_size = max(job.table.world, job.world_size or 0)
        job.world_told = job.world_told or any(
            group.sure and len(group.members) == job.table.world for group in job.table.groups
        )
