"""Which of a cause's checks are still open: what they would collect may lie among the evidence already.

A kernel log that is here and says nothing has answered its check; one that ends before the incident has not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from whichrank.findings import Findings
from whichrank.job.clocks import DAY, iso
from whichrank.job.model import Item, Job, when
from whichrank.model import Check
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
        (rf"{_SSH}for i in 1 2; do (?:perfquery|ethtool)", _ports),
        (r"^export TORCH_FR_BUFFER_SIZE", _dumps),
        (rf"{_SSH}df -h /dev/shm", _shm),
    )
)
