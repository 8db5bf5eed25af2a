"""rank0_only_work: work that one rank does while the others wait."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.causes import straggler
from whichrank.causes.base import Cause, Clue
from whichrank.findings import Findings
from whichrank.job.model import Job
from whichrank.model import Check


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    yield from straggler.talked(job, found, 4.5, "evaluation", "upload", "preprocess", "cleanup")
    stacks = [
        stack
        for stack in straggler.idle_reader(job, found, "tokenising", "upload")
        if stack.kind != "upload" or straggler.uploads(stack)
    ]
    if stacks:
        yield straggler.stood(job, found, stacks, 5.0, "is in work of its own (upload, tokenising)")
    yield from straggler.phased(job, found, 4.0, "evaluation")
    yield from straggler.hinted(job, found, "evaluation")
    doing, ranks = straggler.together(straggler.busy(job, found, "evaluation", "upload", "preprocess", "cleanup"))
    if doing and ranks:  # what it said last is what its own code does
        yield from straggler.phased(job, found, 2.0, "compute", "unknown", "own")
    if doing and ranks and ranks != (0,) and len(ranks) > 1:
        yield Clue(-2.0, "order", "more than one rank does it: it is not one rank's work alone", (doing[0].last,))
    if found.raised is not None and ranks and set(ranks) <= set(found.raised.few):
        facts = (found.raised.few_fact, found.raised.fact)
        yield Clue(-4.0, "stack", f"{found.raised.says}: it is in another collective, not at work alone", facts)
    if doing and found.limit is not None:
        yield Clue(-1.0, "settings", "a longer limit was asked for and is not in force", (found.limit.fact,))


CAUSE = Cause(
    id="rank0_only_work",
    title="work that one rank does while the others wait",
    means="One rank (usually rank 0) does work alone: evaluation, an upload, tokenising, building an index; all others wait in the next collective until their patience ends.",
    looks_like="Only the rank that printed no timeout goes on printing: a progress bar, an evaluation, an upload.",
    settles=(Check("where the rank stands", "ssh {host} 'py-spy dump --nonblocking --pid {pid}'", "{host}"),),
    fix=(
        "Share the work: let every rank do its part (split the evaluation set, tokenise with all processes), or do it before the job starts (tokenise and index offline, upload after the job).",
        "Where one rank must do it alone, let the others wait without a clock: dist.monitored_barrier on a gloo group with its own long timeout, or poll a file or the store.",
    ),
    stopgap="Do that step outside the training job.",
    weigh=weigh,
    prior=-2.0,
    mechanism="host_stuck",
    verb="did work alone while the others waited",
    dont="raise the timeout for everything: only this step needs more time",
)
