"""killed: SIGKILL, and nothing shows who sent it."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.causes.base import Cause, Clue, ago, host, one
from whichrank.facts import Fact
from whichrank.findings import Findings
from whichrank.findings.recorded import first_gone
from whichrank.job.model import Job, before
from whichrank.model import Check


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    kills = [failure for failure in found.failed.roots if failure.kind == "killed"]
    if kills:
        first = kills[0]
        others = [failure for failure in found.failed.roots if failure.kind != "killed"]
        same_time = tuple(one(first.rank))
        yield Clue(
            5.0,
            "exit",
            f"{'rank ' + str(first.rank) if first.rank is not None else 'a process'} ended by SIGKILL{ago(job, found, first.fact)}, before any other failure",
            (first.fact,),
            same_time,
            host(first.host),
            sure_of_ranks=0.85 if _only_told(job, found, first.fact) else 0.95,
        )
        if others and found.failed.first is others[0]:
            yield Clue(-4.0, "order", "something else failed first", (others[0].fact,))
    yield from _silently(job, found, bool(kills))
    for fact in job.of("task_exit"):
        if str(fact["word"] or "").lower() == "killed" or fact["signal"] in (9, "SIGKILL", "Killed"):
            ranks = tuple(task for task in (fact["tasks"] or ()) if isinstance(task, int) and task in job.everyone())
            late = found.arrived.first is not None and before(found.arrived.first, fact) is True  # cleaning up
            if len(ranks) <= max(1, len(job.everyone()) // 2) and not found.failed.roots and not late:
                yield Clue(
                    4.0,
                    "scheduler",
                    "srun reports the task Killed, and nobody says by whom",
                    (fact,),
                    ranks,
                    host(fact.who.host),
                )
            break
    for kind in ("oom_event", "task_oom", "pod_oom", "pod_evicted"):
        for fact in job.of(kind)[:1]:
            yield Clue(-4.0, "scheduler", "the scheduler names a sender", (fact,))
    where = {failure.host for failure in kills if failure.host}
    for joined in found.ooms:
        if where and joined.host and joined.host not in where:
            continue  # another host's memory
        if joined.by in ("pid", "child", "cgroup"):
            yield Clue(-5.0, "kernel", "the kernel's OOM killer sent it", (joined.fact,))
            break
        if joined.by == "host":
            yield Clue(-2.0, "kernel", "an OOM kill on the same host may have been it", (joined.fact,))
            break


def _only_told(job: Job, found: Findings, fact: Fact) -> bool:
    """Is the launcher's summary of one node all there is? Another node's may have seen an earlier failure."""
    info = job.ranks.get(fact.rank) if fact.rank is not None else None
    said = info is not None and (info.said or any(other.kind not in ("exit", "member") for other in info.facts))
    return bool(fact["root"]) and not said and not found.arrived.waits


def _silently(job: Job, found: Findings, known: bool) -> Iterator[Clue]:
    """The watcher saw a rank go without a word while the others were there: no exception, no orderly end."""
    first = first_gone(job)
    if first is None or known or found.failed.roots:
        return
    if any(fact.who.pid == first.who.pid or fact.rank == first.rank for fact in job.of("exit")):
        return  # the launcher's word on how it ended tells more
    says = f"rank {first.rank} was gone before the others, without an exception or an orderly end"
    yield Clue(3.5, "exit", says, (first,), one(first.rank), host(job.host_of(first.rank)), sure_of_ranks=0.85)


CAUSE = Cause(
    id="killed",
    title="killed (SIGKILL), sender unknown",
    means="A rank got SIGKILL. Memory, the container runtime, a scheduler, a watchdog or a person can send it; the evidence shows none of them.",
    looks_like="Exit code -9 or 137 as the first failure, SIGTERM for the rest, and no kernel, cgroup or scheduler line beside it.",
    settles=(
        Check("was it the OOM killer?", "ssh {host} \"dmesg -T | grep -iE 'killed process|oom-kill'\"", "{host}"),
        Check(
            "or the container's limit?",
            "kubectl describe pod POD | grep -A5 -E 'Last State|Reason'   # or: cat /sys/fs/cgroup/memory.events",
            "{host}",
        ),
        Check("or the scheduler?", "sacct -j JOBID -o JobID,State,ExitCode,MaxRSS,Comment"),
    ),
    fix=(
        "Find the sender first: without it any change is a guess.",
        "Keep the next one: run with `dmesg -wT > dmesg-$(hostname).txt &` on each node, or collect memory.events at exit.",
    ),
    stopgap="Restart from the last checkpoint and watch this node's memory.",
    weigh=weigh,
    mechanism="dead",
    verb="was killed by SIGKILL; who sent it is not shown",
    dont="take a bare -9 for an OOM: nothing here proves it",
)
