"""stopped: from outside, by SIGSTOP, a debugger or the freezer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.causes import straggler
from whichrank.causes.base import Cause, Clue, host, one
from whichrank.facts import Fact, Said
from whichrank.findings import Findings
from whichrank.job.model import Job
from whichrank.model import Check


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    stacks = straggler.idle_reader(job, found, "debugger")
    if stacks:
        yield straggler.stood(job, found, stacks, 5.0, "is at a debugger or an input prompt")
    for fact in job.of("process"):
        stat = str(fact["stat"] or "")
        rank = job.rank_by_pid(fact.who.pid, fact.who.host)
        if stat[:1] in ("T", "t") and (rank is not None or not job.ranks):
            holder = _holder(job, fact.who.pid)
            yield Clue(
                6.5,
                "stack",
                f"process {fact.who.pid} of rank {rank} is stopped (state {stat}){_by(holder)}",
                (fact, *([holder] if holder else [])),
                one(rank),
                host(job.host_of(rank) or fact.who.host),
                sure_of_ranks=0.95,
            )
            yield from straggler.silent_recorder(
                job, rank, 1.5, "its own recorder fell silent {seconds} before the others'"
            )
            break
    for fact in job.of("stopped"):
        rank = fact.rank if fact.rank is not None else job.rank_by_pid(fact.who.pid, fact.who.host)
        yield Clue(
            6.0,
            "kernel",
            f"{fact['says'] or 'it was stopped from outside'}",
            (fact,),
            one(rank),
            host(fact.who.host or job.host_of(rank)),
            sure_of_ranks=0.95 if rank is not None else 0.5,
        )
        break
    for line in _prompts(job, found):
        yield Clue(
            6.0,
            "talk",
            f"rank {line.rank if line.rank is not None else '?'} stands at a debugger prompt",
            (line,),
            one(line.rank) or tuple(sorted(found.arrived.suspects))[:1],
            host(job.host_of(line.rank)),
            sure_of_ranks=0.9,
        )
        break


_PROMPT = re.compile(
    r"^\s*(?:\((?:Pdb|ipdb|pdbpp|rdb)\+*\)|ipdb>|-> .*breakpoint\(\)|Remote PDB session open|RemotePdb session)|debugpy.{0,30}waiting|[Ww]aiting for (?:a )?debugger|\bSIGSTOP\b|\bSIGTSTP\b|paused \(SIG|"
    r"cgroup\S* .{0,40}fr(?:ee|o)z|\bfreezer\b|state (?:is )?FROZEN|stopped by signal|docker pause|suspended by (?:signal|user|scheduler)"
)


def _prompts(job: Job, found: Findings) -> list[Said]:
    return [line for line in job.saying(_PROMPT) if (line.rank is None or line.rank not in found.arrived.waiting)]


_DEBUGGER = re.compile(r"\b(?:gdb|cuda-gdb|strace|lldb|py-spy|ltrace)\b")


def _holder(job: Job, pid: int | None) -> Fact | None:
    """The debugger that is attached to this process, where a table of processes shows it."""
    attached = re.compile(rf"(?:-p|--pid|attach)[ =]?{pid}\b")
    return next(
        (
            fact
            for fact in job.of("process")
            if _DEBUGGER.search(str(fact["command"])) and attached.search(str(fact["command"]))
        ),
        None,
    )


def _by(holder: Fact | None) -> str:
    return f" by {str(holder['command']).split()[0]}, pid {holder.who.pid}" if holder else ""


CAUSE = Cause(
    id="stopped",
    title="stopped from outside: SIGSTOP, a debugger, the freezer",
    means="A process was halted from outside or waits for somebody at a prompt: SIGSTOP, a debugger, the cgroup freezer, a breakpoint left in the code.",
    looks_like="Process state T, a (Pdb) prompt, a stack in pdb, bdb or input(), a frozen cgroup.",
    settles=(
        Check(
            "its state",
            "ssh {host} 'ps -o pid,stat,wchan:20,cmd -p {pid}; cat /sys/fs/cgroup/*/cgroup.events /proc/{pid}/status | grep -iE \"frozen|State|Tracer\"'",
            "{host}",
        ),
    ),
    fix=(
        "Find out who stopped it (memory guards, debuggers, container pause, job suspension) and have it act on the whole job or not at all.",
        "No breakpoint() in ranks: guard it with an environment variable and use torch.distributed.breakpoint(rank) which holds all ranks.",
    ),
    stopgap="kill -CONT {pid}, or for state t end the debugger that holds it (TracerPid in /proc/{pid}/status): if the timeout has not fired yet the job goes on.",
    weigh=weigh,
    prior=-3.0,
    mechanism="host_stuck",
    verb="was stopped from outside",
    dont="raise the timeout: a stopped process does not get ready",
)
