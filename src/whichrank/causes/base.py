"""What a cause is, and what speaks for or against it.

Weights are log-likelihood ratios (natural logarithm): +3 is about 20:1 for, -3 about 1:20 against. Clues from one kind of
source count once, at their strongest; verdict.py adds them to the cause's prior.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from whichrank.facts import Fact, Said
from whichrank.findings import Findings
from whichrank.findings.failures import Failure
from whichrank.findings.hosts import pressed, timely
from whichrank.job.clocks import span
from whichrank.job.model import Job, before
from whichrank.model import Check, Mechanism

if TYPE_CHECKING:
    from whichrank.findings.dumps import Told

Kind = Literal[
    "kernel",
    "scheduler",
    "exit",
    "traceback",
    "watchdog",
    "absence",
    "talk",
    "progress",
    "stack",
    "worker",
    "settings",
    "transport",
    "counters",
    "gpu",
    "setup",
    "order",
    "time",
    "operations",
    "recorder",  # what a rank's own recorder says of its phase
    "dump",
    "hint",  # what a framework's own detector says: never counted towards a proof
]


# What makes the next hang leave dumps: both names of what was renamed.
RECORD = "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1"


@dataclass(frozen=True, slots=True)
class Clue:
    """One thing that speaks for (weight > 0) or against a cause.

    kind      what sort of source it comes from: clues of one kind are not independent
    facts     the lines that carry it
    ranks     whom it accuses, if anybody; hosts likewise
    decisive  decides alone (docs/report.md names which may)
    """

    weight: float
    kind: Kind
    says: str
    facts: tuple[Fact | Said, ...] = ()
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    decisive: bool = False
    mechanism: Mechanism | None = None
    sure_of_ranks: float = 0.9


Weigh = Callable[[Job, Findings], Iterator[Clue]]


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of docs/causes.md: the texts that a report quotes, and the function that weighs it."""

    id: str
    title: str
    means: str
    looks_like: str
    settles: tuple[Check, ...]
    fix: tuple[str, ...]
    stopgap: str
    weigh: Weigh
    prior: float = -2.0
    mechanism: Mechanism = "undecided"
    blames_ranks: bool = True  # False: the fault is no rank's (a link, a version, a shared service)
    verb: str = ""  # "{who} {verb}": the sentence of the verdict
    dont: str = ""


def facts_of(items: Iterable[Fact | Said | None], most: int = 4) -> tuple[Fact | Said, ...]:
    return tuple([item for item in items if item is not None][:most])


def one(rank: int | None) -> tuple[int, ...]:
    return () if rank is None else (rank,)


def host(name: str | None) -> tuple[str, ...]:
    return () if name is None else (name,)


def ago(job: Job, found: Findings, fact: Fact | Said) -> str:
    """How long before the first timeout: " 29 min before the first timeout", or nothing where no clock tells."""
    first = found.arrived.first
    if (
        first is None
        or first.at_ns is None
        or fact.at_ns is None
        or (isinstance(fact, Fact) and fact.clock in ("boot", "near"))
    ):
        return ""
    if before(first, fact) is True:
        return ""
    seconds = (first.at_ns - fact.at_ns) / 1e9
    return f" {span(seconds)} before the first timeout" if 1 < seconds < 86400 * 3 else ""


def waited(found: Findings) -> tuple[Fact | Said, ...]:
    """The line that shows what the others waited in."""
    return (found.arrived.main.fact,) if found.arrived.main else ()


def absent_on(job: Job, found: Findings, where: str | None) -> tuple[int, ...]:
    """The ranks of this host that did not arrive."""
    return tuple(sorted(rank for rank in found.arrived.suspects if where and job.host_of(rank) == where))


def pressure(job: Job, found: Findings, resource: str, weight: float, says: str, sure: float) -> Iterator[Clue]:
    """The first severe shortage of memory, io or cpu in the window; `says` has a place for the host."""
    for fact in job.of("pressure"):
        if fact["resource"] == resource and timely(fact, found.window) and (how := pressed(fact)):
            where = says.format(fact.who.host or "a host")
            ranks = absent_on(job, found, fact.who.host)
            yield Clue(weight, "counters", f"{where}: {how}", (fact,), ranks, host(fact.who.host), sure_of_ranks=sure)
            return


def own_failure(found: Findings, weight: float, says: str = "a rank failed by itself") -> Iterator[Clue]:
    """Against a cause that all ranks share: one of them failed on its own."""
    if (first := found.failed.first) is not None:
        yield Clue(weight, "order", f"{says}: {first.says}", (first.fact,))


def outdone(found: Findings, failure: Failure, weight: float) -> Iterator[Clue]:
    """Against a failure as the cause: another came first, or the job went on to a good end."""
    first = found.failed.first
    if first is not None and first is not failure:
        yield Clue(weight, "order", f"something else failed first: {first.says}", (first.fact,))
    if found.ending.well:
        yield Clue(-6.0, "time", "the job went on and ended well", facts_of([found.ending.success]))


def by_dumps(found: Findings, *mechanisms: Mechanism) -> Told | None:
    """What the dumps say, where they show one of these mechanisms."""
    told = found.told
    return told if told is not None and told.traced.mechanism in mechanisms else None
