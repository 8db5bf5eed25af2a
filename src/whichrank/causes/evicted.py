"""evicted: the scheduler, the cluster or the provider took the node or the pod away."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.causes.base import Cause, Clue, absent_on, ago, host
from whichrank.facts import Fact
from whichrank.findings import Findings
from whichrank.findings.hosts import timely
from whichrank.job.model import Job, before, moment
from whichrank.job.names import canon
from whichrank.model import Check

_REASON = re.compile(r"PREEMPT|NODE.?FAIL|TIME.?LIMIT|MAINT|DEADLINE|BOOT_FAIL", re.I)
_STATE = re.compile(r"\b(?:NODE_FAIL|PREEMPTED|TIMEOUT|BOOT_FAIL|DEADLINE|REVOKED)\b")
# A node that was drained for this has seen something happen; that is not what happened to it.
_CONSEQUENCE = re.compile(r"kill task failed|KillTaskFailed|epilog error|prolog ?failed|duplicate jobid", re.I)
_NODE = re.compile(
    r"preempt|evict|spot|interrupt|terminat|not ?ready|drain|shutdown|reclaim|scale.?down|unreachable|delet|panic", re.I
)
LATER = 60e9  # ns after the first timeout from which a node's trouble is a consequence


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    ended = False
    for fact in sorted(job.of("pod_evicted", "pod_preempted"), key=moment):
        ranks = _ranks_of(job, found, fact.who.host, fact.who.pod)
        yield Clue(
            7.0,
            "scheduler",
            f"pod {fact.who.pod or '?'} was evicted: {str(fact['message'] or fact['reason'] or '')[:120]}",
            (fact,),
            ranks,
            host(fact.who.host or fact.who.pod),
            decisive=True,
            sure_of_ranks=0.95 if ranks else 0.5,
        )
        ended = True
        break
    for fact in sorted(job.of("step_cancelled"), key=moment):
        if fact["reason"] and _REASON.search(str(fact["reason"])):
            # The node in that line is the one that prints it; a node that failed is named elsewhere.
            failed = _failed_node(job) if re.search(r"NODE", str(fact["reason"]), re.I) else None
            where = failed.who.host if failed else fact.who.host
            ranks = _ranks_of(job, found, where, None) if not re.search(r"TIME", str(fact["reason"]), re.I) else ()
            yield Clue(
                7.0,
                "scheduler",
                f"Slurm cancelled it DUE TO {fact['reason']}{ago(job, found, fact)}",
                (fact, failed) if failed else (fact,),
                ranks,
                host(where),
                decisive=True,
                sure_of_ranks=0.9 if ranks else 0.5,
            )
            ended = True
            break
    for fact in job.of("job_state"):
        if _STATE.search(str(fact["state"])):
            ranks = _ranks_of(job, found, fact.who.host, None)
            yield Clue(
                6.0,
                "scheduler",
                f"the scheduler's state is {fact['state']}",
                (fact,),
                ranks if len(ranks) < max(2, len(job.everyone())) else (),
                host(fact.who.host),
                sure_of_ranks=0.85,
            )
            ended = True
            break
    yield from _broken(job, found)
    if not ended:
        for fact in _events(job, found):
            text = f"{fact['reason']} {fact['message']}"
            if _NODE.search(text) and not _CONSEQUENCE.search(text):
                where = fact.who.host or _gone(job)
                ranks = _ranks_of(job, found, where, fact.who.pod)
                said = fact["reason"] == "Preempted"  # by Ray, of a worker's own node
                yield Clue(
                    (6.5 if said else 4.5) if ranks else 2.0,
                    "scheduler",
                    f"node event: {fact['reason'] or ''!s} {str(fact['message'] or '')[:100]}",
                    (fact,),
                    ranks,
                    host(where),
                )
                break
        for fact in job.of("signal_received"):
            if str(fact["signal"]).upper() in ("SIGTERM", "15") and not found.failed.roots and not found.arrived.waits:
                yield Clue(1.0, "exit", "the launcher itself got SIGTERM from outside", (fact,))
                break


def _broken(job: Job, found: Findings) -> Iterator[Clue]:
    """The machine's own memory or processor failed: what could not be corrected kills processes or the machine."""
    for fact in job.of("mce"):
        if fact["corrected"] or not timely(fact, found.window):
            continue
        rank = job.rank_by_pid(fact.who.pid, fact.who.host)
        ranks = (rank,) if rank is not None else absent_on(job, found, fact.who.host)
        yield Clue(
            6.0 if rank is not None else 3.0,
            "kernel",
            f"{fact.who.host or 'a host'} reported a hardware error that could not be corrected"
            + (f", and killed rank {rank} for it" if rank is not None else ""),
            (fact,),
            ranks,
            host(fact.who.host),
            decisive=rank is not None,
            sure_of_ranks=0.95 if rank is not None else 0.7,
        )
        break


def _events(job: Job, found: Findings) -> list[Fact]:
    """What happened to nodes of the job, those with ranks first: no other nodes', nothing that only followed from the hang."""
    events = job.of("node_event")
    drained = {fact.who.host for fact in events if _CONSEQUENCE.search(f"{fact['reason']} {fact['message']}")}
    first = found.arrived.first
    ours = []
    for fact in events:
        followed = fact.who.host in drained and re.search(r"drain|KillTask|prolog", f"{fact['reason']}", re.I)
        foreign = fact.who.host and len(job.hosts) > 1 and canon(fact.who.host) not in job.hosts
        if not followed and not foreign and not _later(fact, first):
            ours.append(fact)
    return sorted(ours, key=lambda fact: not _ranks_of(job, found, fact.who.host, fact.who.pod))


def _gone(job: Job) -> str | None:
    """The only node that was found dead: what Ray says of a preemption does not say of which."""
    dead = {fact.who.host for fact in job.of("node_event") if fact["reason"] == "NodeDead" and fact.who.host}
    return next(iter(dead)) if len(dead) == 1 else None


def _later(fact: Fact, first: Fact | None) -> bool:
    """So long after the first timeout that it can only have followed from the hang."""
    if first is None or first.at_ns is None or fact.at_ns is None or fact.clock != "wall":
        return False
    return before(first, fact) is True and fact.at_ns - first.at_ns > LATER


def _failed_node(job: Job) -> Fact | None:
    events = [fact for fact in job.of("node_event") if fact.who.host]
    return next(
        (fact for fact in events if re.search(r"fail|power", str(fact["reason"]), re.I)), events[0] if events else None
    )


def _ranks_of(job: Job, found: Findings, where: str | None, pod: str | None) -> tuple[int, ...]:
    """All ranks of the node or pod that was taken."""
    ranks = {
        rank
        for rank, info in job.ranks.items()
        if (where and info.host == where) or (pod and (info.pod == pod or info.host == pod))
    }
    if not ranks and where is None and pod is None:
        return ()
    if len(job.hosts) <= 1 and (where or pod):
        ranks = job.everyone()  # the whole job ran there
    return tuple(sorted(ranks - found.arrived.waiting)) or tuple(sorted(ranks))


CAUSE = Cause(
    id="evicted",
    title="evicted, preempted or its node failed",
    means="The scheduler, the cluster or the provider took away the node or the pod: preemption, eviction for resources, a time limit, a failed node, a spot instance that was reclaimed.",
    looks_like="CANCELLED … DUE TO PREEMPTION / NODE FAILURE / TIME LIMIT, a pod with reason Evicted, a node that turns NotReady; all ranks of that node stop at once.",
    settles=(
        Check(
            "the scheduler's record",
            "sacct -j JOBID -o JobID,State,ExitCode,NodeList,Reason%40   # or: kubectl get events --sort-by=.lastTimestamp",
        ),
        Check("is the node back?", "scontrol show node {host}   # or: kubectl describe node {host}", "{host}"),
    ),
    fix=(
        "Checkpoint often enough that losing a node costs little, and resume by itself (torchrun --max-restarts, Slurm --requeue with a signal handler).",
        "Where resources were the reason (ephemeral storage, memory), request what the job uses.",
    ),
    stopgap="Resume from the last checkpoint on other nodes.",
    weigh=weigh,
    mechanism="dead",
    verb="was taken away by the scheduler or the cluster",
    dont="read exit code 137 as an OOM: an eviction kills the same way",
)
