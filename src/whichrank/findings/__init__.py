"""Pure functions over the job; `examine` computes all of them once."""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.findings.activity import Doing, doings
from whichrank.findings.arrivals import Arrivals, arrivals
from whichrank.findings.desync import Mismatch, Sides, mismatch, sides
from whichrank.findings.divergence import Parting, partings
from whichrank.findings.ending import Ending, Limit, ending, limit
from whichrank.findings.failures import Failures, failures
from whichrank.findings.hints import Hint, hints
from whichrank.findings.hosts import Joined, Span, gpu_faults, oom_kills, storage, window
from whichrank.findings.laggards import Laggard, laggard
from whichrank.findings.network import Network, network
from whichrank.findings.progress import Beat, beats
from whichrank.findings.stacks import Stacks, stacks
from whichrank.job.model import Job


@dataclass(frozen=True, slots=True)
class Findings:
    """What the causes weigh."""

    arrived: Arrivals
    failed: Failures
    beats: tuple[Beat, ...]
    ending: Ending
    doing: tuple[Doing, ...]
    sides: Sides | None
    mismatch: Mismatch | None
    partings: tuple[Parting, ...]
    stacks: Stacks
    ooms: tuple[Joined, ...]
    storage: tuple[Joined, ...]
    gpus: tuple[Joined, ...]
    network: Network
    limit: Limit | None
    laggard: Laggard | None
    hints: tuple[Hint, ...]  # the framework's own word on slow and sick ranks
    window: Span  # when the trouble of a host could have to do with it


def examine(job: Job) -> Findings:
    arrived = arrivals(job)
    failed = failures(job, arrived)
    pulse = beats(job)
    span = window(job, arrived)
    return Findings(
        arrived,
        failed,
        pulse,
        ending(job, arrived, failed, pulse),
        doings(job, arrived),
        sides(arrived),
        mismatch(job),
        partings(job, arrived),
        stacks(job),
        oom_kills(job, arrived, span),
        storage(job, span),
        gpu_faults(job, span),
        network(job, arrived, span),
        limit(job, arrived),
        laggard(job),
        hints(job, arrived),
        span,
    )
