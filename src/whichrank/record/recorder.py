"""What the main thread is doing, kept by itself at each change; and the steps that it has done.

Hooks call `enter` and `leave`. Nothing here takes a lock or calls the operating system, but for the clock. It never
raises, and it never swallows what is not its own: only errors that this code itself could make are caught, since a
signal handler of the training may raise anything, anywhere.
"""

from __future__ import annotations

import struct
import threading
from threading import get_ident
from time import monotonic_ns

from .ring import PHASES, Ring

UNKNOWN, INIT, DATA, COMPUTE, OPTIMIZER, COLLECTIVE, CHECKPOINT, EVALUATION, COMPILE, OWN, TEARDOWN = range(len(PHASES))
OURS = (ValueError, TypeError, AttributeError, IndexError, KeyError, OverflowError, struct.error)
MOST_TEXT = 230  # bytes
# A phase in which another begins that is only a part of it: what the user called is what counts.
WITHIN = {
    INIT: {INIT, COLLECTIVE},
    DATA: {DATA, CHECKPOINT},
    OPTIMIZER: {OPTIMIZER},
    COLLECTIVE: {COLLECTIVE, INIT},
    CHECKPOINT: {CHECKPOINT},
    COMPILE: {COMPILE},
    TEARDOWN: {TEARDOWN, INIT, COLLECTIVE},
}
PARTS = tuple(frozenset(WITHIN.get(code, ())) for code in range(len(PHASES)))


class Recorder:
    """The phases of one rank's main thread."""

    __slots__ = (
        "answered", "base", "batches", "code", "cost", "depth", "exiting", "last_optimizer", "main", "mark", "optimizer",
        "outer", "outer_since", "ring", "seq", "since", "spent", "step_began", "steps", "texts",
    )  # fmt: skip

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.main = threading.main_thread().ident
        self.base = UNKNOWN  # outside of all hooks: what the code between them is
        self.code = UNKNOWN
        self.texts = b""
        self.seq = -1
        self.since = self.mark = monotonic_ns()
        self.outer = 0
        self.outer_since = 0
        self.depth = 0
        self.steps = 0
        self.batches = 0
        self.step_began = self.since
        self.spent = [0] * len(PHASES)
        self.optimizer: object = None  # whose steps count, where there are several
        self.last_optimizer: object = None
        self.answered = 0
        self.exiting = False
        self.cost = 0

    def enter(self, code: int, texts: bytes = b"", seq: int = -1) -> tuple[int, ...] | None:
        """A phase begins. What is returned belongs to `leave`; None: it is not recorded (another thread, or a part)."""
        if get_ident() != self.main or code in PARTS[self.code]:
            return None
        if code == DATA and self.code == OPTIMIZER:  # a step that broke off: its end was never seen
            self._drop()
        try:
            now = monotonic_ns()
            current, depth = self.code, self.depth
            before = (current, self.texts, self.seq, self.since, self.outer, self.outer_since, depth)
            self.spent[current] += now - self.mark
            if depth or current == EVALUATION:
                self.outer, self.outer_since = current, self.since
            self.code, self.texts, self.seq, self.since, self.mark = code, texts, seq, now, now
            self.depth = depth + 1
            self.ring.now(
                code, now, self.steps, self.batches, self.step_began, self.outer, self.outer_since, seq, texts
            )
        except OURS:
            return None
        return before  # type: ignore[return-value]

    def leave(self, before: tuple[int, ...] | None) -> None:
        """The phase has ended: back to the one around it, or to what lies between the hooks."""
        if before is None:
            return
        try:
            now = monotonic_ns()
            self.spent[self.code] += now - self.mark
            self.code, self.texts, self.seq, self.since, self.outer, self.outer_since, depth = before  # type: ignore[assignment]
            self.depth = depth
            self.mark = now
            if not depth:
                self.code, self.since = self.base, now
            self._write()
        except OURS:
            pass

    def _drop(self) -> None:
        self.code, self.texts, self.seq, self.outer, self.outer_since, self.depth = self.base, b"", -1, 0, 0, 0

    def _write(self) -> None:
        self.ring.now(
            self.code,
            self.since,
            self.steps,
            self.batches,
            self.step_began,
            self.outer,
            self.outer_since,
            self.seq,
            self.texts,
        )

    def settle(self, base: int) -> None:
        """What the code between the hooks is from now on: setting up, training, evaluating."""
        if self.base == base or get_ident() != self.main:
            return
        self.base = base
        if not self.depth:
            try:
                now = monotonic_ns()
                self.spent[self.code] += now - self.mark
                self.code, self.since, self.mark = base, now, now
                self._write()
            except OURS:
                pass

    def batch(self) -> None:
        """The main thread got a batch. Until an optimizer steps, a step lasts from batch to batch."""
        self.batches += 1
        if self.base == UNKNOWN:
            self.settle(COMPUTE)
        if self.last_optimizer is None and self.batches > 1:
            self.step_ended()

    def stepped(self, optimizer: object) -> None:
        """An optimizer has stepped. Where several take turns, a step ends with one of them: the one that steps most."""
        if self.optimizer is None or (optimizer != self.optimizer and optimizer == self.last_optimizer):
            self.optimizer = optimizer
        self.last_optimizer = optimizer
        if optimizer == self.optimizer:
            self.step_ended()
            self.settle(COMPUTE)

    def step_ended(self) -> None:
        try:
            now = monotonic_ns()
            spent, self.spent = self.spent, [0] * len(PHASES)
            spent[self.code] += now - self.mark
            self.mark = self.step_began = now
            self.steps += 1
            self.ring.step(self.steps, now, spent)
        except OURS:
            pass

    def measure(self) -> None:
        """What a change of phase costs here: the median of a few, in nanoseconds."""
        costs = []
        for _ in range(31):
            begin = monotonic_ns()
            self.leave(self.enter(OWN, b"whichrank\0"))
            costs.append(monotonic_ns() - begin)
        self.cost = sorted(costs)[len(costs) // 2] // 2
        self.spent = [0] * len(PHASES)


def texts(word: str, group: str = "", description: str = "") -> bytes:
    """The texts of a phase as the file holds them."""
    parts = [text.replace("\0", "").encode("utf-8", "replace")[:72] for text in (word, group, description)]
    return b"\0".join(parts) + b"\0"
