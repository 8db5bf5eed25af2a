"""What failed by itself, and what only fell with it.

A cascade (a timeout, "connection closed by remote peer", SIGTERM or SIGABRT after the first death, torchrun's "root
cause") is never a root while something earlier stands.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Literal

from whichrank.facts import Fact
from whichrank.findings.arrivals import Arrivals
from whichrank.job.model import Job, before, moment

Kind = Literal["exception", "cuda_oom", "killed"]

# Exceptions that say no more than "somebody else went away", "the launcher stopped me" or "I waited too long".
_CASCADE_TYPE = re.compile(
    r"(?:^|\.)(?:DistBackendError|DistNetworkError|DistStoreError|DistError|ChildFailedError|SignalException|ProcessExitedException|ProcessRaisedException|"
    r"ActorDiedError|RayActorError|RayTaskError|WorkerCrashedError|ActorUnavailableError|NodeDiedError|OwnerDiedError|BrokenProcessPool|KeyboardInterrupt|SystemExit|ConnectionResetError|ConnectionAbortedError|BrokenPipeError|"
    r"ConnectionRefusedError|RendezvousConnectionError|RendezvousTimeoutError|RendezvousClosedError|NcclError|EngineDeadError|WorkerGroupError|TrainingFailedError|GeneratorExit|CancelledError|BarrierTimeout|RendezvousError|EngineGenerationError|nccl[A-Z]\w+)$"
)
_CASCADE_TEXT = re.compile(
    r"NCCL communicator was aborted|NCCL error|ncclRemoteError|ncclSystemError|ncclInternalError|ncclUnhandledCudaError|Connection (?:closed|reset) by|Socket Timeout|Timed out waiting|timed out after|Watchdog caught|"
    r"collective operation timeout|Broken pipe|store->get|wait timeout after|clients joined|client socket has timed out|monitoredBarrier|Detected mismatch between collectives|DataLoader worker.*(?:killed by signal|exited unexpectedly)|"
    r"\[/.*gloo/|gloo/transport|Application timeout caused pair closure|exited with (?:error )?code|Command .*(?:python|torchrun|accelerate|deepspeed|srun|mpirun).* (?:died|returned)|Signal \d+ \(SIG|store based barrier|EADDRINUSE|Address already in use|failed to listen|"
    r"bootstrap|not enough slots|Process \d+ terminated|worker process has died|The actor died|Engine core|leaked|peer.*(?:closed|exited)",
    re.I,
)


# NCCL's buffers did not fit; ROCm's runtime aborts, and says how little was left.
_NO_ROOM = re.compile(r"out of memory|OUT_OF_RESOURCES.*Available Free mem : \d{1,3} MB")
ABORT = 6


@dataclass(frozen=True, slots=True)
class Failure:
    kind: Kind
    rank: int | None
    host: str | None
    fact: Fact
    says: str


def _aborted(job: Job) -> int | None:
    """The only rank that ended by SIGABRT: a runtime that aborts does not say in which process."""
    found = {
        fact.rank
        for fact in job.of("exit")
        if fact.rank is not None and ABORT in (fact["signal"], -(fact["exitcode"] or 0))
    }
    return next(iter(found)) if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Failures:
    roots: tuple[Failure, ...]  # in time order, cascades left out
    cascades: tuple[Fact, ...]
    exits: tuple[Fact, ...]

    @property
    def first(self) -> Failure | None:
        return self.roots[0] if self.roots else None


def failures(job: Job, arrived: Arrivals) -> Failures:
    roots: list[Failure] = []
    cascades: list[Fact] = []
    lost = _peers_lost(job)
    for fact in job.of("exception", "cuda_oom"):
        if fact["caught"] or fact["chained"] or _quoted(fact) or _survived(job, fact):
            continue
        if is_cascade(fact) or _aftermath(fact, arrived) or _after_own_cascade(lost, fact):
            cascades.append(fact)
            continue
        if fact["launcher"] or not fact["type"]:
            continue  # a traceback whose last line is missing says that something failed, not what
        kind: Kind = "cuda_oom" if fact.kind == "cuda_oom" else "exception"
        roots.append(Failure(kind, fact.rank, fact.who.host or job.host_of(fact.rank), fact, _short(fact)))
    for fact in job.of("cuda_error"):
        if not fact["echo"] and _NO_ROOM.search(str(fact["message"] or "")):
            rank = fact.rank if fact.rank is not None else _aborted(job)
            roots.append(Failure("cuda_oom", rank, fact.who.host or job.host_of(rank), fact, _short(fact)))
    roots.extend(_kills(job, arrived))
    roots.extend(_summarised(job))
    roots = _in_order(roots)
    exits = tuple(job.of("exit"))
    return Failures(tuple(_merged(roots)), tuple(cascades), exits)


def _summarised(job: Job) -> list[Failure]:
    """What torchrun's summary says that a rank raised, where the traceback itself is not among the evidence."""
    found = []
    for fact in job.of("exit"):
        kind, _, message = str(fact["error"] or "").partition(": ")
        if not fact["root"] or not kind or fact.rank is None:
            continue
        if any(error.rank in (fact.rank, None) for error in job.of("exception", "cuda_oom") if not error["launcher"]):
            continue
        memory = kind.endswith("OutOfMemoryError")
        values = {"type": kind, "message": message, "site": fact["site"]}
        raised = replace(fact, kind="cuda_oom" if memory else "exception", values=values)
        if not is_cascade(raised):
            failed: Kind = "cuda_oom" if memory else "exception"
            found.append(Failure(failed, fact.rank, fact.who.host, raised, _short(raised)))
    return found


def _in_order(roots: list[Failure]) -> list[Failure]:
    """By time; within one file by line, whatever time a line without a stamp was given."""
    ordered = sorted(roots, key=lambda failure: moment(failure.fact))
    places: dict[str, list[int]] = {}
    for place, failure in enumerate(ordered):
        places.setdefault(failure.fact.spot.source.path, []).append(place)
    result = list(ordered)
    for found in places.values():
        by_line = sorted((ordered[place] for place in found), key=lambda failure: failure.fact.spot.place)
        for place, failure in zip(found, by_line, strict=True):
            result[place] = failure
    return result


def _peers_lost(job: Job) -> dict[tuple[int, str], list[Fact]]:
    """Where each rank says in each file that it lost its peers: the first place by line, and by time."""
    found: dict[tuple[int, str], list[Fact]] = defaultdict(list)
    for fact in job.of("peer_closed", "exception"):
        lost = fact.kind == "peer_closed" or (is_cascade(fact) and not fact["caught"])
        if fact.rank is not None and lost:
            found[fact.rank, fact.spot.source.path].append(fact)
    for place, facts in found.items():
        first = min(facts, key=lambda fact: fact.spot.line or 0)
        timed = [fact for fact in facts if fact.at_ns is not None and fact.clock != "near"]
        found[place] = [first, *sorted(timed, key=lambda fact: fact.at_ns or 0)[:1]]
    return found


def _after_own_cascade(lost: dict[tuple[int, str], list[Fact]], fact: Fact) -> bool:
    """The rank had lost its peers already, in the same file: what it raised then is no root."""
    if fact.rank is None or fact.kind != "exception":
        return False
    return any(before(other, fact) is True for other in lost.get((fact.rank, fact.spot.source.path), ()))


def _aftermath(fact: Fact, arrived: Arrivals) -> bool:
    """An error below the first timeout, with no clock of its own that says otherwise: what the abort brought about."""
    return (
        fact.kind == "exception"
        and fact.clock != "wall"
        and arrived.first is not None
        and before(arrived.first, fact) is True
    )


def is_cascade(fact: Fact) -> bool:
    """Does this exception only echo another failure?"""
    kind = str(fact["type"] or "")
    text = f"{fact['message'] or ''}"
    return bool(fact["launcher"] or _CASCADE_TYPE.search(kind) or _CASCADE_TEXT.search(f"{kind}: {text}"[:600]))


def _quoted(fact: Fact) -> bool:
    return fact.spot.source.kind in ("note", "metrics")


_PULSE = re.compile(r"\b(?:step|iter(?:ation)?|it|batch|epoch|update)\b|it/s|s/it", re.I)


def _survived(job: Job, fact: Fact) -> bool:
    """Training went on in the same file after it: an error that was handled, or a helper thread's."""
    after = [line for line in job.saying(_PULSE) if line.spot.source is fact.spot.source and before(fact, line) is True]
    if fact.rank is not None:
        return sum(line.rank == fact.rank for line in after) >= 3
    return len(after) >= 5


def _short(fact: Fact) -> str:
    kind = {"cuda_oom": "CUDA out of memory", "cuda_error": "CUDA error"}.get(fact.kind, "exception")
    kind = str(fact["type"] or kind).rsplit(".", 1)[-1]
    message = str(fact["message"] or "").split("\n")[0]
    text = f"{kind}: {message}" if message and not message.startswith(kind) else kind
    return text if len(text) < 140 else text[:137] + "…"


def _kills(job: Job, arrived: Arrivals) -> list[Failure]:
    """SIGKILL from outside, not the launcher's own after a failure. The earliest only: later ones are cleaning up."""
    own = {fact.who.pid for fact in job.of("launcher_kill")}
    kills = [fact for fact in job.of("exit") if fact["signal"] in (9, "SIGKILL") or fact["exitcode"] in (-9, 137)]
    kills = [fact for fact in kills if fact.who.pid not in own or fact.who.pid is None]
    found = []
    for fact in sorted(kills, key=moment):
        if _after_abort(job, fact, arrived):
            continue
        found.append(Failure("killed", fact.rank, fact.who.host, fact, "killed by SIGKILL"))
    return found


def _after_abort(job: Job, fact: Fact, arrived: Arrivals) -> bool:
    """A kill among the exits that follow a timeout or another exit with a signal of its own is cleaning up."""
    if fact["root"]:
        return False
    if any(before(missed, fact) is not False for missed in job.of("heartbeat_missed")):
        return True  # a rank monitor ends the rank that sends no heartbeats
    others = [other for other in job.of("exit") if other["root"] and other.who.pid != fact.who.pid]
    if any(other.spot.source is fact.spot.source for other in others):
        return True
    return arrived.first is not None and before(arrived.first, fact) is True


def _merged(roots: list[Failure]) -> list[Failure]:
    """One failure for each rank and kind: the first."""
    seen: set[tuple[object, ...]] = set()
    kept = []
    for failure in roots:
        key = (failure.kind, failure.rank, failure.fact.spot.source.path if failure.rank is None else "")
        if key not in seen:
            seen.add(key)
            kept.append(failure)
    return kept
