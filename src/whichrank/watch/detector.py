"""When is a rank stuck? When its phase outlives what the job's own history allows, and others wait for it.

Pure: what the rings show goes in, with a time; what is to be told comes out. Seconds throughout, all times on the
node's monotonic clock.

Each kind of phase has its own history, over all ranks: the recent steps', and the longest of the whole run. A phase
with enough history may last `FLOOR` seconds, five times the longest of the recent ones, or three times the longest
ever; one that was seen seldom (evaluation, checkpoint, compile) at least `SELDOM`; one that was never seen, `FIRST`. To
wait in a collective is a victim's phase: as long as some live rank is elsewhere, that rank is judged. Only where
all live ranks wait, the one that came last is. A rank that goes from phase to phase is at work, whatever its step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

FLOOR = 10.0
SELDOM = 45.0
ENOUGH = 5  # occurrences that make a history
FIRST: dict[str, float] = {
    "init": 60.0, "data": 90.0, "compute": 120.0, "optimizer": 60.0, "collective": 90.0, "checkpoint": 240.0,
    "evaluation": 300.0, "compile": 600.0, "teardown": 120.0,
}  # fmt: skip
ONCE = ("init", "compile", "teardown")  # of these the past tells little: seldom however often
UNKNOWN = 300.0  # first occurrence of any other phase: a program's own, or none that hooks know
SHARE = 0.1  # of the collective's timeout: later than that nobody is to hear of it
LEAST = 15.0  # seconds, however short the timeout
WAITED = 3.0  # seconds that another rank has waited in a collective, for a slow phase to harm anybody
STOPPED = 8.0  # seconds in state T
SLEPT = 5.0  # seconds between two looks: the watcher itself was stopped, or the machine


@dataclass(frozen=True, slots=True)
class Seen:
    """One rank as its ring and /proc show it now.

    since       when its present phase began
    recent      phase -> seconds it lasted in recent steps, oldest first
    steps       how many steps those are of: the number of the last one that ended
    at          what it waits in: (group, seq, op) of a collective, or a phase's own detail; compared, never read
    state       its process state as /proc has it ("T": stopped); "" where it is not known
    blocked     its stack stands in a collective or in the backward pass, where gradients are reduced
    timeout     of the collectives, where known
    """

    rank: int
    pid: int
    step: int
    phase: str
    since: float
    recent: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    at: object = None
    state: str = ""
    blocked: bool = False
    timeout: float | None = None

    @property
    def waits(self) -> bool:
        return (self.phase in ("collective", "init") or self.blocked) and self.state != "T"


@dataclass(frozen=True, slots=True)
class Stall:
    """`ranks` hold the others up since `since`; `all_wait`: every live rank waits in a collective, `ranks` are all."""

    ranks: tuple[int, ...]
    phase: str
    since: float
    noticed: float
    step: int
    waiting: tuple[int, ...]
    all_wait: bool = False


@dataclass(frozen=True, slots=True)
class Passed:
    """A stall is over: the job goes on."""

    stall: Stall
    at: float


class Detector:
    """Looks at all ranks of a node again and again; `look` says what is new. floor: seconds that any phase may last."""

    def __init__(self, floor: float = FLOOR) -> None:
        self.floor = floor
        self.longest: dict[str, float] = defaultdict(float)  # phase -> seconds, of the whole run
        self.counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))  # phase -> rank -> how often
        self.stall: Stall | None = None
        self._held: dict[int, tuple[int, str, float, object]] = {}  # what the ranks of the stall stood in
        self._last: dict[int, Seen] = {}
        self._stopped: dict[int, float] = {}
        self._now: float | None = None
        self._grace = 0.0

    def look(self, seen: Iterable[Seen], now: float) -> Stall | Passed | None:
        """What there is to tell. `seen`: the ranks that are alive."""
        ranks = sorted(seen, key=lambda one: one.rank)
        if self._now is not None and now - self._now > SLEPT:
            self._grace = now  # nothing of what passed meanwhile counts
        self._now = now
        self._learn(ranks)
        for one in ranks:
            if one.state == "T":
                self._stopped.setdefault(one.rank, now)
            else:
                self._stopped.pop(one.rank, None)
        if self.stall is not None:
            return self._over(ranks, now)
        self.stall = self._judge(ranks, now)
        return self.stall

    def limit(self, one: Seen) -> float:
        """Seconds that this rank's phase may last."""
        kind = one.phase
        recent = max(one.recent.get(kind, ()), default=0.0)
        if self.count(kind) >= ENOUGH and kind not in ONCE:
            return max(self.floor, 5 * recent, 3 * self.longest[kind])
        if self.count(kind):
            return max(SELDOM, 4 * self.longest[kind])
        first = FIRST.get(kind, UNKNOWN)
        return first if one.timeout is None else min(first, max(LEAST, SHARE * one.timeout))

    def count(self, kind: str) -> int:
        """How often one rank at most has been in this phase."""
        return max(self.counts[kind].values(), default=0)

    def _learn(self, ranks: list[Seen]) -> None:
        """From what ended since the last look: the phases of new steps, and phases that were left."""
        for one in ranks:
            before = self._last.get(one.rank)
            if before is None or before.pid != one.pid:
                new = dict(one.recent)
            elif one.step != before.step:
                new = (
                    {kind: past[-(one.step - before.step) :] for kind, past in one.recent.items()}
                    if one.step > before.step
                    else {}
                )
            else:
                new = {}
            for kind, past in new.items():
                lasted = [seconds for seconds in past if seconds > 0]
                self.counts[kind][one.rank] += len(lasted)
                self.longest[kind] = max(self.longest[kind], *lasted, 0.0)
            if before is not None and before.pid == one.pid and (before.phase, before.since) != (one.phase, one.since):
                # A phase outside of steps, or one longer than a step's record: it lasted until some time before now.
                lasted_at_least = max(0.0, min(one.since, self._now or one.since) - before.since)
                if before.phase not in new:
                    self.counts[before.phase][one.rank] += 1
                self.longest[before.phase] = max(
                    self.longest[before.phase], lasted_at_least if not before.waits else 0.0
                )
            self._last[one.rank] = one

    def _lasted(self, one: Seen, now: float) -> float:
        return now - max(one.since, self._grace)

    def out(self, one: Seen, now: float) -> bool:
        """Does it outlive its limit?"""
        halted = self._stopped.get(one.rank)
        if halted is not None and now - max(halted, self._grace) > STOPPED:
            return True
        return self._lasted(one, now) > self.limit(one)

    def _judge(self, ranks: list[Seen], now: float) -> Stall | None:
        waiting = [one for one in ranks if one.waits]
        others = [one for one in ranks if not one.waits]
        slow = [one for one in others if self.out(one, now)]
        if slow:
            waited = any(self._lasted(one, now) > WAITED for one in waiting)
            if not waited and len(slow) < len(others):
                return None  # nobody waits, and some are at work
            if not waited and not all(
                self._lasted(one, now) > 2 * self.limit(one)
                or self.count(one.phase) >= ENOUGH
                or one.rank in self._stopped
                for one in slow
            ):
                return None  # all are in a phase that nobody knows yet: twice as long for that
            return self._stall(slow, waiting, now)
        if waiting and not others:
            last = max(waiting, key=lambda one: one.since)
            if self.out(last, now):
                return self._stall(waiting, waiting, now, last.since)
        return None

    def _stall(self, ranks: list[Seen], waiting: list[Seen], now: float, since: float | None = None) -> Stall:
        self._held = {one.rank: (one.pid, one.phase, one.since, one.at) for one in ranks}
        first = min(ranks, key=lambda one: one.since)
        stopped = all(one.rank in self._stopped for one in ranks)
        return Stall(
            tuple(one.rank for one in ranks),
            "stopped" if stopped else first.phase,
            since if since is not None else max(one.since for one in ranks),
            now,
            first.step,
            tuple(one.rank for one in waiting),
            since is not None,
        )

    def _over(self, ranks: list[Seen], now: float) -> Passed | None:
        """Did every rank that held the others up go on? Where all waited, one that went on is enough."""
        assert self.stall is not None
        there = {one.rank: one for one in ranks}
        moved = [
            rank
            for rank, held in self._held.items()
            if (one := there.get(rank)) is not None
            and (one.pid, one.phase, one.since, one.at) != held
            and one.rank not in self._stopped
        ]
        if len(moved) < (1 if self.stall.all_wait else len(self._held)):
            return None
        passed, self.stall, self._held = Passed(self.stall, now), None, {}
        return passed
