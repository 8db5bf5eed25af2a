"""What comes out of an envelope: lines as a program wrote them, each with its place, its time and its speaker."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from whichrank.facts import Identity

LONGEST = 1 << 20  # characters of a line that is joined from parts


@dataclass(slots=True)
class Part:
    """Lines as a program wrote them. `numbers`, `times` (ns since 1970) and `whos` are empty or as long as `lines`.

    `numbers` are those of the file's lines (see documents.py for documents). `reordered`: the lines were sorted by
    their times. `cut`: the last line was not finished when the collector took it.
    """

    lines: list[str]
    numbers: list[int] = field(default_factory=list)
    times: list[int | None] = field(default_factory=list)
    whos: list[Identity] = field(default_factory=list)
    reordered: bool = False
    cut: bool = False

    def places(self) -> dict[int, int]:
        """Line -> its first place, where the lines are no longer in the file's order."""
        return {number: place for place, number in reversed(list(enumerate(self.numbers)))} if self.reordered else {}


class Opened(NamedTuple):
    """Lines out of one layer of wrapping; `origins` are indexes of the lines that they were in."""

    lines: list[str]
    origins: list[int]
    times: list[int | None]
    whos: list[Identity]
    cut: bool = False

    def add(self, text: str, origin: int, at: int | None, who: Identity) -> None:
        self.lines.append(text)
        self.origins.append(origin)
        self.times.append(at)
        self.whos.append(who)


def opened() -> Opened:
    return Opened([], [], [], [])


class Layer(Protocol):
    """One wrapping. What is not wrapped in it passes as it is, without a time."""

    @property
    def exported(self) -> bool:
        """Is it the answer to a query, whose order is no evidence?"""

    def open(self, lines: Sequence[str]) -> Opened: ...


def in_time_order(part: Part) -> Part:
    """The same lines sorted by time, where they are not yet; one without a time stays behind the one before it.

    >>> in_time_order(Part(["b", "B", "a"], [1, 1, 2], [20, 20, 10])).lines
    ['a', 'b', 'B']
    >>> in_time_order(Part(["c", "b", "a"], [1, 2, 3], [20, 10, 10])).lines
    ['a', 'b', 'c']
    """
    times: list[int] = []
    for at in part.times:
        times.append(at if at is not None else times[-1] if times else 0)
    falls = sum(a > b for a, b in itertools.pairwise(times))
    if not falls:
        return part
    changes = sum(a != b for a, b in itertools.pairwise(times))
    # Newest first: then events of the same instant stand in reverse order too, but not the lines of one event.
    sign = -1 if falls > 0.8 * changes else 1
    starts = (
        at is not None and number != before
        for at, number, before in zip(part.times, part.numbers, [0, *part.numbers], strict=False)
    )
    events = list(itertools.accumulate(starts, lambda event, begins: event + begins, initial=0))[1:]
    order = sorted(range(len(times)), key=lambda index: (times[index], sign * events[index]))
    return Part(
        [part.lines[index] for index in order],
        [part.numbers[index] for index in order],
        [part.times[index] for index in order],
        [part.whos[index] for index in order] if part.whos else [],
        reordered=True,
        cut=part.cut,
    )
