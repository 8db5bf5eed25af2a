"""timeout_not_applied: the configured limit is not the one in force."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.causes import straggler
from whichrank.causes.base import Cause, Clue, own_failure
from whichrank.findings import Findings
from whichrank.findings.ending import agreed_limit
from whichrank.job.clocks import span
from whichrank.job.model import Job
from whichrank.model import Check


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    limit = found.limit
    if limit is None:
        return
    group = found.arrived.main.group if found.arrived.main else None
    sub = group is not None and group not in ("0", "default_pg")
    unread = limit.name.upper() == "NCCL_TIMEOUT"
    says = f"{limit.name} asks for {span(limit.wanted_s)}, the watchdog enforces {span(limit.in_force_s)}"
    if unread:
        says += " (nothing reads NCCL_TIMEOUT)"
    if sub:
        says += f" (group {group}: subgroups do not inherit the limit)"
    agreed = agreed_limit(job, found.arrived)
    if agreed is not None:
        yield Clue(-4.0, "setup", f"another setting asks for {span(limit.in_force_s)}, and that is in force", (agreed,))
    yield Clue(
        5.5 if limit.wanted_s > limit.in_force_s else 2.5, "settings", says, (limit.fact, limit.timeout), decisive=False
    )
    doing, ranks = straggler.together(straggler.busy(job, found, *straggler.WORK))
    if doing and limit.wanted_s > limit.in_force_s:
        yield Clue(1.5, "progress", "the slow side was making progress", (doing[0].last,), ranks, sure_of_ranks=0.93)
    yield from own_failure(found, -5.0)
    if found.sides is not None or found.network.transport:
        yield Clue(
            -3.0,
            "watchdog",
            "the limit does not explain what the ranks waited in",
            (found.arrived.first,) if found.arrived.first else (),
        )


CAUSE = Cause(
    id="timeout_not_applied",
    title="the configured timeout is not in force",
    means="A timeout was configured, but the group that timed out has another one: set on the wrong object, in a variable that nothing reads, or not inherited by a subgroup.",
    looks_like="A setting of hours beside a watchdog line with Timeout(ms)=600000.",
    settles=(
        Check(
            "the limits in force: print each group's: torch.distributed.distributed_c10d._get_default_group()._get_backend(torch.device('cuda')).options._timeout"
        ),
    ),
    fix=(
        "Set it where the group is made: init_process_group(timeout=timedelta(…)) before anything else makes the default group, and timeout=… in every new_group() and device mesh: subgroups do not inherit it. NCCL_TIMEOUT is read by nobody.",
    ),
    stopgap="torch.distributed.distributed_c10d._set_pg_timeout(timedelta(…), group) right after the groups are made.",
    weigh=weigh,
    prior=-1.5,
    mechanism="timeout_short",
    verb="ran into a limit other than the one configured",
    dont="raise the same setting again: it does not reach this group",
)
