"""desync_order: two groups used in opposite order."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.causes.base import RECORD, Cause, Clue, by_dumps, own_failure
from whichrank.facts import Fact
from whichrank.findings import Findings
from whichrank.findings.call_sites import at_one_line
from whichrank.job.model import Job
from whichrank.model import Check
from whichrank.ranges import several


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    if found.sides is not None and found.sides.what == "group" and len(found.sides.parties) == 2:
        (a, a_wait), (b, b_wait) = found.sides.parties
        yield Clue(
            5.5,
            "watchdog",
            f"{several(a)} waited in group {a_wait.group} ({a_wait.op} #{a_wait.seq}), {several(b)} in group {b_wait.group} ({b_wait.op} #{b_wait.seq}): each side in the other's next group",
            (a_wait.fact, b_wait.fact, *_status(job, a_wait.rank, b_wait.rank)),
            mechanism="deadlock",
        )
    crossed = found.enqueued.inverted
    if crossed is not None and not found.ending.well:
        yield Clue(
            5.5 if crossed.only_last else 4.0,
            "operations",
            f"by NCCL's own list {several(crossed.first)} called communicator {crossed.names[0]} last, {several(crossed.second)} {crossed.names[1]}: the two in opposite order",
            crossed.facts,
            mechanism="deadlock",
        )
    if (told := by_dumps(found, "deadlock")) is not None:
        traced = told.traced
        # Who left a call out, or ran out of data, waits in the others' next group as well: only calls that both sides
        # made, in another order, tell the two apart.
        both = traced.departure is not None and traced.departure.what == "order"
        yield Clue(
            6.2 if both else 4.2, "dump", told.says, told.proofs, traced.culprits, decisive=traced.sure >= 0.95, mechanism="deadlock",
            sure_of_ranks=traced.sure,
        )  # fmt: skip
    yield from _at_one_line(job, found)
    yield from own_failure(found, -3.0)


def _at_one_line(job: Job, found: Findings) -> Iterator[Clue]:
    """Dumps without lines show that calls of two groups are crossed, stacks that one line makes both: it goes through
    them in another order. Who leaves a call out comes to the next one from another line."""
    told = by_dumps(found, "desync")
    if told is None or not told.traced.crossed:
        return
    traced = told.traced
    if facts := at_one_line(job, sorted({*traced.culprits, *traced.in_main}), found.stacks):
        yield Clue(
            4.6, "dump", told.says, told.proofs, traced.culprits, mechanism="deadlock", sure_of_ranks=traced.sure
        )
        says = "all of them stand in one line of the program, which calls the groups in turn"
        yield Clue(3.0, "stack", says, facts[:2], mechanism="deadlock")


def _status(job: Job, *ranks: int | None) -> list[Fact]:
    """The lines that name the groups."""
    return [fact for rank in ranks for fact in job.of("pg_status") if fact.rank == rank and fact.group][:2]


CAUSE = Cause(
    id="desync_order",
    title="two groups used in opposite order",
    means="Two process groups that share ranks were used in another order by some ranks: each side waits for the other in its own group, for ever.",
    looks_like="Some ranks wait in one group, the rest in another, and both groups contain both sides.",
    settles=(
        Check(
            "both orders, with the lines that call, the next time: Flight Recorder dumps of all ranks",
            f"export {RECORD}",
        ),
    ),
    fix=(
        "Issue collectives of different groups in one fixed order on all ranks; put independent ones on their own streams and threads only if that order is fixed too.",
        "CUDA_DEVICE_MAX_CONNECTIONS=1 (Megatron) keeps the launch order of overlapping communication.",
    ),
    stopgap="Disable the overlap of the two groups' communication.",
    weigh=weigh,
    mechanism="deadlock",
    blames_ranks=False,
    verb="two groups were used in opposite order",
    dont="raise the timeout: it is a deadlock",
)
