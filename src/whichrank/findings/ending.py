"""How it ended: well, still running, or not; and how the configured limits compare with the ones in force."""

from __future__ import annotations

import re
from dataclasses import dataclass

from whichrank.facts import Fact
from whichrank.findings.arrivals import Arrivals
from whichrank.findings.failures import Failures
from whichrank.findings.progress import Beat
from whichrank.job.model import Job, before, moment, when

ALARMS = (
    "timeout",
    "exception",
    "cuda_oom",
    "cuda_error",
    "oom_kill",
    "oom_event",
    "xid",
    "gpu_lost",
    "exit",
    "nccl_error",
    "step_cancelled",
    "pod_evicted",
    "dl_worker_killed",
)


@dataclass(frozen=True, slots=True)
class Ending:
    """`well`: ended with success; `alive`: progress goes on after every alarm, to the end of the evidence."""

    well: bool
    alive: bool
    success: Fact | None
    last_beat: Beat | None
    fatal_after: Fact | None  # what speaks against: a failure after the success
    beats_after: int  # progress lines after the last alarm
    silent_s: float | None  # seconds from the last progress line to the end of the evidence, if that is long


def ending(job: Job, arrived: Arrivals, failed: Failures, beats: tuple[Beat, ...]) -> Ending:
    successes = [
        fact
        for fact in job.of("success")
        if fact["scope"] != "rank" and fact.spot.source.kind in ("training", "unknown", "scheduler")
    ]
    per_rank = {fact.rank for fact in job.of("success") if fact.rank is not None}
    if not successes and job.world_size and len(per_rank) >= job.world_size:
        successes = [max(job.of("success"), key=moment)]
    success = max(successes, key=moment, default=None)
    fatal = [fact for fact in job.of("timeout", "exit") if fact.kind != "exit" or not _harmless(fact)]
    fatal += [failure.fact for failure in failed.roots]
    fatal_after = next((fact for fact in fatal if success is not None and before(success, fact) is True), None)
    beat = max(beats, key=lambda b: moment(b.last) if b.last.at_ns else (0.0, "", b.last.spot.place), default=None)
    alarms = [fact for fact in job.of(*ALARMS) if not (fact.kind == "exit" and _harmless(fact)) and not fact["caught"]]
    latest = max(alarms, key=moment, default=None)
    after = _beats_after(job, beats, latest)
    well = success is not None and fatal_after is None and not _unanswered(fatal, success)
    silent = _silence(job, beats)
    alive = not well and bool(beats) and after >= 3 and silent is None
    return Ending(well, alive, success, beat, fatal_after, after, silent)


def _silence(job: Job, beats: tuple[Beat, ...]) -> float | None:
    """How long nothing moved before the evidence ends: much longer than a step and than any pause before."""
    lasts = [beat.last.at_ns for beat in beats if beat.last.at_ns]
    ends = [at for item in job.items() if (at := when(item)) is not None]
    typical = [beat.typical_s for beat in beats if beat.typical_s]
    if not lasts or not typical:
        return None
    quiet = (max(ends) - max(lasts)) / 1e9
    longest = max((max(beat.gaps_s) for beat in beats if beat.gaps_s), default=0.0)
    return quiet if 120 < quiet < 30 * 86400 and quiet > 10 * min(typical) and quiet > 1.5 * longest else None


def _harmless(fact: Fact) -> bool:
    return bool(fact["exitcode"] == 0)


def _unanswered(fatal: list[Fact], success: Fact) -> bool:
    """Failures whose order to the success is unknown stand against it, unless they stand before it in one file."""
    return any(before(fact, success) is None for fact in fatal)


_PULSE = re.compile(r"\b(?:step|iter|it|batch|epoch|update)\w*\b", re.I)


def _beats_after(job: Job, beats: tuple[Beat, ...], latest: Fact | None) -> int:
    """Progress lines after the last alarm (all of them if there was none)."""
    if latest is None:
        return sum(beat.count for beat in beats)
    shapes = {(beat.rank, beat.source) for beat in beats}
    lines = [line for line in job.saying(_PULSE) if (line.rank, line.spot.source.path) in shapes]
    return sum(before(latest, line) is True for line in lines)


@dataclass(frozen=True, slots=True)
class Limit:
    """A configured time limit beside the one that the watchdog printed."""

    wanted_s: float
    in_force_s: float
    name: str
    fact: Fact
    timeout: Fact


_LIMIT_NAME = re.compile(r"timeout", re.I)
_OTHER_LIMIT = re.compile(
    r"heartbeat|barrier|loader|data|retry|read|connect|socket|join|store|rdzv|rendezvous|monitor|request|http|http_?client|health|ib_timeout|shutdown|kill|term|exit|idle|lock|wait_?time|watchdog|abort|s3|fsspec|server|vllm|ray|scheduler|keepalive|session|query|rpc|graceful|async_error|hung",
    re.I,
)


def limit(job: Job, arrived: Arrivals) -> Limit | None:
    """A collective timeout that was asked for and differs from the one in force."""
    first = arrived.first
    if first is None or not isinstance(first["timeout_ms"], int):
        return None
    in_force = first["timeout_ms"] / 1000
    for fact in job.of("config", "env_set"):
        name = str(fact["name"] or "")
        wanted = fact["seconds"]
        if (
            not _LIMIT_NAME.search(name)
            or (_OTHER_LIMIT.search(name) and name.upper() != "NCCL_TIMEOUT")
            or not isinstance(wanted, (int, float))
            or wanted <= 0
        ):
            continue
        if not (0.8 <= wanted / in_force <= 1.25):
            return Limit(float(wanted), in_force, name, fact, first)
    return None


def agreed_limit(job: Job, arrived: Arrivals) -> Fact | None:
    """A configured limit that is the one in force: where to change it."""
    first = arrived.first
    if first is None or not isinstance(first["timeout_ms"], int):
        return None
    for fact in job.of("config"):
        if (
            _LIMIT_NAME.search(str(fact["name"]))
            and isinstance(fact["seconds"], (int, float))
            and abs(fact["seconds"] - first["timeout_ms"] / 1000) < 1
        ):
            return fact
    return None
