"""1F1B and interleaved: each stage has a list of passes, and does each as soon as its input is there.

Order: Narayanan et al. 2021; Megatron-Core 0.12, pipeline_parallel/schedules.py. A stage waits for its transfers: it is
busy while it sends. Interleaved, Megatron sends what a forward pass made only after the backward pass that it is paired
with.
"""

from __future__ import annotations

from whichrank.plan.passes import Pass, Times

Step = tuple[str, int, int]  # kind, microbatch, chunk


def run(stages: int, microbatches: int, times: Times, chunks: int = 1) -> list[Pass]:
    """All passes of a step; 1F1B with one chunk per stage, interleaved with more."""
    orders = [_order(i, stages, microbatches, chunks) for i in range(stages)]
    warm = [_warm_up(i, stages, microbatches, chunks) for i in range(stages)]
    return _Worked(orders, warm, times, chunks).passes()


def _order(stage: int, stages: int, microbatches: int, v: int) -> list[Step]:
    """1F1B of one stage; interleaved for v > 1."""
    total = microbatches * v
    warm = _warm_up(stage, stages, microbatches, v)
    order: list[Step] = [_nth("F", k, stages, v) for k in range(warm)]
    for k in range(total - warm):
        order.append(_nth("F", warm + k, stages, v))
        order.append(_nth("BW", k, stages, v))
    order += [_nth("BW", k, stages, v) for k in range(total - warm, total)]
    return order


def _warm_up(stage: int, stages: int, microbatches: int, v: int) -> int:
    """Forward passes of a stage before its first backward one, without the one that it is paired with."""
    if v == 1:
        return min(stages - stage - 1, microbatches)
    if microbatches == stages:
        return microbatches * v  # Megatron: all forward, then all backward
    return min((stages - stage - 1) * 2 + (v - 1) * stages, microbatches * v)


def _nth(kind: str, k: int, stages: int, v: int) -> Step:
    """Megatron's order: each chunk does `stages` microbatches, then the next chunk; backward in reverse."""
    chunk = k % (stages * v) // stages
    microbatch = k // (stages * v) * stages + k % stages if v > 1 else k
    return kind, microbatch, chunk if kind == "F" else v - 1 - chunk


class _Worked:
    """The lists being done. `done`: when a pass ended, as its own stage knows; `sent`: as its neighbours do."""

    def __init__(self, orders: list[list[Step]], warm: list[int], times: Times, chunks: int) -> None:
        self.orders, self.warm, self.times, self.v = orders, warm, times, chunks
        self.free = [0.0] * len(orders)
        self.at = [0] * len(orders)
        self.last = len(orders) * chunks - 1
        self.done: dict[Step, float] = {}  # kind, microbatch, virtual stage -> end
        self.sent: dict[Step, float] = {}

    def passes(self) -> list[Pass]:
        found: list[Pass] = []
        moved = True
        while moved:
            moved = False
            for i in range(len(self.orders)):
                while (made := self._next(i)) is not None:
                    found.append(made)
                    moved = True
        if any(count < len(order) for count, order in zip(self.at, self.orders, strict=True)):
            raise RuntimeError(f"{len(self.orders)} stages of {self.v} chunks stall")  # a mistake in the order
        return found

    def _next(self, i: int) -> Pass | None:
        """The next pass of a stage, if its input is there."""
        at, order = self.at[i], self.orders[i]
        if at == len(order):
            return None
        kind, microbatch, chunk = order[at]
        virtual = chunk * len(self.orders) + i
        ready = self._input(kind, microbatch, virtual)
        if ready is None:
            return None
        start = max(self.free[i], ready)
        end = self.free[i] = start + self._busy(kind, i, virtual)
        self.done[kind, microbatch, virtual] = end
        self._send(i, at, end)
        self.at[i] += 1
        return Pass(i, kind, microbatch, chunk, start, end)

    def _send(self, i: int, at: int, end: float) -> None:
        """Make a pass's output known; of a pair, both outputs after the second."""
        order = self.orders[i]
        paired = self.v > 1 and at >= self.warm[i]
        if not (paired and self._before_backward(i, at)):
            kind, microbatch, chunk = order[at]
            self.sent[kind, microbatch, chunk * len(self.orders) + i] = end
        if paired and order[at][0] == "BW" and at > self.warm[i] and self._before_backward(i, at - 1):
            kind, microbatch, chunk = order[at - 1]
            self.sent[kind, microbatch, chunk * len(self.orders) + i] = end

    def _before_backward(self, i: int, at: int) -> bool:
        order = self.orders[i]
        return order[at][0] == "F" and at + 1 < len(order) and order[at + 1][0] == "BW"

    def _input(self, kind: str, microbatch: int, virtual: int) -> float | None:
        """When a pass's input is there; None: not known yet."""
        if kind == "F":
            return 0.0 if virtual == 0 else self.sent.get(("F", microbatch, virtual - 1))
        if virtual == self.last:
            return self.done.get(("F", microbatch, virtual))
        return self.sent.get(("BW", microbatch, virtual + 1))

    def _busy(self, kind: str, stage: int, virtual: int) -> float:
        """Seconds that a stage is occupied by a pass: its work and the transfer that it waits for."""
        times = self.times
        scale = times.stages[stage] if times.stages else 1.0
        work = times.forward if kind == "F" else times.backward + times.weights
        sends = virtual < self.last if kind == "F" else virtual > 0
        return work * scale / self.v + (times.transfer if sends else 0.0)
