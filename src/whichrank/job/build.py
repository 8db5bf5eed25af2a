"""Evidence -> jobs: one clock, known hosts, runs and attempts told apart, every line with its rank."""

from __future__ import annotations

from whichrank.evidence import Evidence
from whichrank.job import clocks, coverage
from whichrank.job.model import NOTHING_TOLD, Job, Told, moment
from whichrank.job.people import introduce
from whichrank.job.places import with_hosts
from whichrank.job.segments import segments


def build(evidence: Evidence, told: Told = NOTHING_TOLD) -> list[Job]:
    """One job for each run and attempt that the evidence shows, in time order; always at least one."""
    facts, said = clocks.settle(evidence.facts, evidence.said)
    if told.since_ns is not None:
        facts = [fact for fact in facts if fact.at_ns is None or fact.clock == "boot" or fact.at_ns >= told.since_ns]
        said = [line for line in said if line.at_ns is None or line.at_ns >= told.since_ns]
    facts, said, hosts = with_hosts(facts, said, evidence.sources)
    jobs = []
    for label, attempt, sources, some_facts, some_said in segments(facts, said, evidence.sources, told):
        job = Job(sorted(some_facts, key=moment), some_said, sources, list(evidence.gaps), label=label, attempt=attempt)
        job.hosts = hosts
        introduce(job, told)
        coverage.judge(job)
        jobs.append(job)
    return jobs
