"""host_oom: the kernel killed a rank, or a process that it needs, because memory ran out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.causes.base import Cause, Clue, absent_on, ago, host, one, pressure
from whichrank.facts import Fact
from whichrank.findings import Findings
from whichrank.findings.workers import lost_workers
from whichrank.job.model import Job, before
from whichrank.model import Check


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    yield from _kernel(job, found)
    yield from _counted(job, found)
    yield from pressure(job, found, "memory", 1.0, "memory was short on {}", 0.5)
    yield from _scheduler(job, found)
    for failure in found.failed.roots:
        if failure.kind == "killed":
            yield Clue(
                0.8,
                "exit",
                "it ended with SIGKILL: the OOM killer is one of several senders",
                (failure.fact,),
                one(failure.rank),
                host(failure.host),
            )
            break
    for fact in job.of("dl_worker_killed"):
        if str(fact["signal"] or "").lower() in ("killed", "sigkill", "9") and fact.rank is not None:
            yield Clue(
                2.0,
                "traceback",
                f"a DataLoader worker of rank {fact.rank} was killed{ago(job, found, fact)}",
                (fact,),
                one(fact.rank),
                host(fact.who.host or job.host_of(fact.rank)),
                sure_of_ranks=0.96,
            )
            break
    else:
        yield from _cut_off(job, found)


def _cut_off(job: Job, found: Findings) -> Iterator[Clue]:
    """A connection to a worker broke: it is gone, and nobody says how."""
    for fact in lost_workers(job):
        if fact.kind == "exception":
            says = f"rank {fact.rank} lost the connection to a DataLoader worker: that process was gone"
            where = host(fact.who.host or job.host_of(fact.rank))
            yield Clue(1.5, "traceback", says, (fact,), one(fact.rank), where, sure_of_ranks=0.93)
            return


def _kernel(job: Job, found: Findings) -> Iterator[Clue]:
    for joined in found.ooms:
        fact = joined.fact
        pid = fact.who.pid if fact.who.pid is not None else fact["pid"]
        if joined.rank is not None and joined.by in ("pid", "child") and not _went_on(job, joined.rank, fact):
            whose = f"which is rank {joined.rank}" if joined.by == "pid" else f"a child process of rank {joined.rank}"
            tie = job.tie(joined.rank, pid=pid)
            proof = [
                fact,
                *([tie] if tie else []),
                *[death for death in job.of("dl_worker_killed") if death["worker_pid"] == pid][:1],
            ]
            yield Clue(
                8.0,
                "kernel",
                f"the kernel killed pid {pid}, {whose}, for memory{ago(job, found, fact)}",
                tuple(proof),
                one(joined.rank),
                host(joined.host),
                decisive=True,
                sure_of_ranks=0.97,
            )
        elif joined.by == "cgroup":
            yield Clue(
                6.0,
                "kernel",
                f"the kernel killed a process in this job's own cgroup for memory{ago(job, found, fact)}",
                (fact,),
                _killed_on(job, found, joined.host),
                host(joined.host),
                sure_of_ranks=0.85,
            )
        elif joined.by == "host":
            ranks = _killed_on(job, found, joined.host)
            alone = not job.ranks and not found.beats  # a kernel's log and nothing else: it is what was asked about
            weight = 4.5 if ranks or alone else 2.5 if absent_on(job, found, joined.host) else 0.5
            if found.ending.well or found.ending.alive:
                weight = 0.0
            ranks = ranks or absent_on(job, found, joined.host)
            yield Clue(
                weight,
                "kernel",
                f"the kernel killed a {fact['comm']} process for memory on {joined.host or 'a host'}{ago(job, found, fact)}",
                (fact,),
                ranks,
                host(joined.host),
                sure_of_ranks=0.8 if len(ranks) == 1 else 0.5,
            )
        else:
            yield Clue(-0.5, "kernel", "an OOM kill there was of a process that is not this job's", (fact,))


_COUNTED = re.compile(r"oom_kill$", re.I)


def _counted(job: Job, found: Findings) -> Iterator[Clue]:
    """The kernel's own count of kills (memory.events, vmstat) rose between two snapshots."""
    for growth in found.counters.of(_COUNTED):
        ranks = _killed_on(job, found, growth.host) or absent_on(job, found, growth.host)
        yield Clue(
            5.0 if len(ranks) == 1 else 4.0,
            "kernel",
            growth.says,
            growth.proof,
            ranks,
            host(growth.host),
            sure_of_ranks=0.9 if len(ranks) == 1 else 0.6,
        )
        return
    for still in found.counters.still:
        if _COUNTED.search(still.name):
            says = f"the kernel counted no kill for memory{' on ' + still.host if still.host else ''} between two snapshots"
            yield Clue(-1.5, "kernel", says, (still.before, still.after))
            return


def _scheduler(job: Job, found: Findings) -> Iterator[Clue]:
    for fact in job.of("task_oom"):
        named = _task_rank(job, fact["task"], fact.who.host)
        ranks = _killed_on(job, found, fact.who.host) or named
        events = job.of("oom_event")[:1]
        yield Clue(
            6.5,
            "scheduler",
            f"Slurm reports Out Of Memory for task {fact['task']} on {fact.who.host}",
            (fact, *events),
            ranks,
            host(fact.who.host),
            decisive=bool(events),
            sure_of_ranks=0.95 if ranks else 0.5,
        )
        return
    for fact in job.of("pod_oom"):
        ranks = tuple(
            rank
            for rank, info in job.ranks.items()
            if fact.who.pod and (info.pod == fact.who.pod or info.host in (fact.who.pod, fact.who.host))
        )
        absent = (
            tuple(rank for rank in ranks if rank in found.arrived.absent)
            or _killed_on(job, found, fact.who.host or fact.who.pod)
            or ranks
        )
        yield Clue(
            7.0,
            "scheduler",
            f"Kubernetes reports OOMKilled for {fact.who.pod or 'the pod'}",
            (fact,),
            absent,
            host(fact.who.host or fact.who.pod),
            decisive=True,
            sure_of_ranks=0.93 if len(absent) == 1 else 0.8,
        )
        return
    if (by_ray := [fact for fact in job.of("oom_event") if fact["launcher"] == "ray"]) and not found.ending.well:
        yield _by_ray(job, by_ray)
        return
    for fact in job.of("oom_event"):
        ranks = _killed_on(job, found, fact.who.host)
        yield Clue(
            4.5,
            "scheduler",
            "the scheduler counted an OOM kill in this job's step",
            (fact,),
            ranks,
            host(fact.who.host if not ranks else job.host_of(ranks[0])),
            sure_of_ranks=0.93 if len(ranks) == 1 else 0.6,
        )
        return
    for fact in job.of("job_state"):
        if "OUT_OF_ME" in str(fact["state"]):
            ranks = _killed_on(job, found, fact.who.host)
            yield Clue(
                5.0,
                "scheduler",
                "Slurm's accounting says OUT_OF_MEMORY",
                (fact,),
                ranks,
                host(fact.who.host),
                sure_of_ranks=0.9 if len(ranks) == 1 else 0.5,
            )
            return


def _by_ray(job: Job, told: list[Fact]) -> Clue:
    """Ray's memory monitor kills a worker before the kernel has to, and says which."""
    fact = next((fact for fact in told if fact.who.pid is not None), told[0])
    where = fact.who.host or next((other.who.host for other in told if other.who.host), None)
    rank = job.rank_by_pid(fact.who.pid, where)
    pid = f" pid {fact.who.pid}" if fact.who.pid is not None else " a worker"
    whose = f", which is rank {rank}," if rank is not None else ""
    says = f"Ray's memory monitor killed{pid}{whose} because its node ran out of memory"
    ranks = () if rank is None else (rank,)
    return Clue(6.5, "scheduler", says, tuple(told[:2]), ranks, host(where), sure_of_ranks=0.93)


def _killed_on(job: Job, found: Findings, where: str | None) -> tuple[int, ...]:
    """The rank that ended by SIGKILL on this host, before the others gave up."""
    for failure in found.failed.roots:
        if failure.kind == "killed" and failure.rank is not None and (where is None or failure.host in (None, where)):
            return (failure.rank,)
    return ()


def _task_rank(job: Job, task: object, where: str | None) -> tuple[int, ...]:
    """Under srun with one task a rank, task N is the rank; with one launcher a node it is not."""
    alone = not job.ranks and job.world_told and not any("nproc" in str(fact["name"]) for fact in job.of("config"))
    if alone and isinstance(task, int) and task < (job.world_size or 0):
        return (task,)  # as many tasks as ranks, and no launcher in between
    if not isinstance(task, int) or task not in job.ranks:
        return ()
    home = job.host_of(task)
    return (task,) if home is None or where is None or home == where else ()


def _went_on(job: Job, rank: int, fact: Fact) -> bool:
    info = job.ranks.get(rank)
    lines = [line for line in (info.said if info else []) if before(fact, line) is True]
    return len(lines) > 3


CAUSE = Cause(
    id="host_oom",
    title="killed by the OOM killer",
    means="The kernel ended a rank, or a process that it needs, because the host's or the job's memory ran out. The others wait for it until their watchdogs fire.",
    looks_like="One rank's log stops without a word (exit code -9 or 137); the kernel, the cgroup or the scheduler reports an OOM kill at that moment.",
    settles=(
        Check("the kernel's own word", "ssh {host} \"dmesg -T | grep -iE 'killed process|oom-kill'\"", "{host}"),
        Check(
            "the scheduler's word",
            "sacct -j JOBID -o JobID,State,ExitCode,MaxRSS,NodeList   # or: kubectl describe pod POD | grep -A4 'Last State'",
        ),
    ),
    fix=(
        "Lower the memory that one node needs: fewer DataLoader workers (num_workers, prefetch_factor), no pickled copies of the dataset in each worker, memory-mapped data, no full state dict on every rank.",
        "Or give the job more: --mem / resources.limits.memory above the peak (ranks x (1 + workers) x resident size).",
    ),
    stopgap="Restart from the last checkpoint with half the DataLoader workers.",
    weigh=weigh,
    mechanism="dead",
    verb="was killed by the kernel's OOM killer",
    dont="raise the timeout: no rank was slow, one was gone",
)
