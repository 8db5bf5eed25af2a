"""Bytes that come block by block, and what unpacking them may cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from whichrank.facts import Gap

BLOCK = 1 << 20  # bytes; no block is longer
SHOWN = 20  # gaps of one file that are told one by one
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What one file may cost. Sizes in bytes.

    A stream may unpack to `free`, and beyond that to `ratio` times what was read of it; all streams of the file together
    to four times `free`, and beyond that to `ratio` times what was read of the file, and never to more than `total`.
    The ratio is below what zeros reach in gzip (1030:1) and far above what logs do (5:1 to 100:1).

    entries   headers in archives, of whatever kind: folders, links, long names
    depth     archives in each other; a .tar.gz is one
    window    memory that a stream may ask for to be unpacked: `xz -9` and `zstd --ultra -21` need no more
    spool     of a zip that cannot be read from its end, kept in memory to do so all the same
    """

    total: int = 4 << 30
    free: int = 256 * MIB
    ratio: int = 1000
    members: int = 10_000
    entries: int = 100_000
    depth: int = 3
    window: int = 64 * MIB
    spool: int = 16 * MIB


@dataclass(slots=True)
class Budget:
    """The limits of one file and what it has used of them so far; a file's own, not to be used for the next."""

    limits: Limits = field(default_factory=Limits)
    taken: int = 0  # bytes read of the file
    made: int = 0  # bytes that its streams unpacked to
    members: int = 0
    entries: int = 0


class Enough(Exception):
    """A limit is reached; the text says which."""


class Run:
    """One file being unpacked: its budget, and the gaps that wait to be told."""

    def __init__(self, name: str, budget: Budget) -> None:
        self.name, self.budget, self.over = name, budget, False
        self._gaps: list[Gap] = []
        self._told = 0

    def gap(self, what: str, why: str, would_help: str = "", command: str = "") -> None:
        self._told += 1
        if self._told <= SHOWN:
            self._gaps.append(Gap(what, why, would_help, command))

    def stop(self, why: str) -> None:
        """Nothing more of the whole file is read."""
        if not self.over:
            self.over = True
            self._told = min(self._told, SHOWN - 1)  # this one is always told
            self.gap(self.name, f"{why}; what comes after that is not read", "the files in it, unpacked")

    def news(self) -> Iterator[Gap]:
        """The gaps since the last call."""
        gaps, self._gaps = self._gaps, []
        yield from gaps

    def rest(self) -> Iterator[Gap]:
        yield from self.news()
        if self._told > SHOWN:
            more = self._told - SHOWN
            yield Gap(self.name, f"{more:,} more such {'lack' if more == 1 else 'lacks'} in it are not listed")

    def entry(self) -> bool:
        """May one more header of an archive be looked at?"""
        self.budget.entries += 1
        if self.budget.entries > self.budget.limits.entries:
            self.stop(f"more than {self.budget.limits.entries:,} entries")
        return not self.over

    def outside(self, what: str, told: str) -> None:
        """A member's name, as the archive tells it, leads out of it."""
        self.gap(what, f"its name in the archive leads out of it: {told[:200]!r}; read all the same")

    def member(self) -> bool:
        self.budget.members += 1
        if self.budget.members > self.budget.limits.members:
            self.stop(f"more than {self.budget.limits.members:,} files in it")
        return not self.over


class Meter:
    """Weighs what one compressed stream makes of what it takes."""

    def __init__(self, run: Run) -> None:
        self.run, self.taken, self.made = run, 0, 0

    def add(self, made: int) -> None:
        """Count bytes that were made. Raises `Enough`."""
        budget, limits = self.run.budget, self.run.budget.limits
        self.made += made
        budget.made += made
        if budget.made > limits.total:
            self.run.stop(f"unpacks to more than {_size(limits.total)}")
        elif budget.made > max(4 * limits.free, limits.ratio * budget.taken):
            self.run.stop(f"unpacks to more than {_size(4 * limits.free)} and {limits.ratio:,} times its size")
        if self.run.over:
            raise Enough("")
        if self.made > max(limits.free, limits.ratio * self.taken):
            raise Enough(f"unpacks to more than {_size(limits.free)} and {limits.ratio:,} times its size")


def _size(size: int) -> str:
    for unit, word in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {word}"
    return f"{size} bytes"


class Stream:
    """A reader over blocks that only goes forward, with a look ahead.

    `broken`: it ends before its end, and a gap says so.
    """

    __slots__ = ("_at", "_blocks", "_held", "broken")

    def __init__(self, blocks: Iterable[bytes] = ()) -> None:
        self._blocks = iter(blocks)
        self._held, self._at = b"", 0
        self.broken = False

    def feed(self, blocks: Iterator[bytes]) -> Stream:
        """The same stream over these blocks: for a generator that sets `broken`."""
        self._blocks = blocks
        return self

    def some(self, most: int = BLOCK) -> bytes:
        """What is at hand, at most `most` bytes; nothing only at the end."""
        while self._at >= len(self._held):
            block = next(self._blocks, None)
            if block is None:
                return b""
            self._held, self._at = block, 0
        found = self._held[self._at : self._at + most] if self._at or len(self._held) > most else self._held
        self._at += len(found)
        return found

    def read(self, size: int) -> bytes:
        """`size` bytes, fewer only at the end. For small sizes: all of it is held in memory."""
        found = self.some(size)
        if len(found) == size or not found:
            return found
        parts = [found]
        missing = size - len(found)
        while missing and (found := self.some(missing)):
            parts.append(found)
            missing -= len(found)
        return b"".join(parts)

    def peek(self, size: int) -> bytes:
        """The next bytes, which stay."""
        found = self.read(size)
        self.back(found)
        return found

    def back(self, data: bytes) -> None:
        if data:
            if self._at >= len(data) and self._held.startswith(data, self._at - len(data)):
                self._at -= len(data)
            else:
                self._held, self._at = data + self._held[self._at :], 0

    def skip(self, size: int) -> int:
        """How many bytes could be passed over."""
        left = size
        while left and (found := self.some(min(left, BLOCK))):
            left -= len(found)
        return size - left

    def drain(self) -> None:
        """Pass over all that is left."""
        while self.some():
            pass

    def part(self, size: int) -> Iterator[bytes]:
        """The next `size` bytes as blocks."""
        while size > 0 and (found := self.some(min(size, BLOCK))):
            size -= len(found)
            yield found

    def blocks(self) -> Iterator[bytes]:
        while found := self.some():
            yield found


class Entry(NamedTuple):
    """A file in an archive; `content` must be read, or drained, before the next one is asked for."""

    name: str
    content: Stream
