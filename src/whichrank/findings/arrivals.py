"""Who waited, in what, since when; and who did not arrive.

The rank that prints a timeout is a victim until shown otherwise. A rank counts as waiting on any trace that its
watchdog left, so that one lost line does not turn a victim into a suspect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichrank.facts import Fact
from whichrank.findings.gpu_load import idle_gpus
from whichrank.findings.operations import Operations
from whichrank.findings.raised import raised_apart, together
from whichrank.findings.ras import launched
from whichrank.findings.recorded import Recorded
from whichrank.job.model import Job, earliest, moment

if TYPE_CHECKING:
    from whichrank.findings.dumps import Told

WATCHDOG = ("timeout", "pg_status", "dump_signal", "generic_abort", "barrier_innocent")


@dataclass(frozen=True, slots=True)
class Wait:
    """One rank's unfinished collective. Sizes in elements, times in ns since 1970 (None: no clock)."""

    rank: int | None
    fact: Fact
    group: str | None
    seq: int | None
    op: str | None
    size: tuple[int | None, int | None]
    entered_ns: int | None

    @property
    def timeout_s(self) -> float | None:
        ms = self.fact["timeout_ms"]
        return ms / 1000 if isinstance(ms, int) else None


@dataclass(frozen=True, slots=True)
class Named:
    """Ranks that a message names as missing: the desync report, monitoredBarrier, idle queues, RAS."""

    ranks: tuple[int, ...]
    by: str
    fact: Fact
    sure: float  # probability that exactly these are the culprits, if the message is whole
    elsewhere: bool = False  # seen in another collective: it waited there itself
    idle: bool = False  # seen outside every collective: no trace of theirs is one of waiting


@dataclass(frozen=True, slots=True)
class Arrivals:
    waits: tuple[Wait, ...]
    waiting: frozenset[int]
    folded: int
    absent: frozenset[int]
    heard: frozenset[int]
    unseen: frozenset[int]
    doubtful: frozenset[int]
    named: tuple[Named, ...]
    first: Fact | None
    began_ns: int | None
    lossy: bool  # the watchdogs of like ranks left very different numbers of lines: lines are missing

    @property
    def suspects(self) -> frozenset[int]:
        """Absent ranks of whose logs enough is there that their silence means something."""
        return frozenset(self.absent - self.doubtful)

    @property
    def everyone_waited(self) -> bool:
        return bool(self.waits) and not self.absent

    @property
    def main(self) -> Wait | None:
        """The collective that most ranks waited in."""
        keys = Counter((wait.group, wait.seq, wait.op) for wait in self.waits)
        if not keys:
            return None
        key = min(keys, key=lambda k: (-keys[k], k[1] if k[1] is not None else 1 << 62))
        return next(wait for wait in self.waits if (wait.group, wait.seq, wait.op) == key)

    @property
    def timeout_s(self) -> float | None:
        return self.main.timeout_s if self.main else None


def arrivals(job: Job, enqueued: Operations, told: Told | None, kept: Recorded | None = None) -> Arrivals:
    waits = _waits(job)
    named = tuple(entry for entry in _named(job, enqueued) if not _came(entry, waits))
    if told is not None and told.hang:
        waits, named = _with_dumps(waits, named, told)
    if kept is not None:
        waits, named = _with_recorders(waits, named, kept)
    idle = {rank for entry in named if entry.idle for rank in entry.ranks}
    traces = {fact.rank for fact in job.of(*WATCHDOG) if fact.rank is not None} - idle
    joined = {rank for fact in job.of("desync") for rank in fact["joined"] or ()} - {
        rank for entry in named for rank in entry.ranks
    }
    timed_out = frozenset(wait.rank for wait in waits if wait.rank is not None)
    waiting = frozenset(traces) | joined | together(job, timed_out)
    # Ray folds each line of a watchdog on its own: each says "repeated 6x" for the same six ranks.
    times = [int(fact["times"] or 0) for fact in job.of("folded") if "Watchdog caught" in fact.spot.excerpt]
    folded = sum(times) // max(1, len(times))
    everyone = job.everyone() if job.world_size and (job.world_told or waiting) else set(job.ranks)
    members = _members(job, waits)
    if members:
        everyone = members  # who is not in the group was not waited for
    absent = frozenset(everyone - waiting) if waiting else frozenset()
    if folded and folded >= len(absent):
        absent = frozenset()
    heard = frozenset(rank for rank in absent if rank in job.ranks and (job.ranks[rank].said or job.ranks[rank].facts))
    doubtful = _uncollected(job, everyone, everyone - (absent - heard)) | frozenset(
        rank for rank in absent if rank in job.ranks and job.ranks[rank].coverage in ("cut", "rate_limited", "folded")
    )
    first = earliest(wait.fact for wait in waits if wait.fact.kind not in ("dump_wait", "phase"))
    entered = sorted(wait.entered_ns for wait in waits if wait.entered_ns is not None)
    began = entered[len(entered) // 2] if entered else None
    named += tuple(_idle(job, began, first, waiting, named))
    return Arrivals(
        tuple(waits),
        waiting,
        folded,
        absent,
        heard,
        frozenset(absent - heard),
        doubtful,
        named,
        first,
        began,
        _lossy(job),
    )


def _with_dumps(waits: list[Wait], named: tuple[Named, ...], told: Told) -> tuple[list[Wait], tuple[Named, ...]]:
    """Dumps say of each rank in what it waits; watchdogs only of those whose logs are there."""
    traced = told.traced
    printed = {wait.rank for wait in waits if wait.rank is not None}
    shown = [
        Wait(fact.rank, fact, fact.group, fact.seq, fact["op"], (None, None), fact.at_ns)
        for fact in told.waits
        if fact.rank not in printed
    ]
    waits = [wait for wait in waits if wait.rank is not None or not shown] + shown
    if traced.culprits and told.proofs:
        named = (Named(traced.culprits, "Flight Recorder", told.proofs[0], traced.sure, idle=True), *named)
    return waits, named


def _with_recorders(
    waits: list[Wait], named: tuple[Named, ...], kept: Recorded
) -> tuple[list[Wait], tuple[Named, ...]]:
    """Recorders say of each rank where it stood; watchdogs and dumps only of some."""
    known = {wait.rank for wait in waits if wait.rank is not None}
    shown = [
        Wait(fact.rank, fact, fact.group, fact.seq, fact["op"], (None, None), fact.at_ns)
        for fact in kept.waits
        if fact.rank not in known
    ]
    if kept.stood:
        ranks = tuple(sorted(fact.rank for fact in kept.stood if fact.rank is not None))
        named = (*named, Named(ranks, "its own recorder", kept.stood[0], 0.95, idle=True))
    return [wait for wait in waits if wait.rank is not None or not shown] + shown, named


def _uncollected(job: Job, everyone: set[int], seen: set[int]) -> frozenset[int]:
    """Whole nodes of which nothing was collected: their silence is that of the folder, not of the ranks.

    One file (or one group of files) holds all ranks of a node, and of other nodes there is no file at all.
    """
    unseen = everyone - seen
    if len(unseen) < 2 or not seen:
        return frozenset()
    files: dict[str, set[int]] = {}
    for rank in seen:
        for source in job.ranks[rank].sources if rank in job.ranks else ():
            if source.kind == "training":
                files.setdefault(source.path, set()).add(rank)
    sizes = {len(ranks) for ranks in files.values()}
    node = max(sizes, default=0)
    by_node = node >= 2 and all(min(ranks) % node == 0 and max(ranks) - min(ranks) < node for ranks in files.values())
    whole = (
        all(len({rank for rank in unseen if rank // node == block}) == node for block in {r // node for r in unseen})
        if by_node
        else False
    )
    return frozenset(unseen) if whole else frozenset()


def _members(job: Job, waits: Sequence[Wait]) -> set[int]:
    """The ranks of the group that was waited in, where the evidence lists all of them."""
    groups = Counter(wait.group for wait in waits if wait.group)
    if not groups:
        return set()
    group = groups.most_common(1)[0][0]
    facts = [fact for fact in job.of("group_member") if fact.group == group and fact.rank is not None]
    # Several subgroups may carry one number on different ranks: only those that share a waiting rank's size count.
    found = {fact.rank for fact in facts if fact.rank is not None}
    sizes = {fact["size"] for fact in facts}
    return found if len(sizes) == 1 and len(found) == next(iter(sizes)) else set()


def _lossy(job: Job) -> bool:
    """Each watchdog prints the same few lines; ranks that show one where others show four have lost some."""
    kinds: dict[int, set[tuple[str, object]]] = {}
    for fact in job.of("timeout", "pg_status"):
        if fact.rank is not None:
            kinds.setdefault(fact.rank, set()).add((fact.kind, bool(fact["echo"])))
    if len(kinds) < 3:
        return False
    most = max(len(found) for found in kinds.values())
    return sum(len(found) < most for found in kinds.values()) >= 0.25 * len(kinds)


def _waits(job: Job) -> list[Wait]:
    status: dict[tuple[int, int], str] = {}
    for fact in job.of("pg_status", "dump_signal"):
        if fact.rank is not None and fact.group:
            failed = fact["failed"]
            if isinstance(failed, int):
                status[fact.rank, failed] = fact.group
    first: dict[int | None, Wait] = {}
    anonymous: list[Wait] = []
    for fact in sorted(job.of("timeout"), key=lambda fact: (bool(fact["echo"]), moment(fact))):
        rank = fact.rank
        group = fact.group or (status.get((rank, fact.seq)) if rank is not None and fact.seq is not None else None)
        wait = Wait(rank, fact, group, fact.seq, fact["op"], (fact["numel_in"], fact["numel_out"]), _entered(job, fact))
        if rank is None:
            anonymous.append(wait)
        elif rank not in first:
            first[rank] = wait
    for fact in sorted(job.of("store_timeout", "unique_id_wait"), key=moment):
        # Waiting for a key that another rank was to set is waiting for that rank.
        if fact.rank is not None and fact.rank not in first and fact["joined"] is None:
            first[fact.rank] = Wait(fact.rank, fact, None, None, None, (None, None), _entered(job, fact))
    found = [first[rank] for rank in sorted(first, key=lambda rank: rank if rank is not None else -1)]
    return found or anonymous[:1]


def _entered(job: Job, fact: Fact) -> int | None:
    """Stamp minus "ran for N ms", where N is near the timeout: a stuck watchdog prints nonsense.

    A line without a stamp has that of the line before it, which may be the rank's last step: it waits since then.
    """
    ran, limit = fact["ran_ms"], fact["timeout_ms"]
    if fact.at_ns is None or not isinstance(limit, int):
        return None
    if not isinstance(ran, int):
        ran = limit
    if not 0.9 * limit <= ran <= 1.25 * limit + 5000:
        return None
    entered = fact.at_ns - ran * 1_000_000
    info = job.ranks.get(fact.rank) if fact.rank is not None and fact.clock == "near" else None
    spoke = (
        line.at_ns
        for line in (info.said if info else ())
        if line.at_ns is not None and line.spot.source is fact.spot.source and line.spot.place < fact.spot.place
    )
    return max((entered, *spoke))


def _named(job: Job, enqueued: Operations) -> list[Named]:
    found: list[Named] = []
    reports = [fact for fact in job.of("desync") if fact["lagging"]]
    if reports:
        tally = Counter(tuple(sorted(fact["lagging"])) for fact in reports)
        ranks, count = tally.most_common(1)[0]
        fact = next(fact for fact in reports if tuple(sorted(fact["lagging"])) == ranks)
        if 2 * len(ranks) <= max(len(job.everyone()), len(ranks)):  # "all joined, none finished" names nobody
            found.append(Named(ranks, "the desync report", fact, 0.97 if count == len(reports) else 0.7))
    barriers = [fact for fact in job.of("barrier_missing") if fact["ranks"]]
    if barriers:
        ranks = tuple(sorted({rank for fact in barriers for rank in fact["ranks"]}))
        found.append(Named(ranks, "monitoredBarrier", barriers[0], 0.95))
    idle = [
        fact
        for fact in job.of("dump_signal")
        if fact["from_rank"] is not None
        and isinstance(fact["enqueued"], int)
        and fact["enqueued"] == fact["completed"]
        and fact.rank is not None
    ]
    timed_out = {fact.rank for fact in job.of("timeout")}
    idle = [fact for fact in idle if fact.rank not in timed_out]
    if idle and len({fact.rank for fact in idle}) <= max(1, len(job.everyone()) // 2):
        found.append(
            Named(
                tuple(sorted({fact.rank for fact in idle if fact.rank is not None})),
                "its queue was empty: it was in host code",
                idle[0],
                0.9,
                idle=True,
            )
        )
    stuck = {fact.rank for fact in job.of("watchdog_stuck", "gil_stuck") if fact.rank is not None} - timed_out
    if stuck and len(stuck) <= max(1, len(job.everyone()) // 4):
        fact = next(fact for fact in job.of("watchdog_stuck", "gil_stuck") if fact.rank in stuck)
        found.append(Named(tuple(sorted(stuck)), "its watchdog thread itself was stuck", fact, 0.9))
    if timed_out and (apart := raised_apart(job)) is not None:
        found.append(
            Named(
                apart.few,
                f"the place of its error ({apart.few_at}, the others' {apart.many_at})",
                apart.few_fact,
                0.7,
                elsewhere=True,
            )
        )
    found.extend(_told_by_nccl(job, enqueued, bool(timed_out)))
    return found


def _came(named: Named, waits: Sequence[Wait]) -> bool:
    """Did all of them report themselves that they waited in the very collective in which most did?"""
    keys = Counter((wait.seq, wait.op) for wait in waits if wait.seq is not None)
    if not keys or named.idle or named.elsewhere:
        return False
    main = keys.most_common(1)[0][0]
    return set(named.ranks) <= {wait.rank for wait in waits if (wait.seq, wait.op) == main}


def _idle(
    job: Job, began: int | None, first: Fact | None, waiting: frozenset[int], named: Sequence[Named]
) -> list[Named]:
    """Ranks whose GPUs were idle while the others spun. Where a report names others, it knows better."""
    idle = [gpu for gpu in idle_gpus(job, began, first, waiting) if gpu.rank is not None]
    if not idle or named or not (first or job.of("stack", "process")):
        return []
    ranks = tuple(sorted({gpu.rank for gpu in idle if gpu.rank is not None}))
    return [Named(ranks, "its GPU was idle while the others spun", idle[0].fact, 0.8)]


def _told_by_nccl(job: Job, enqueued: Operations, hang: bool) -> list[Named]:
    """Who launched less than the others: NCCL's RAS counts, and its own list of operations."""
    found = []
    if (behind := launched(job, hang)) is not None:
        found.append(Named(behind.ranks, behind.says, behind.fact, behind.sure))
    if (late := enqueued.late) is not None:
        peers = len(late.level) + len(late.ahead)
        call = f"{late.call[0]} of {late.call[1]} elements" if late.call else "the next operation"
        ahead = f"; ranks {', '.join(map(str, late.ahead[:8]))} ran ahead" if late.ahead else ""
        says = f"NCCL's list of operations ({call}, number {late.number}, was not called{ahead})"
        found.append(Named(late.behind, says, late.fact, (0.9 if peers >= 2 else 0.6) if hang else 0.55))
    return found
