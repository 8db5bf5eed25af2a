"""slow_compute: busy computing, compiling or holding the GIL."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.causes import straggler
from whichrank.causes.base import Cause, Clue, absent_on, facts_of, host, one, pressure
from whichrank.findings import Findings
from whichrank.findings.gpu_load import rank_on
from whichrank.findings.hosts import timely
from whichrank.findings.progress import Beat, slowing
from whichrank.job.clocks import span
from whichrank.job.model import Job
from whichrank.model import Check
from whichrank.ranges import several

_ORDINARY = {"", "sw_power_cap", "gpu_idle", "idle", "none", "applications_clocks_setting", "sync_boost"}


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    yield from straggler.talked(job, found, 4.5, "compile", "generate")
    yield from _compiling(job, found)
    yield from _held(job, found)
    stacks = straggler.idle_reader(job, found, "compile", "gil")
    if stacks:
        yield straggler.stood(job, found, stacks, 5.0, "is compiling or holding the GIL")
    running = [stack for stack in straggler.idle_reader(job, found, "compute") if "gil" in str(stack.fact["state"])]
    if running and found.stacks.odd:
        ranks = tuple(sorted({stack.rank for stack in running if stack.rank is not None}))
        frame = str(next(iter(running[0].fact["frames"]), ""))
        yield Clue(
            4.5,
            "stack",
            f"{several(ranks)} runs Python code of its own ({frame}), the others are in the collective",
            tuple(stack.fact for stack in running[:2]),
            ranks,
            host(job.host_of(ranks[0]) if ranks else None),
            sure_of_ranks=0.93,
        )
    yield from straggler.phased(job, found, 4.0, "compile")
    yield from straggler.phased(job, found, 2.0, "compute", "optimizer")
    yield from straggler.hinted(job, found, "compute")
    for fact in job.of("process"):
        rank = job.rank_by_pid(fact.who.pid, fact.who.host)
        if rank is not None and str(fact["stat"] or "")[:1] == "R" and job.ranks[rank].pid == fact.who.pid:
            says = f"rank {rank} computes and lets no other thread run: its recorder fell silent {{seconds}} before the others'"
            yield from straggler.silent_recorder(job, rank, 3.5, says)
    for fact in job.of("gil_stuck"):
        yield Clue(
            4.5,
            "watchdog",
            f"rank {fact.rank if fact.rank is not None else '?'} could not get the GIL: a thread holds it",
            (fact,),
            one(fact.rank),
            host(job.host_of(fact.rank)),
            sure_of_ranks=0.9,
        )
        break
    for fact in job.of("soft_lockup"):
        rank = job.rank_by_pid(fact.who.pid, fact.who.host)
        yield Clue(
            2.5,
            "kernel",
            f"a CPU was stuck in {fact['comm']} on {fact.who.host or 'a host'}",
            (fact,),
            one(rank),
            host(fact.who.host),
        )
        break
    throttled = [fact for fact in job.of("gpu_sample") if set(str(fact["throttle"] or "").split(",")) - _ORDINARY]
    if throttled and len({(fact.who.host, fact["index"]) for fact in throttled}) <= 2:
        fact = throttled[0]
        slowed = slowing(found.beats)
        yield Clue(
            5.0 if slowed else 3.5,
            "gpu",
            f"GPU {fact['index']} on {fact.who.host or 'a host'} runs with throttled clocks"
            + (f", and steps take {slowed.slowed:.2g} times as long as before" if slowed else ""),
            (fact, slowed.last) if slowed else (fact,),
            one(fact.rank if fact.rank is not None else rank_on(job, fact)),
            host(fact.who.host),
            sure_of_ranks=0.8,
        )
    for fact in job.of("throttled"):
        if timely(fact, found.window):
            ranks = absent_on(job, found, fact.who.host)
            says = f"the processors of {fact.who.host or 'a host'} are hot and run slower"
            yield Clue(1.5, "kernel", says, (fact,), ranks, host(fact.who.host), sure_of_ranks=0.6)
            break
    yield from pressure(job, found, "cpu", 1.5, "work on {} waited for a processor", 0.6)
    behind = found.laggard
    if behind is not None and not behind.in_data:
        yield straggler.behind(job, behind)
    last = found.inspected.last
    if last is not None:
        yield Clue(
            3.5,
            "order",
            f"rank {last.rank} entered {last.turns} collectives last: they took {last.own_us:.0f} us there, {last.others_us:.0f} us on the others, which waited for it",
            (last.fact, last.usual),
            one(last.rank),
            host(job.host_of(last.rank)),
            sure_of_ranks=0.9,
        )
    slow = _slow_rank(found)
    if slow is not None:
        yield Clue(
            2.5,
            "progress",
            f"rank {slow.rank} is regularly slower than the others",
            (slow.last,),
            one(slow.rank),
            host(job.host_of(slow.rank)),
            sure_of_ranks=0.7,
        )


def _compiling(job: Job, found: Findings) -> Iterator[Clue]:
    """Ranks whose compiler (TORCH_LOGS) was at work while the others waited."""
    busy = found.compiling
    if not busy:
        return
    ranks = tuple(sorted(entry.rank for entry in busy))
    worst = max(busy, key=lambda entry: entry.since_s or 0)
    last = worst.fact if worst.open and worst.fact["state"] == "begun" else worst.begun
    what = last["what"] or last["phase"]
    since = f", begun {span(worst.since_s)} before the first timeout" if worst.since_s else ""
    end = " and not done" if worst.open else ""
    again = f"; it compiled {worst.again} times more often than the others" if worst.again > 1 else ""
    yield Clue(
        5.0 if worst.open else 4.0,
        "talk",
        f"{several(ranks)} was compiling {what}{since}{end}{again}",
        facts_of(
            [worst.begun, worst.fact if worst.fact is not worst.begun else None, *(entry.begun for entry in busy[1:3])]
        ),
        ranks,
        host(job.host_of(ranks[0])),
        sure_of_ranks=straggler.certainty(job, found, ranks, worst.open),
    )


def _held(job: Job, found: Findings) -> Iterator[Clue]:
    """The debug server's dump of stacks needs the GIL: of few ranks it got none, while the others gave theirs at once."""
    silent = [fact for fact in job.of("debug_silent") if fact["status"] == 408 and fact["page"] == "dump_traceback"]
    ranks = tuple(sorted({fact.rank for fact in silent if fact.rank is not None}))
    answered = {stack.rank for stack in found.stacks.mains if stack.fact["tool"] == "faulthandler"}
    if ranks and len(ranks) < len(answered - set(ranks)):
        yield Clue(
            5.0,
            "watchdog",
            f"{several(ranks)} gave the debug server no stack in time, all others did: a thread holds the GIL",
            tuple(silent[:2]),
            ranks,
            host(job.host_of(ranks[0])),
            sure_of_ranks=0.93,
        )


def _slow_rank(found: Findings) -> Beat | None:
    """A rank whose own step lines come clearly later than all others'."""
    beats = [beat for beat in found.beats if beat.rank is not None and beat.typical_s]
    if len(beats) < 3:
        return None
    ordered = sorted(beats, key=lambda beat: beat.typical_s or 0)
    return ordered[-1] if (ordered[-1].typical_s or 0) > 1.33 * (ordered[-2].typical_s or 1) else None


CAUSE = Cause(
    id="slow_compute",
    title="busy computing, compiling or holding the GIL",
    means="A rank was busy on its host or GPU for longer than the others: compilation with a cold cache, an unusually large batch, generation of longer texts, a thread that holds the GIL, a throttled GPU.",
    looks_like="Compile, autotune or generation lines go on past the timeout; or the watchdog says it was stuck (GIL); or one rank's own compute time stands out.",
    settles=(
        Check("where the rank stands", "ssh {host} 'py-spy dump --nonblocking --pid {pid}'", "{host}"),
        Check(
            "clocks and throttling", "ssh {host} 'nvidia-smi -q -d PERFORMANCE,CLOCK | grep -A12 -i reasons'", "{host}"
        ),
    ),
    fix=(
        "Compile before the clock runs: warm the caches on every node (TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR on a path that survives restarts and that all nodes have), and give the first step its own longer timeout.",
        "Balance by cost (tokens, generated length), not by count; release the GIL in long native calls.",
    ),
    stopgap="Restart: the caches that were filled meanwhile make the next start faster.",
    weigh=weigh,
    prior=-2.0,
    mechanism="host_stuck",
    verb="was busy computing or compiling",
    dont="treat it as dead: it was working",
)
