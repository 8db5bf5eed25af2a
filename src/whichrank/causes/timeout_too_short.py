"""timeout_too_short: a legitimate operation took longer than the limit, and would have ended."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.causes import straggler
from whichrank.causes.base import Cause, Clue, by_dumps, facts_of, own_failure
from whichrank.findings import Findings
from whichrank.findings.ending import agreed_limit
from whichrank.job.clocks import span
from whichrank.job.model import Job
from whichrank.model import Check
from whichrank.ranges import several


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    if (told := by_dumps(found, "timeout_short")) is not None:
        yield Clue(3.0, "dump", told.says, told.proofs, mechanism="timeout_short")
    limit = found.arrived.timeout_s
    if limit is None or not found.arrived.waits:
        return
    doing = straggler.busy(job, found, *straggler.WORK)
    ended = [(d, ranks) for d, ranks in doing if d.finished and d.after]
    if ended:
        d, ranks = ended[0]
        all_ranks = tuple(sorted({rank for _, some in doing for rank in some}))
        yield Clue(
            5.5,
            "progress",
            f"{several(all_ranks)} finished the work shortly after the {span(limit)} limit had fired",
            (d.last, d.first),
            all_ranks,
            sure_of_ranks=0.93,
        )
    else:
        close = [
            (d, ranks, left)
            for d, ranks in doing
            if (left := d.left_s()) is not None and d.after and left < 0.5 * limit
        ]
        if close:
            d, ranks, left = close[0]
            # A twentieth of the limit from its end, at a steady pace: nothing was stuck.
            weight = 6.0 if left < 0.05 * limit and d.lines >= 5 else 2.5
            yield Clue(weight, "progress", f"{several(ranks)} needed about {span(left)} more", (d.last, d.first), ranks)
    if limit <= 180:
        yield Clue(
            2.0 if doing else 0.8,
            "settings",
            f"the limit in force is only {span(limit)}",
            facts_of((agreed_limit(job, found.arrived), found.arrived.first)),
        )
    yield from own_failure(found, -4.0)


CAUSE = Cause(
    id="timeout_too_short",
    title="a limit too short for a legitimate operation",
    means="Everybody worked, one side just needed longer than the collective's timeout allows, and would have arrived soon (or did).",
    looks_like="The slow side makes steady progress and finishes at or shortly after the moment when the watchdog fires.",
    settles=(Check("how long does it take? Time that step alone; the timeout should be 2-3 times its slowest run"),),
    fix=(
        "Give this one operation its own limit: a process group with timeout=timedelta(…) for that barrier, sized at 2-3 times its slowest run; leave the default for training steps short so that real hangs show.",
        "Balance the work so that all sides finish together.",
    ),
    stopgap="Raise the timeout for this run: init_process_group(timeout=timedelta(minutes=…)), and new_group(…, timeout=…) for subgroups, which do not inherit it.",
    weigh=weigh,
    prior=-2.5,
    mechanism="timeout_short",
    verb="needed longer than the limit allows, and was nearly done",
    dont="look for a fault: everybody worked",
)
