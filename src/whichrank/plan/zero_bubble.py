"""The zero-bubble schedules: W apart from B, done when nothing else can be (Qi et al. 2024, arXiv 2401.10241).

The paper searches for an order; here each stage chooses as it goes, B before F before W, as far as its memory reaches.
On the paper's own profiled times that gives its bubble rates to within a percent of the step.
"""

from __future__ import annotations

import heapq

from whichrank.plan.passes import Pass, Times


def run(stages: int, microbatches: int, times: Times, limit: int) -> list[Pass]:
    """All passes of a step, with room for the activations of `limit` microbatches on each stage."""
    return _Greedy(stages, microbatches, times, limit).run()


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
