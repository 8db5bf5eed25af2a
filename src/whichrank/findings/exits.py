"""How processes ended by their launcher's word: whom it saw fail first, and whose process can no longer be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whichrank.facts import Fact
from whichrank.findings.arrivals import Arrivals
from whichrank.job.model import Job, earliest

ABORTED, TERMINATED = 6, 15  # what a watchdog does to a rank that waited; what a launcher does after a failure
_UNFINISHED = ("RUNNING", "PENDING", "COMPLETING", "SUSPENDED", "CONFIGURING", None)
_OF_A_RANK = ("exit", "oom_kill", "pod_oom", "pod_evicted", "container_exit")


@dataclass(frozen=True, slots=True)
class FirstSeen:
    """The failure that a launcher saw first, where nothing else tells of any.

    victim: it ended as ranks do that waited for another one. sure: probability that it held the others up.
    """

    fact: Fact
    how: str
    victim: bool
    sure: float


@dataclass(frozen=True, slots=True)
class Gone:
    """Whose processes have ended. job: the line that says so of all of them; aborted: the line of a timeout that ends ranks."""

    job: Fact | None
    ranks: dict[int, Fact]
    aborted: Fact | None

    def of(self, rank: int) -> Fact | None:
        return self.ranks.get(rank) or self.job


def gone(job: Job, arrived: Arrivals) -> Gone:
    ranks: dict[int, Fact] = {}
    for fact in job.of(*_OF_A_RANK):
        if fact.rank is not None:
            ranks.setdefault(fact.rank, fact)
    for fact in job.of("exit"):  # its launcher ends the ranks beside it
        if fact["root"] or fact["first"]:
            for rank in job.ranks_on(fact.who.host):
                ranks.setdefault(rank, fact)
    timeouts = [
        fact for fact in job.of("generic_abort", "timeout") if fact.kind == "generic_abort" or fact.rank is not None
    ]
    return Gone(_end_of_all(job), ranks, earliest(timeouts) if arrived.waits else None)


def _end_of_all(job: Job) -> Fact | None:
    """The scheduler's or the launcher's word that the job is over."""
    over = [fact for fact in job.of("job_state") if fact["state"] not in _UNFINISHED]
    over += [fact for fact in job.of("success") if fact["scope"] != "rank"]
    over += job.of("step_cancelled")
    over += [fact for fact in job.of("exit") if fact["root"] and (fact.who.host is None or len(job.hosts) < 2)]
    return earliest(over)


def first_seen(job: Job, arrived: Arrivals, cascades: Sequence[Fact]) -> FirstSeen | None:
    """torchrun's "Root Cause (first observed failure)", if no rank says that it waited: then its own word is all there is.

    It is the first that *torchrun* saw, on its node: mostly a rank that a watchdog ended, because it had waited.
    """
    roots = [fact for fact in job.of("exit") if fact["root"] and fact.rank is not None]
    fact = earliest(roots)
    if fact is None or arrived.waits:
        return None
    signal, code = fact["signal"], fact["exitcode"]
    error = str(fact["error"] or "")
    lost = bool(error or cascades or job.of("peer_closed"))  # an error of its own would be a failure, see failures.py
    victim = signal in (ABORTED, TERMINATED) or (lost and not isinstance(signal, int))
    how = _NAMES.get(signal, f"signal {signal}") if isinstance(signal, int) else f"exit code {code}"
    how = error.partition(":")[0] or how
    if victim:
        return FirstSeen(fact, how, True, 0.0)
    # A crash is a rank's own; an exit code may be of an exception that only says that a peer went away.
    return FirstSeen(fact, how, False, 0.6 if isinstance(signal, int) else 0.45)


_NAMES = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
