"""Pipeline schedules: in which order each stage works, and an event simulator that says when.

A pass is F (forward), B (backward for inputs) or W (backward for weights). 1F1B and interleaved do B and W in one go,
in an order that is fixed beforehand (Narayanan et al. 2021; Megatron-Core 0.12 schedules.py). The zero-bubble family
(Qi et al. 2024, arXiv 2401.10241) keeps W apart and does it when nothing else can be done; here each stage chooses
as it goes, B before F before W, as far as its memory reaches.

Transfers: the older schedules wait for them (a stage is busy while it sends and receives), the zero-bubble ones overlap.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from whichrank.errors import UsageProblem

SCHEDULES = ("1f1b", "interleaved", "zb-1p", "zb-2p")


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one microbatch on one stage with all its layers; `transfer` of its activations to a neighbour.

    `stages` scales each stage's passes: a stage with fewer layers is faster. Empty: all alike. Of the zero-bubble
    schedules: `exposed`, the share of a transfer that a stage cannot hide (the older ones wait for all of it), and
    `kept`, the share of a microbatch's activations that W still needs after B.
    """

    forward: float
    backward: float
    weights: float
    transfer: float
    stages: tuple[float, ...] = ()
    exposed: float = 0.5
    kept: float = 0.8

    @property
    def work(self) -> float:
        return self.forward + self.backward + self.weights


@dataclass(frozen=True, slots=True)
class Pass:
    """A piece of work that was done. `stage` is the worker, `chunk` which of its model parts."""

    stage: int
    kind: str
    microbatch: int
    chunk: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Run:
    """A simulated step. `seconds`: the longest that a stage is occupied, from its first pass to its last."""

    schedule: str
    passes: tuple[Pass, ...]
    seconds: float
    bubble: float  # share of that time in which the average stage does nothing useful
    held: tuple[float, ...]  # most microbatches whose activations each stage kept


def simulate(schedule: str, stages: int, microbatches: int, times: Times, chunks: int = 1) -> Run:
    """A step of `microbatches` over `stages`.

    Raises:
        UsageProblem: interleaving with microbatches that are no multiple of the stages.
    """
    if schedule in ("1f1b", "interleaved"):
        v = chunks if schedule == "interleaved" else 1
        if v > 1 and microbatches % stages:
            raise UsageProblem(
                f"interleaved: {microbatches} microbatches are no multiple of {stages} stages, as Megatron wants it"
            )
        passes = _fixed([_order(i, stages, microbatches, v) for i in range(stages)], times, v)
    else:
        limit = {"zb-1p": stages, "zb-2p": 2 * stages}.get(schedule)
        if limit is None:
            raise UsageProblem(f"no schedule {schedule!r}: {', '.join(SCHEDULES)}")
        passes = _Greedy(stages, microbatches, times, limit).run()
    return _measured(schedule, passes, stages, microbatches, times)


def _measured(schedule: str, passes: list[Pass], stages: int, microbatches: int, times: Times) -> Run:
    by_stage: list[list[Pass]] = [[] for _ in range(stages)]
    for each in passes:
        by_stage[each.stage].append(each)
    longest = max(max(p.end for p in own) - min(p.start for p in own) for own in by_stage)
    scale = sum(times.stages) / stages if times.stages else 1.0
    useful = microbatches * times.work * scale
    parts = max(p.chunk for p in passes) + 1
    return Run(
        schedule, tuple(passes), longest, 1 - useful / longest, tuple(_held(own, parts, times.kept) for own in by_stage)
    )


def _held(own: list[Pass], parts: int, kept: float) -> float:
    """Most microbatches in memory: all of one from F to B, a part of it until W."""
    freed = {"B": 1 - kept, "W": kept, "BW": 1.0}
    changes = []
    for each in own:
        if each.kind == "F":
            changes.append((each.start, 1, 1.0 / parts))
        else:
            changes.append((each.end, 0, -freed[each.kind] / parts))
    now = most = 0.0
    for _, _, change in sorted(changes):
        now += change
        most = max(most, now)
    return round(most, 3)


# --- orders that are fixed beforehand

Step = tuple[str, int, int]  # kind, microbatch, chunk


def _order(stage: int, stages: int, microbatches: int, v: int) -> list[Step]:
    """1F1B of one stage; interleaved for v > 1."""
    total = microbatches * v
    warm = stages - stage - 1 if v == 1 else (stages - stage - 1) * 2 + (v - 1) * stages
    warm = min(warm, total)
    order: list[Step] = [_nth("F", k, stages, v) for k in range(warm)]
    for k in range(total - warm):
        order.append(_nth("F", warm + k, stages, v))
        order.append(_nth("BW", k, stages, v))
    order += [_nth("BW", k, stages, v) for k in range(total - warm, total)]
    return order


def _nth(kind: str, k: int, stages: int, v: int) -> Step:
    """Megatron's order: each chunk does `stages` microbatches, then the next chunk; backward in reverse."""
    chunk = k % (stages * v) // stages
    microbatch = k // (stages * v) * stages + k % stages if v > 1 else k
    return kind, microbatch, chunk if kind == "F" else v - 1 - chunk


def _fixed(orders: list[list[Step]], times: Times, v: int) -> list[Pass]:
    """Each stage does its list in order, each pass as soon as its input is there."""
    stages = len(orders)
    free = [0.0] * stages
    at = [0] * stages
    done: dict[tuple[str, int, int], float] = {}  # kind, microbatch, virtual stage -> end
    passes: list[Pass] = []
    last = stages * v - 1
    moved = True
    while moved:
        moved = False
        for i in range(stages):
            while at[i] < len(orders[i]):
                kind, microbatch, chunk = orders[i][at[i]]
                virtual = chunk * stages + i
                ready = _input(kind, microbatch, virtual, last, done)
                if ready is None:
                    break
                start = max(free[i], ready)
                busy = _busy(kind, i, virtual, last, times, v)
                done[kind, microbatch, virtual] = free[i] = start + busy
                passes.append(Pass(i, kind, microbatch, chunk, start, start + busy))
                at[i] += 1
                moved = True
    return passes


def _input(
    kind: str, microbatch: int, virtual: int, last: int, done: dict[tuple[str, int, int], float]
) -> float | None:
    """When a pass's input is there; None: not known yet."""
    if kind == "F":
        return 0.0 if virtual == 0 else done.get(("F", microbatch, virtual - 1))
    if virtual == last:
        return done.get(("F", microbatch, virtual))
    return done.get(("BW", microbatch, virtual + 1))


def _busy(kind: str, stage: int, virtual: int, last: int, times: Times, v: int) -> float:
    """Seconds that a stage is occupied by a pass: its work and the transfer that it waits for."""
    scale = times.stages[stage] if times.stages else 1.0
    work = times.forward if kind == "F" else times.backward + times.weights
    sends = virtual < last if kind == "F" else virtual > 0
    return work * scale / v + (times.transfer if sends else 0.0)


# --- zero bubble: chosen as it goes


class _Greedy:
    """Stages that do B before F before W; W early only where nothing comes in meanwhile, or memory is full."""

    def __init__(self, stages: int, microbatches: int, times: Times, limit: int) -> None:
        self.p, self.m, self.times, self.limit = stages, microbatches, times, limit
        self.forward_at: list[list[float]] = [[] for _ in range(stages)]  # when inputs of F arrive
        self.backward_at: list[list[float]] = [[] for _ in range(stages)]
        self.forward_at[0] = [0.0] * microbatches
        self.done = [{"F": 0, "B": 0, "W": 0} for _ in range(stages)]
        self.free = [0.0] * stages
        self.passes: list[Pass] = []

    def run(self) -> list[Pass]:
        wake = [(0.0, i) for i in range(self.p)]
        heapq.heapify(wake)
        while wake:
            now, i = heapq.heappop(wake)
            if now < self.free[i] or self.done[i]["W"] == self.m:
                continue
            kind = self._choose(i, now)
            if not kind:
                later = [t for t in self._arrivals(i) if t > now]
                if later:
                    heapq.heappush(wake, (min(later), i))
                continue
            for at, whom in self._do(i, kind, now):
                heapq.heappush(wake, (max(at, self.free[whom]), whom))
        return self.passes

    def _arrivals(self, i: int) -> list[float]:
        """When the next F and B of a stage can start, as far as that is known."""
        found = []
        done = self.done[i]
        if done["B"] < len(self.backward_at[i]):
            found.append(self.backward_at[i][done["B"]])
        if done["F"] < len(self.forward_at[i]) and self._room(i):
            found.append(self.forward_at[i][done["F"]])
        return found

    def _room(self, i: int) -> bool:
        done = self.done[i]
        return self._memory(i) < self.limit and done["F"] - done["B"] < max(1, self._ahead(i))

    def _memory(self, i: int) -> float:
        """Microbatches held: all of one from F to B, a part of it until W."""
        done = self.done[i]
        return done["F"] - done["B"] + self.times.kept * (done["B"] - done["W"])

    def _ahead(self, i: int) -> int:
        """Forward passes that a stage may be ahead of its backward ones."""
        return self.p - i if self.limit == self.p else 2 * (self.p - i) + 1

    def _choose(self, i: int, now: float) -> str:
        done = self.done[i]
        backward = done["B"] < len(self.backward_at[i]) and self.backward_at[i][done["B"]] <= now
        forward = done["F"] < len(self.forward_at[i]) and self.forward_at[i][done["F"]] <= now and self._room(i)
        weights = done["W"] < done["B"]
        if backward:
            return "B"
        if forward:
            return "F"
        soon = min(self._arrivals(i), default=float("inf"))
        if weights and (soon - now > 0.5 * self.times.weights or self._memory(i) >= self.limit):
            return "W"
        return ""

    def _do(self, i: int, kind: str, now: float) -> list[tuple[float, int]]:
        """Do a pass; whom to wake when."""
        scale = self.times.stages[i] if self.times.stages else 1.0
        took = {"F": self.times.forward, "B": self.times.backward, "W": self.times.weights}[kind] * scale
        sends = (kind == "F" and i + 1 < self.p) or (kind == "B" and i > 0)
        end = now + took + (self.times.exposed * self.times.transfer if sends else 0.0)
        self.passes.append(Pass(i, kind, self.done[i][kind], 0, now, end))
        self.done[i][kind] += 1
        self.free[i] = end
        wakes = [(end, i)]
        arrives = end + (1 - self.times.exposed) * self.times.transfer
        if kind == "F":
            if i + 1 < self.p:
                self.forward_at[i + 1].append(arrives)
                wakes.append((arrives, i + 1))
            else:
                self.backward_at[i].append(end)
        elif kind == "B" and i > 0:
            self.backward_at[i - 1].append(arrives)
            wakes.append((arrives, i - 1))
        return wakes


def closed_form(schedule: str, stages: int, microbatches: int, times: Times, chunks: int = 1) -> float:
    """The textbook's bubble in units of ideal time (all of a stage's work): optimistic, the simulator says by how much.

    1F1B (p-1)/m, interleaved (p-1)/(v m), ZB-1p a third of 1F1B's where F, B and W take as long, ZB-2p none.
    """
    p, m = stages, microbatches
    if schedule == "interleaved":
        return (p - 1) / (chunks * m)
    if schedule == "zb-1p":
        return (p - 1) * max(0.0, times.forward + times.backward - times.weights) / (m * times.work)
    return 0.0 if schedule == "zb-2p" else (p - 1) / m
