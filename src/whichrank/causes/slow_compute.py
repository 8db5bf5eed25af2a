"""slow_compute: busy computing, compiling or holding the GIL."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.causes import straggler
from whichrank.causes.base import Cause, Clue, host, one, several
from whichrank.facts import Fact
from whichrank.findings import Findings
from whichrank.findings.progress import Beat
from whichrank.job.model import Job
from whichrank.model import Check

_ORDINARY = {"", "sw_power_cap", "gpu_idle", "idle", "none", "applications_clocks_setting", "sync_boost"}


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    yield from straggler.talked(job, found, 4.5, "compile", "generate")
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
    yield from straggler.hinted(job, found, "compute")
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
        slowed = max(found.beats, key=lambda beat: beat.slowed, default=None)
        lasting = slowed is not None and slowed.slowed > 1.5
        yield Clue(
            5.0 if lasting else 3.5,
            "gpu",
            f"GPU {fact['index']} on {fact.who.host or 'a host'} runs with throttled clocks"
            + (f", and steps take {slowed.slowed:.2g} times as long as before" if slowed and lasting else ""),
            (fact, slowed.last) if slowed and lasting else (fact,),
            one(fact.rank if fact.rank is not None else _by_index(job, fact)),
            host(fact.who.host),
            sure_of_ranks=0.8,
        )
    behind = found.laggard
    if behind is not None and not behind.in_data:
        yield straggler.behind(job, behind)
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


def _by_index(job: Job, fact: Fact) -> int | None:
    """The rank on a GPU of a host, where ranks are placed in order of the GPUs."""
    index, ranks = fact["index"], job.ranks_on(fact.who.host)
    local = job.local(fact.who.host, index) if isinstance(index, int) else None
    return local if local is not None else ranks[index] if isinstance(index, int) and index < len(ranks) > 1 else None


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
