"""exception: a rank's own uncaught error."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.causes import straggler
from whichrank.causes.base import Cause, Clue, ago, host, one, outdone, waited
from whichrank.findings import Findings
from whichrank.findings.failures import Failure
from whichrank.job.model import Job, before
from whichrank.model import Check
from whichrank.ranges import several

# These have causes of their own.
OTHERS = re.compile(
    r"requires_grad=True|does not require grad|mark(?:ed)? (?:a variable )?(?:as )?ready (?:only once|twice)|/dev/shm|bus error|DataLoader worker|CUDA error|cudaError|HIP error|NCCL(?! built in)|cuDNN error|CUBLAS_STATUS|"
    r"DataLoader timed out|no socket interface|Expected to have finished reduction",
    re.I,
)


def own(found: Findings) -> list[Failure]:
    """Uncaught exceptions that no other cause claims, in time order."""
    return [
        failure
        for failure in found.failed.roots
        if failure.kind == "exception" and not OTHERS.search(failure.says + str(failure.fact["message"] or "")[:300])
    ]


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    errors = own(found)
    if not errors:
        return
    first = errors[0]
    alike = [
        failure for failure in errors if failure.fact["type"] == first.fact["type"] and _same_place(failure, first)
    ]
    ranks = tuple(sorted({failure.rank for failure in alike if failure.rank is not None}))
    everyone = len(ranks) > 1 and len(ranks) >= len(job.everyone()) - 1
    if first.rank is None:
        outside = _outsider(job, found, first)
        silent = found.arrived.suspects
        lone = tuple(silent) if not outside and len(silent) == 1 and _precedes(found, first) else ()
        weight = 5.0 if outside else 4.5 if lone else 3.5
        says = f"{'a process outside the ranks' if outside else 'a process'} raised {first.says}{ago(job, found, first.fact)}"
        asking = [
            stack
            for stack in found.stacks.mains
            if stack.kind in ("upload", "subprocess") and not straggler.uploads(stack)
        ]
        stuck = [stack.fact for stack in asking]
        if outside and asking:
            yield Clue(
                2.0,
                "stack",
                f"{several([s.rank for s in asking if s.rank is not None])} waits for an answer from another process",
                (asking[0].fact,),
            )
        yield Clue(
            weight,
            "traceback",
            says,
            (first.fact, *stuck[:1]),
            lone,
            host(first.host),
            sure_of_ranks=0.8,
            mechanism="host_stuck" if found.arrived.waits else "dead",
        )
    else:
        before_all = found.failed.first is first
        guilty = ranks if everyone else tuple(one(first.rank))
        weight = 6.8 if before_all and not everyone else 5.0
        yield Clue(
            weight,
            "traceback",
            f"{several(guilty)} raised {first.says}{ago(job, found, first.fact)}{', before any other failure' if before_all else ''}",
            (first.fact,),
            guilty,
            host(first.host),
            decisive=before_all,
            sure_of_ranks=0.95,
        )
        if first.rank in found.arrived.waiting and not everyone:
            yield Clue(-1.5, "watchdog", f"rank {first.rank} also waited in a collective", (first.fact,))
        if first.rank in found.arrived.suspects:
            yield Clue(
                1.0,
                "absence",
                f"rank {first.rank} is among those that never reached the collective",
                waited(found),
            )
    yield from outdone(found, first, -2.5)


def _precedes(found: Findings, failure: Failure) -> bool:
    return found.arrived.first is not None and before(found.arrived.first, failure.fact) is not True


def _same_place(a: Failure, b: Failure) -> bool:
    return a.fact["site"] == b.fact["site"] or str(a.fact["message"])[:40] == str(b.fact["message"])[:40]


def _outsider(job: Job, found: Findings, failure: Failure) -> bool:
    """A file that no rank speaks in: a server, a data service."""
    source = failure.fact.spot.source
    return not any(source in info.sources for info in job.ranks.values()) and bool(job.ranks)


CAUSE = Cause(
    id="exception",
    title="an uncaught error in the program",
    means="A rank raised an exception of its own and left the collective sequence; the others wait for it, or are torn down with it.",
    looks_like="A Python traceback on one rank before any timeout; the others time out or report closed connections.",
    settles=(
        Check(
            "the whole traceback, with torchrun's error file: wrap main() with torch.distributed.elastic.multiprocessing.errors.record and rerun: the failing rank's traceback lands in error_file"
        ),
    ),
    fix=(
        "Fix the error at {site}.",
        "Let every rank learn of it at once instead of after a timeout: catch at the top of main(), log, `dist.destroy_process_group()` (or abort), and exit non-zero.",
    ),
    stopgap="If the input caused it (one record, one file), skip that input on *all* ranks and resume from the last checkpoint.",
    weigh=weigh,
    mechanism="dead",
    verb="raised an error and left",
    dont="raise the timeout: the rank would not have come back",
)
