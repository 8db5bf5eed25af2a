"""none: the job is healthy or ended well."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from whichrank.causes.base import Cause, Clue, by_dumps
from whichrank.findings import Findings
from whichrank.findings.progress import Beat, slowing
from whichrank.job.clocks import span
from whichrank.job.model import Job
from whichrank.model import Check
from whichrank.ranges import several


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    ending = found.ending
    if ending.well and ending.success is not None:
        yield Clue(8.0, "exit", "the job ended with success", (ending.success,), decisive=True)
    elif ending.success is not None and ending.fatal_after is None:
        yield Clue(2.0, "exit", "success is reported", (ending.success,))
    if ending.last_beat is not None and ending.beats_after >= 3:
        alarms = bool(job.of("timeout", "exception", "cuda_oom", "exit", "oom_kill"))
        weight = 3.0 if not found.arrived.waits and not found.failed.roots else 1.5
        if ending.alive and not alarms:
            weight = 3.5
        yield Clue(weight, "progress", "progress goes on to the end of the evidence", (ending.last_beat.last,))
    if (told := by_dumps(found, "no_hang")) is not None:
        weight = 4.0 if told.traced.mechanism_sure >= 0.8 else 1.5
        says = "by its Flight Recorder dumps nothing hangs: calls end, ranks go on"
        if told.late is not None and told.late.what == "rank":
            says += f"; but {several(told.late.ranks)} come{'s' * (len(told.late.ranks) == 1)} late to their collectives again and again"
        elif told.late is not None and told.late.what == "moving":
            says += "; ranks come late in turns: the work is uneven, no rank is bad"
        yield Clue(weight, "dump", says, told.proofs)
    if not ending.well and ending.silent_s is not None and ending.last_beat is not None:
        yield Clue(-4.0, "time", f"nothing moved for the last {span(ending.silent_s)}", (ending.last_beat.last,))
    if not ending.well:
        if (slowest := slowing(found.beats)) is not None:
            says = f"steps take {slowest.slowed:.2g} times as long as in the beginning"
            yield Clue(-3.0, "talk", says, (slowest.last, slowest.first))
        if (behind := _behind(found)) is not None:
            beat, most = behind
            says = f"rank {beat.rank} came to {beat.values[-1]}, all others further, up to {most}"
            yield Clue(-3.0, "progress", says, (beat.last,), (beat.rank,) if beat.rank is not None else ())
        if found.laggard is not None:
            yield Clue(-3.0, "talk", f"rank {found.laggard.rank} is far slower than its peers", (found.laggard.line,))
        if found.arrived.named:
            yield Clue(
                -4.0,
                "watchdog",
                f"ranks that lag are named: {found.arrived.named[0].by}",
                (found.arrived.named[0].fact,),
            )
        if found.arrived.waits:
            yield Clue(-8.0, "watchdog", "a collective timed out", (found.arrived.waits[0].fact,))
        if found.failed.roots:
            yield Clue(
                -6.0, "traceback", f"a process failed: {found.failed.roots[0].says}", (found.failed.roots[0].fact,)
            )
        if found.stacks.mains:
            yield Clue(
                -4.0, "stack", "somebody took stacks of it: it was thought to hang", (found.stacks.mains[0].fact,)
            )
        bad = [fact for fact in job.of("exit") if fact["exitcode"] not in (0, None) or fact["signal"]]
        if bad:
            yield Clue(-5.0, "exit", "processes ended with an error", (bad[0],))
        if found.network.measured.slow or found.network.links:
            yield Clue(
                -4.0,
                "transport",
                "links or pairs of nodes are degraded",
                (*found.network.measured.slow[:1], *found.network.links[:1]),
            )
        for fact in found.network.measured.wrong[:1]:
            yield Clue(-4.0, "gpu", "nccl-tests gave wrong values", (fact,))
        stopped = job.of(
            "step_cancelled",
            "pod_evicted",
            "rendezvous_error",
            "connect_timeout",
            "store_timeout",
            "shm_error",
            "no_interface",
            "barrier_missing",
            "fingerprint",
            "desync",
            "task_oom",
            "oom_event",
            "storage_stall",
        )
        if stopped:
            yield Clue(-4.0, "scheduler", "something ended or blocked it", (stopped[0],))
        if found.storage:
            yield Clue(-2.0, "kernel", "storage stalled", (found.storage[0].fact,))


def _behind(found: Findings) -> tuple[Beat, int] | None:
    """The one rank whose counter ends two or more below all others': in step, ranks differ by one at most."""
    beats = [beat for beat in found.beats if beat.rank is not None and beat.values]
    if len(beats) < 3 or len({beat.last.shape for beat in beats}) > 1:
        return None
    beats.sort(key=lambda beat: beat.values[-1])
    last, *others = beats
    paces = [b - a for beat in others for a, b in itertools.pairwise(beat.values[-4:])]
    pace = max(1, sorted(paces)[len(paces) // 2]) if paces else 1
    if others[0].values[-1] - last.values[-1] >= 2 * pace and others[-1].values[-1] - others[0].values[-1] <= pace:
        return last, others[-1].values[-1]
    return None


CAUSE = Cause(
    id="none",
    title="no hang here",
    means="The job is healthy, still making progress, or ended well. Alarming lines are settings, retries that succeeded, somebody else's, or quoted text.",
    looks_like="Steps go on after every warning; the launcher reports success.",
    settles=(Check("is it still going? does the step counter move? (tail -f LOG)"),),
    fix=("Nothing to change.",),
    stopgap="",
    weigh=weigh,
    prior=-1.0,
    mechanism="no_hang",
    blames_ranks=False,
    verb="no hang: the job is healthy or ended well",
)
