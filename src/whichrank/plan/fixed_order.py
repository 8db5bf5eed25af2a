"""1F1B and interleaved: each stage has a list of passes, and exchanges tensors with its neighbours between them.

Order and exchanges: Narayanan et al. 2021; Megatron-Core 0.12, pipeline_parallel/schedules.py. What a stage sends and
what it needs next goes in one batch (`batch_p2p_comm`), and the stage waits until all of it is done: until those it
sends to are ready to receive, too. A device-wide synchronisation follows (`batch_p2p_sync`, on by default), so that the
GPU idles until the host has launched the next pass. Interleaved, a forward and a backward pass share one exchange.
With `overlap_p2p_comm`, the default for interleaved since 2023, transfers go on beside the passes instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.plan.passes import Pass, Times

Step = tuple[str, int, int]  # kind, microbatch, chunk
Tensor = tuple[str, int, int]  # kind of the pass that made it, microbatch, virtual stage


@dataclass(slots=True)
class _Turn:
    """Passes that a stage does without an exchange between them, and the exchange before: None until it is over."""

    passes: list[Step]
    sends: list[Tensor]
    receives: list[Tensor]
    reached: float | None = None  # when the stage came to the exchange
    cost: float = 0.0  # seconds of the exchange


def run(stages: int, microbatches: int, times: Times, chunks: int = 1) -> list[Pass]:
    """All passes of a step; 1F1B with one chunk per stage, interleaved with more."""
    orders = [_order(i, stages, microbatches, chunks) for i in range(stages)]
    warm = [_warm_up(i, stages, microbatches, chunks) for i in range(stages)]
    paired = [stages * microbatches * chunks if times.overlap else warm[i] for i in range(stages)]
    turns = [_turns(i, order, paired[i], chunks, stages) for i, order in enumerate(orders)]
    return _Worked(turns, times, chunks).passes()


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


def _turns(stage: int, order: list[Step], warm: int, v: int, stages: int) -> list[_Turn]:
    """A stage's passes in turns; the last turn has none, it hands over what the one before made."""
    groups: list[list[Step]] = []
    for at, step in enumerate(order):
        paired = v > 1 and step[0] == "BW" and at > warm and order[at - 1][0] == "F"
        if paired:
            groups[-1].append(step)
        else:
            groups.append([step])
    last = stages * v - 1
    turns = []
    for before, now in zip([[], *groups], [*groups, []], strict=True):
        made = [(kind, mb, chunk * stages + stage) for kind, mb, chunk in before]
        wanted = [(kind, mb, chunk * stages + stage) for kind, mb, chunk in now]
        sends = [(kind, mb, at) for kind, mb, at in made if (at < last if kind == "F" else at > 0)]
        receives = [("F", mb, at - 1) for kind, mb, at in wanted if kind == "F" and at > 0]
        receives += [("BW", mb, at + 1) for kind, mb, at in wanted if kind == "BW" and at < last]
        turns.append(_Turn(now, sends, receives))
    turns[0].reached = 0.0
    return turns


class _Worked:
    """The turns being done, each as soon as its exchange is over."""

    def __init__(self, turns: list[list[_Turn]], times: Times, chunks: int) -> None:
        self.turns, self.times, self.v = turns, times, chunks
        self.at = [0] * len(turns)
        self.ends: dict[Tensor, list[_Turn]] = {}  # the two turns whose exchange moves a tensor
        for each in (turn for own in turns for turn in own):
            each.cost = self._cost(each)
            for tensor in (*each.sends, *each.receives):
                self.ends.setdefault(tensor, []).append(each)

    def passes(self) -> list[Pass]:
        found: list[Pass] = []
        moved = True
        while moved:
            moved = False
            for i in range(len(self.turns)):
                while self.at[i] < len(self.turns[i]) - 1 and self._next(i, found):
                    moved = True
        if any(at < len(own) - 1 for at, own in zip(self.at, self.turns, strict=True)):
            raise RuntimeError(f"{len(self.turns)} stages of {self.v} chunks stall")  # a mistake in the order
        return found

    def _next(self, i: int, found: list[Pass]) -> bool:
        """Do a stage's next turn, if all that its exchange moves can move."""
        turn, after = self.turns[i][self.at[i]], self.turns[i][self.at[i] + 1]
        now = self._exchanged(turn)
        if now is None:
            return False
        scale = (self.times.stages[i] if self.times.stages else 1.0) / self.v
        for kind, microbatch, chunk in turn.passes:
            start = now
            now += (self.times.forward if kind == "F" else self.times.backward + self.times.weights) * scale
            last = (kind, microbatch, chunk) == turn.passes[-1]
            found.append(Pass(i, kind, microbatch, chunk, start, now + (after.cost if last else 0.0)))
        after.reached = now
        self.at[i] += 1
        return True

    def _exchanged(self, turn: _Turn) -> float | None:
        """When a turn's exchange is over; None: not known yet."""
        if self.times.overlap:
            return self._arrived(turn)
        start, cost = turn.reached, turn.cost
        for tensor in (*turn.sends, *turn.receives):
            for other in self.ends[tensor]:
                if other.reached is None or start is None:
                    return None
                start = max(start, other.reached)
                cost = max(cost, other.cost)
        return None if start is None else start + cost

    def _arrived(self, turn: _Turn) -> float | None:
        """When a turn's own inputs are there, transfers going on beside the passes; None: not known yet."""
        start = turn.reached
        for tensor in turn.receives:
            made = next((other.reached for other in self.ends[tensor] if other is not turn), turn.reached)
            if made is None or start is None:
                return None
            start = max(start, made + self.times.transfer)
        return start

    def _cost(self, turn: _Turn) -> float:
        """Seconds of an exchange; what goes out and what comes in share no wire."""
        if self.times.overlap:
            return 0.0
        tensors = max(len(turn.sends), len(turn.receives))
        return tensors * self.times.transfer + self.times.launch if tensors else 0.0
