"""Kernel OOM kills, and whether they were of this job: a neighbour's OOM is a neighbour's.

A killed process counts if its pid is a rank's or its child's, or if its control group is the job's: by the group's name,
or because a rank is in the table of the group's tasks. A process older than all ranks is neither a rank nor its child.
"""

from __future__ import annotations

import re

from whichrank.facts import Fact
from whichrank.findings.arrivals import Arrivals
from whichrank.findings.hosts import CLOCKS_DIFFER, Joined, Span, looks_like_kernel, timely
from whichrank.findings.workers import lost_workers
from whichrank.job.model import Job
from whichrank.job.names import canon, in_path


def oom_kills(job: Job, arrived: Arrivals, span: Span) -> tuple[Joined, ...]:
    """Kernel OOM kills, each joined as firmly as the evidence allows."""
    groups = {
        fact["pid"] if isinstance(fact["pid"], int) else fact.who.pid: str(fact["task_memcg"] or fact["memcg"] or "")
        for fact in job.of("oom_constraint")
    }
    jobs = _job_ids(job)
    tables = {fact["pid"]: frozenset(fact["pids"]) for fact in job.of("oom_tasks")}
    found = []
    for fact in job.of("oom_kill"):
        if fact.spot.source.kind == "training" and not looks_like_kernel(fact):
            continue
        pid = fact.who.pid if fact.who.pid is not None else fact["pid"]
        host = fact.who.host
        if fact["reaper"] and any(
            other.who.pid == pid and other.who.host == host and not other["reaper"] for other in job.of("oom_kill")
        ):
            continue  # the same kill, told again
        if not timely(fact, span) or _after(arrived, fact):
            continue  # another day's, or when all was over: pids are used again
        rank = job.rank_by_pid(pid, host)
        memcg = str(fact["memcg"] or groups.get(pid, ""))
        pod = _pod_of(job, memcg)
        if pod is not None and not _is_ours(job, pod):
            found.append(Joined(fact, None, host, "none"))  # another pod met its own limit
            continue
        if rank is not None:
            found.append(Joined(fact, rank, host or job.host_of(rank), "child" if pid in job.children else "pid"))
            continue
        ranks = _processes_on(job, host)
        listed = {rank for number, rank in ranks.items() if number in tables.get(pid, ())}
        if listed and (worker := _worker_of(job, fact, listed)) is not None:
            found.append(Joined(fact, worker, host or job.host_of(worker), "child"))
        elif (listed and fact["cgroup"]) or any(number in memcg for number in jobs):
            found.append(Joined(fact, None, host, "cgroup"))
        elif (
            (not listed and _older(pid, ranks))
            or "user.slice" in memcg
            or _of_another_job(memcg, jobs)
            or not _ours(str(fact["comm"] or ""))
        ):
            found.append(Joined(fact, None, host, "none"))
        else:
            found.append(
                Joined(fact, None, host, "host" if job.ranks_on(host) or not job.hosts or host is None else "none")
            )
    return tuple(found)


def _processes_on(job: Job, host: str | None) -> dict[int, int]:
    """pid -> rank, of the ranks of this host; of all where no host is known. Empty unless each of them is known."""
    ranks = job.ranks_on(host) or ([] if job.hosts and host is not None else sorted(job.ranks))
    if not ranks or any(not job.ranks[rank].pids for rank in ranks):
        return {}
    return {pid: rank for rank in ranks for pid in job.ranks[rank].pids}


def _worker_of(job: Job, fact: Fact, listed: set[int]) -> int | None:
    """The rank among these that lost a DataLoader worker, if it is just one and a worker may be what was killed."""
    owners = {lost.rank for lost in lost_workers(job)} & listed
    return next(iter(owners)) if len(owners) == 1 and _ours(str(fact["comm"] or "")) else None


def _older(pid: object, ranks: dict[int, int]) -> bool:
    """Had it begun before all ranks? Numbers rise, and one inside a container is never above the host's for the same."""
    return bool(ranks) and isinstance(pid, int) and pid < min(ranks)


def _after(arrived: Arrivals, fact: Fact) -> bool:
    """Later than the first timeout by more than clocks of one cluster differ: no cause of it."""
    first = arrived.first
    if first is None or first.at_ns is None or fact.at_ns is None or "boot" in (fact.clock, first.clock):
        return False
    return fact.at_ns > first.at_ns + CLOCKS_DIFFER


def _of_another_job(memcg: str, jobs: set[str]) -> bool:
    match = re.search(r"/job_(\d+)(?:/|$)", memcg)
    return match is not None and bool(jobs) and match[1] not in jobs


_POD_UID = re.compile(r"pod([0-9a-f]{8}(?:[_-][0-9a-f]{4}){3}[_-][0-9a-f]{12})")


def _pod_of(job: Job, memcg: str) -> str | None:
    """The pod whose cgroup this is, where a table of pods tells the UIDs."""
    match = _POD_UID.search(memcg)
    uid = match[1].replace("_", "-") if match else None
    return next((fact.who.pod for fact in job.of("pod_uid") if uid and fact["uid"] == uid), None)


def _is_ours(job: Job, pod: str) -> bool:
    """Does a rank run in this pod? Its lines, its host's name or its file's name say so."""
    return any(
        pod == info.pod or canon(pod) == info.host or any(in_path(source.path, [pod]) for source in info.sources)
        for info in job.ranks.values()
    )


def _ours(comm: str) -> bool:
    return bool(re.search(r"python|torch|train|pt_|ray|ds_|worker|accelerate|main|^$", comm, re.I))


def _job_ids(job: Job) -> set[str]:
    found = {str(fact["step"]).split(".")[0] for fact in job.of("oom_event", "step_cancelled") if fact["step"]}
    found |= {str(fact["job"]) for fact in job.of("job_state") if fact["job"]}
    found |= {source.identity.world for source in job.sources if source.identity.world}
    return {number for number in found if len(number) >= 4}
