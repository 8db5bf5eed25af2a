"""What to do in the next five minutes: restart, without which node, from which step, or fix something first.

A node is excluded only on proven hardware or host evidence.
"""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.causes.base import Cause, Clue
from whichrank.facts import Fact
from whichrank.findings import Findings
from whichrank.findings.hosts import CONTAINED_XIDS
from whichrank.job.model import Job
from whichrank.model import Action, Do, Grade
from whichrank.ranges import several

_DO: dict[str, Do] = {
    "slow_data": "restart", "slow_storage": "resume", "slow_checkpoint": "fix_settings", "rank0_only_work": "fix_code", "slow_compute": "restart", "stopped": "needs_human",
    "host_oom": "fix_settings", "cuda_oom": "fix_settings", "exception": "fix_code", "evicted": "resume", "killed": "restart",
    "desync_conditional": "fix_code", "desync_uneven_data": "fix_code", "desync_mismatch": "fix_code", "desync_order": "fix_code",
    "timeout_too_short": "raise_timeout", "timeout_not_applied": "raise_timeout", "network": "needs_human", "init_rendezvous": "fix_settings", "version_mismatch": "fix_settings",
    "p2p_shm": "fix_settings", "gpu_fault": "restart", "gradient_checkpointing": "fix_code", "shared_infrastructure": "resume", "none": "none",
}  # fmt: skip
_HARDWARE = {"gpu_fault", "network"}
_TEXT: dict[str, str] = {
    "restart": "Restart it{step}.",
    "restart_excluding": "Restart without {hosts}{step}.",
    "resume": "Nothing to change: {resume}.",
    "fix_code": "Fix the code first, then {resume}.",
    "fix_settings": "Change the settings first, then restart{step}.",
    "raise_timeout": "Raise this one timeout, then restart{step}.",
    "wait": "Wait, if its logs still grow: up to their end the job was alive.",
    "needs_human": "A person must look at {what} first.",
    "none": "Nothing to do.",
}


def decide(
    job: Job,
    found: Findings,
    cause: Cause,
    grade: Grade,
    ranks: Sequence[int],
    hosts: Sequence[str],
    clues: Sequence[Clue],
) -> Action:
    do = _DO[cause.id]
    exclude: tuple[str, ...] = ()
    proven = grade == "proven" or (grade == "likely" and any(clue.decisive for clue in clues))
    setting = any(clue.kind == "setup" and clue.weight >= 3.0 for clue in clues)
    contained = {fact["code"] for clue in clues for fact in clue.facts if isinstance(fact, Fact) and fact.kind == "xid"}
    if cause.id == "network" and setting:
        do = "fix_settings"  # both ends are sound, they only differ
    elif cause.id == "gpu_fault" and contained and contained <= CONTAINED_XIDS:
        do = "restart"  # the driver has taken the page out of use
    elif (
        (cause.id in _HARDWARE or _own_disk(cause, clues))
        and proven
        and 0 < len(hosts) <= 2
        and len(job.hosts) > len(hosts)
    ):
        do, exclude = "restart_excluding", tuple(hosts)
    elif cause.id == "gpu_fault" and found.network.measured.wrong:
        do = "needs_human"  # it would go on to corrupt data
    elif do == "raise_timeout" and grade not in ("proven", "likely"):
        do = "needs_human"
    elif cause.id == "none" and found.ending.alive:
        do = "wait" if not found.ending.well else "none"
    if (
        cause.id in ("slow_data", "slow_compute", "slow_storage")
        and not found.arrived.waits
        and not found.failed.roots
        and found.stacks.mains
    ):
        do = "needs_human"
    step = last_checkpoint(job)
    where = f" from step {step}, the last checkpoint seen" if step is not None else ""
    if step is None and job.of("checkpoint_saved", "checkpoint_saving", "restored"):
        where = " from the last checkpoint"
    text = _TEXT[do].format(
        step=where,
        resume=f"resume{where}" if where else "start it again",
        hosts=", ".join(exclude),
        what=_where_to_look(ranks, hosts),
    )
    return Action(do, text, grade, exclude, step if do not in ("none", "wait") else None, _commands(job, exclude))


def _where_to_look(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    place = f" on {', '.join(hosts[:3])}" if hosts else ""
    return f"{several(ranks)}{place}" if ranks else ", ".join(hosts[:3]) or "it"


def _own_disk(cause: Cause, clues: Sequence[Clue]) -> bool:
    """A disk of the host itself failed, not a server that all hosts share."""
    facts = [fact for clue in clues for fact in clue.facts if isinstance(fact, Fact)]
    return cause.id == "slow_storage" and any(fact.kind == "io_error" and fact["device"] for fact in facts)


def undecided(job: Job, found: Findings, ranks: Sequence[int]) -> Action:
    step = last_checkpoint(job)
    if found.ending.alive:
        return Action("wait", "If its logs still grow, wait; if not, collect the evidence below.", "undecided")
    return Action(
        "needs_human", "A person must look: collect the evidence below before it is gone.", "undecided", (), step, ()
    )


def last_checkpoint(job: Job) -> int | None:
    """The last checkpoint that the logs show as finished: by all ranks that tell, where each tells of its shard."""
    tellers: dict[int, set[int | None]] = {}
    for fact in job.of("checkpoint_saved"):
        if isinstance(fact["step"], int):
            tellers.setdefault(fact["step"], set()).add(fact.rank)
    most = max((len(ranks) for ranks in tellers.values()), default=0)
    whole = [step for step, ranks in tellers.items() if len(ranks) == most]
    if whole:
        return max(whole)
    restored = [fact["step"] for fact in job.of("restored") if isinstance(fact["step"], int)]
    return restored[-1] if restored else None


def _commands(job: Job, exclude: Sequence[str]) -> tuple[str, ...]:
    if not exclude:
        return ()
    if _kubernetes(job):
        return tuple(f"kubectl cordon {host}" for host in exclude)
    names = ",".join(exclude)
    return (
        f"sbatch --exclude={names} JOB.sbatch",
        f"scontrol update NodeName={names} State=DRAIN Reason=whichrank   # for an administrator",
    )


def _kubernetes(job: Job) -> bool:
    return any(fact.who.pod for fact in job.facts)
