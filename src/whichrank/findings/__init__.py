"""Pure functions over the job; `examine` computes all of them once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichrank.facts import Fact
from whichrank.findings.activity import Doing, doings
from whichrank.findings.arrivals import Arrivals, arrivals
from whichrank.findings.call_sites import CallSites, call_sites
from whichrank.findings.compiling import Compiling, compiling
from whichrank.findings.connecting import Unanswered, unanswered
from whichrank.findings.counters import Counters, counters
from whichrank.findings.desync import Mismatch, Sides, mismatch, sides
from whichrank.findings.divergence import Parting, partings
from whichrank.findings.ending import Ending, Limit, ending, limit
from whichrank.findings.exits import FirstSeen, Gone, first_seen, gone
from whichrank.findings.failures import Failures, failures
from whichrank.findings.hints import Hint, hints
from whichrank.findings.hosts import Joined, Span, cards, gpu_faults, storage, window
from whichrank.findings.inspector import Inspected, inspected
from whichrank.findings.laggards import Laggard, laggard
from whichrank.findings.met import Met, met
from whichrank.findings.network import Network, network
from whichrank.findings.oom_kills import oom_kills
from whichrank.findings.operations import Operations, operations
from whichrank.findings.progress import Beat, beats
from whichrank.findings.raised import Raised, raised_apart
from whichrank.findings.received import Received, received
from whichrank.findings.recorded import Recorded, recorded
from whichrank.findings.setup import Setup, setup
from whichrank.findings.stacks import Stacks, stacks
from whichrank.findings.storage_waits import StorageWait, storage_waits
from whichrank.findings.topology import Unlike, unlike
from whichrank.job.model import Job

if TYPE_CHECKING:
    from whichrank.findings.dumps import Told


@dataclass(frozen=True, slots=True)
class Findings:
    """What the causes weigh."""

    arrived: Arrivals
    failed: Failures
    beats: tuple[Beat, ...]
    ending: Ending
    doing: tuple[Doing, ...]
    sides: Sides | None
    called_from: CallSites | None
    mismatch: Mismatch | None
    partings: tuple[Parting, ...]
    raised: Raised | None  # gloo's errors came from two places
    met: Met | None  # all were there in time, on several hosts, and timed out
    received: Received | None  # more bytes than a rank had room for
    stacks: Stacks
    ooms: tuple[Joined, ...]
    storage: tuple[Joined, ...]
    storage_waits: tuple[StorageWait, ...]  # where the kernel holds late ranks and their workers
    gpus: tuple[Joined, ...]
    counters: Counters
    nics: tuple[Fact, ...]
    network: Network
    setup: Setup
    limit: Limit | None
    laggard: Laggard | None
    enqueued: Operations
    compiling: tuple[Compiling, ...]
    inspected: Inspected
    hints: tuple[Hint, ...]  # the framework's own word on slow and sick ranks
    unanswered: tuple[Unanswered, ...]  # connections of the job that wait for an answer
    unlike: tuple[Unlike, ...]  # hosts whose GPUs are joined otherwise than those of their like
    recorded: Recorded | None  # what the ranks' own recorders say
    told: Told | None  # what Flight Recorder dumps say
    window: Span  # when the trouble of a host could have to do with it
    gone: Gone  # whose processes have ended
    first_seen: FirstSeen | None  # the launcher's own first failure, where it is all there is

    @property
    def hung(self) -> Told | None:
        """What the dumps say, where they show a hang."""
        return self.told if self.told is not None and self.told.hang else None


def examine(job: Job) -> Findings:
    enqueued = operations(job)
    told = _by_dumps(job)
    kept = recorded(job)
    arrived = arrivals(job, enqueued, told, kept)
    failed = failures(job, arrived)
    pulse = beats(job)
    span = window(job, arrived)
    counted = counters(job, span[0])
    parties, threads = sides(arrived), stacks(job)
    return Findings(
        arrived,
        failed,
        pulse,
        ending(job, arrived, failed, pulse),
        doings(job, arrived),
        parties,
        call_sites(job, parties, threads),
        mismatch(job),
        partings(job, arrived),
        raised_apart(job) if arrived.waits else None,
        met(job, arrived, kept),
        received(job),
        threads,
        oom_kills(job, arrived, span),
        storage(job, span),
        storage_waits(job, arrived, threads),
        gpu_faults(job, span),
        counted,
        cards(job, span),
        network(job, arrived, span, counted),
        setup(job),
        limit(job, arrived),
        laggard(job),
        enqueued,
        compiling(job, arrived),
        inspected(job),
        hints(job, arrived),
        unanswered(job, span),
        unlike(job),
        kept,
        told,
        span,
        gone(job, arrived),
        first_seen(job, arrived, failed.cascades) if not failed.roots else None,
    )


def _by_dumps(job: Job) -> Told | None:
    if job.table is None:
        return None
    from whichrank.findings.dumps import tell  # with numpy: only where there is a dump

    return tell(job.table, hung=bool(job.of("timeout")))
