"""What a pipeline's stages do: passes, and how long each takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from whichrank.plan.catalog import Book


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one microbatch on one stage with all its layers; `transfer` of its activations to a neighbour.

    `stages` scales each stage's passes: a stage with fewer layers is faster. Empty: all alike. `launch`: how long a GPU
    idles after an exchange of 1F1B or interleaved until the host has started the next pass; `overlap`: exchanges of
    interleaved go on beside the passes, and none waits for more than its own input. Of the zero-bubble schedules: `exposed`, the share of a transfer that a stage cannot hide (the older ones wait for all of it), and
    `kept`, the share of a microbatch's activations that W still needs after B.
    """

    forward: float
    backward: float
    weights: float
    transfer: float
    stages: tuple[float, ...] = ()
    exposed: float = 0.5
    kept: float = 0.8
    launch: float = 0.0
    overlap: bool = False

    @property
    def work(self) -> float:
        return self.forward + self.backward + self.weights


def tuned(times: Times, book: Book) -> Times:
    """The same durations with the catalogue's constants for exchanges and memory."""
    exposed, kept, launch = (book.number(f"assumptions.pipeline.{name}") for name in ("exposed", "kept", "launch"))
    return replace(times, exposed=exposed, kept=kept, launch=launch)


@dataclass(frozen=True, slots=True)
class Pass:
    """A piece of work that was done. `stage` is the worker, `chunk` which of its model parts."""

    stage: int
    kind: str
    microbatch: int
    chunk: int
    start: float
    end: float
