"""cuda_oom: a rank ran out of GPU memory."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.causes.base import Cause, Clue, ago, host, outdone, waited
from whichrank.findings import Findings
from whichrank.job.model import Job
from whichrank.model import Check
from whichrank.ranges import several


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    ooms = [failure for failure in found.failed.roots if failure.kind == "cuda_oom"]
    if not ooms:
        return
    first = ooms[0]
    close = [
        failure
        for failure in ooms
        if failure.fact.at_ns is None or first.fact.at_ns is None or abs(failure.fact.at_ns - first.fact.at_ns) < 5e9
    ]
    ranks = tuple(
        sorted(
            {
                failure.rank
                for failure in close
                if failure.rank is not None and failure.rank not in found.arrived.waiting
            }
        )
    )
    ranks = ranks or tuple(sorted({failure.rank for failure in close if failure.rank is not None}))
    tried = f" (tried to allocate {first.fact['tried']})" if first.fact["tried"] else ""
    decisive = found.failed.first is first and first.rank is not None
    yield Clue(
        7.0,
        "traceback",
        f"{several(ranks) if ranks else 'a process'} ran out of GPU memory{tried}{ago(job, found, first.fact)}",
        (first.fact,),
        ranks,
        host(first.host),
        decisive=decisive,
        sure_of_ranks=0.95,
    )
    if set(ranks) & found.arrived.suspects:
        yield Clue(
            1.0,
            "absence",
            f"{several(ranks)} never reached the collective that the others timed out in",
            waited(found),
        )
    yield from outdone(found, first, -2.0)


CAUSE = Cause(
    id="cuda_oom",
    title="out of GPU memory",
    means="An allocation on the GPU failed on one rank, it raised and left; the others wait in the next collective.",
    looks_like="torch.OutOfMemoryError: CUDA out of memory on one rank, some minutes before the others' watchdogs.",
    settles=(
        Check(
            "what filled it: rerun with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True and torch.cuda.memory._record_memory_history(); look at the batch of that step (longest sequence, largest image)"
        ),
    ),
    fix=(
        "Bound the batch by its real cost (tokens, pixels), not by its count: the rank that failed had an unusually large batch, or held memory that the others freed.",
        "Activation checkpointing, a smaller micro-batch, or sharded optimizer state give room; expandable_segments:True helps against fragmentation.",
        "Catch OutOfMemoryError only if *all* ranks then skip the step: a rank that skips alone desynchronises the job.",
    ),
    stopgap="Resume with a smaller micro-batch (and more accumulation).",
    weigh=weigh,
    mechanism="dead",
    verb="ran out of GPU memory",
    dont="raise the timeout: the rank had already left",
)
