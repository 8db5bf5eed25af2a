"""Which of a cause's checks are still open: what they would collect may lie among the evidence already.

A kernel log that is here and says nothing has answered its check; one that ends before the incident has not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from whichrank.causes.base import RECORD
from whichrank.facts import Fact
from whichrank.findings import Findings
from whichrank.job.clocks import DAY, iso
from whichrank.job.model import Item, Job, when
from whichrank.model import Check
from whichrank.ranges import several
from whichrank.verdict.who import Accused

_POD_FACTS = ("container_exit", "pod_oom", "pod_evicted", "pod_preempted", "node_event")
Given = Callable[[Job, Findings, Accused], bool | str]


def still_open(checks: Iterable[Check], job: Job, found: Findings, accused: Accused) -> list[Check]:
    """The checks whose answer is not here; where what is here falls short, the check says how."""
    left: list[Check] = []
    for check in checks:
        answers = [given(job, found, accused) for pattern, given in _GIVEN if pattern.search(check.command)]
        if True in answers:
            continue
        short = next((answer for answer in answers if answer), "")
        left.append(replace(check, says=f"{check.says} ({short})") if short else check)
    return left


# What needs a process that still runs.
_LIVE = re.compile(r"py-spy dump|/proc/(?:\{pid\}|PID)/|--ppid")


def possible(checks: Iterable[Check], job: Job, found: Findings, accused: Accused) -> list[Check]:
    """The checks that can still be made: whoever has ended has no stack any more. Said instead is what is left."""
    checks = list(checks)
    if not any(map(_live, checks)):
        return checks
    ends = [found.gone.of(rank) for rank in accused.ranks] or [found.gone.job]
    if any(end is None for end in ends):
        cut = found.gone.aborted
        told = f"if it still runs: the timeout ends ranks that waited, {_place(cut)}" if cut is not None else ""
        return [replace(check, says=f"{check.says} ({told})") if told and _live(check) else check for check in checks]
    left = [check for check in checks if not _live(check)]
    whose = "the job has" if not accused.ranks or found.gone.job is not None else f"{several(accused.ranks)} has"
    over = f"no stack can be taken any more: {whose} ended ({_place(next(end for end in ends if end is not None))})"
    if not any(check.command.startswith(("sacct", "dmesg", "ssh")) for check in left):
        left.append(Check("the kernel's log of that time", "dmesg -T", "{host}"))
    if _under_slurm(job) and not any(check.command.startswith("sacct") for check in left):
        left.append(Check("how the scheduler saw it end", "sacct -j JOBID -o JobID,State,ExitCode,NodeList,Comment"))
    record = next((check for check in left if check.command == f"export {RECORD}"), None)
    if record is None and job.table is None:
        record = Check("the next time: Flight Recorder dumps of all ranks", f"export {RECORD}")
        left.append(record)
    if record is not None:
        left[left.index(record)] = replace(record, says=f"{over}. {record.says[0].upper()}{record.says[1:]}")
    else:
        next_time = "the next time let each rank print where it stands, before the timeout ends it: at every step call"
        left.append(
            Check(f"{over}; {next_time}", "faulthandler.dump_traceback_later(SECONDS)   # less than the timeout")
        )
    return left


def _live(check: Check) -> bool:
    return bool(_LIVE.search(check.command) or _LIVE.search(check.says))


def _place(fact: Fact | None) -> str:
    return str(fact.spot) if fact is not None else ""


def _under_slurm(job: Job) -> bool:
    return bool(job.of("task_exit", "job_state", "step_cancelled", "task_oom"))


def _hosts(job: Job, accused: Accused) -> Sequence[str]:
    """The hosts that are asked about: the accused ones, else all."""
    return accused.hosts or sorted({info.host for info in job.ranks.values() if info.host} or job.hosts)


def _kernel(job: Job, found: Findings, accused: Accused) -> bool | str:
    logs = {host: [item for item in job.items() if _of_kernel(item, host)] for host in _hosts(job, accused)}
    if not logs or not all(logs.values()):
        return False
    begin = found.window[0]
    for host, items in logs.items():
        times = [at for item in items if (at := when(item)) is not None and at > DAY]
        if times and max(times) < begin:
            return f"the kernel log of {host} that is here ends at {iso(max(times))}, before it"
    return True


def _of_kernel(item: Item, host: str) -> bool:
    return item.spot.source.kind == "kernel" and item.who.host == host


def _scheduler(job: Job, found: Findings, accused: Accused) -> bool | str:
    return any(fact["state"] not in ("RUNNING", "PENDING", None) for fact in job.of("job_state"))


def _pods(job: Job, found: Findings, accused: Accused) -> bool | str:
    hosts = set(accused.hosts)
    told = [fact for fact in job.of(*_POD_FACTS) if not hosts or fact.who.host in hosts or fact.who.pod in hosts]
    return bool(told)


def _stacks(job: Job, found: Findings, accused: Accused) -> bool | str:
    shown = {fact.rank for fact in job.of("stack") if fact["tool"] in ("py-spy", "gdb", "pystack")}
    return bool(accused.ranks) and set(accused.ranks) <= shown


def _workers(job: Job, found: Findings, accused: Accused) -> bool | str:
    shown = {stack.rank for stack in found.stacks.children if stack.child}
    return bool(accused.ranks) and set(accused.ranks) <= shown


def _ports(job: Job, found: Findings, accused: Accused) -> bool | str:
    read = {growth.host for growth in (*found.counters.grown, *found.counters.still)}
    hosts = _hosts(job, accused)
    return bool(hosts) and set(hosts) <= read


def _shm(job: Job, found: Findings, accused: Accused) -> bool | str:
    read = {fact.who.host for fact in job.of("disk") if "shm" in str(fact["mount"])}
    hosts = _hosts(job, accused)
    return bool(hosts) and set(hosts) <= read


def _dumps(job: Job, found: Findings, accused: Accused) -> bool | str:
    return job.table is not None


_SSH = r"^(?:ssh \S+ [\"']?)?"
_GIVEN: tuple[tuple[re.Pattern[str], Given], ...] = tuple(
    (re.compile(pattern), given)
    for pattern, given in (
        (rf"{_SSH}(?:dmesg|journalctl -k)", _kernel),
        (r"^sacct -j", _scheduler),
        (r"(?:^|# or: )kubectl (?:describe pod|get events)", _pods),
        (rf"{_SSH}py-spy dump", _stacks),
        (rf"{_SSH}ps -o .*--ppid", _workers),
        (rf"{_SSH}for i in 1 2; do (?:perfquery|ethtool)", _ports),
        (r"^export TORCH_FR_BUFFER_SIZE", _dumps),
        (rf"{_SSH}df -h /dev/shm", _shm),
    )
)
