"""Dumps without private things: the names and paths in them under the same aliases as in the report.

A dump's texts are few and stand in short lists (groups, operations, stacks); its columns hold numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from whichrank.dump import Dump, Frame, Signature
from whichrank.facts import Source
from whichrank.findings.dumps import Told
from whichrank.job.collectives import Collectives

FILE, TEXT = "source", "text"  # how a text is to be read
Change = Callable[[str, str], str]


def texts(table: Collectives) -> Iterator[tuple[str, str]]:
    """Every different text of the dumps that a picture may show, with how it is to be read."""
    frames: set[Frame] = set()
    plain: set[str] = set()
    seen: set[int] = set()  # dumps of one job share most of their lists
    for ring in table.rings.values():
        dump = ring.dump
        yield dump.source.path, FILE
        for group in dump.groups:
            plain.update((group.name, group.desc))
        if id(dump.names) not in seen:
            plain.update(dump.names)
        if id(dump.signatures) not in seen:
            plain.update(name for passed in dump.signatures for name in (*passed.input_dtypes, *passed.output_dtypes))
        if id(dump.sites) not in seen:
            frames.update(frame for stack in dump.sites for frame in stack)
        seen |= {id(dump.names), id(dump.signatures), id(dump.sites)}
    for text in sorted(plain):
        yield text, TEXT
    for frame in sorted(frames):
        yield frame.file, FILE
        yield frame.function, TEXT


def redacted(table: Collectives, change: Change) -> Collectives:
    """The same table with every text changed. Gaps are told by the report and left out here."""
    lists = _Lists(change)
    rings = {rank: replace(ring, dump=lists.dump(ring.dump)) for rank, ring in table.rings.items()}
    groups = [replace(group, name=change(group.name, TEXT), desc=change(group.desc, TEXT)) for group in table.groups]
    return replace(table, rings=rings, groups=groups, gaps=[])


class _Lists:
    """The lists of a dump changed, each that several dumps share only once."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self._done: dict[int, tuple[Any, ...]] = {}

    def dump(self, dump: Dump) -> Dump:
        return replace(
            dump,
            source=Source(self.change(dump.source.path, FILE), dump.source.kind),
            groups=[
                group._replace(name=self.change(group.name, TEXT), desc=self.change(group.desc, TEXT))
                for group in dump.groups
            ],
            names=self._once(dump.names, self._text),
            signatures=self._once(dump.signatures, self._signature),
            sites=self._once(dump.sites, self._stack),
            library="",
        )

    def _once(self, items: tuple[Any, ...], one: Callable[[Any], Any]) -> tuple[Any, ...]:
        if id(items) not in self._done:
            self._done[id(items)] = tuple(map(one, items))
        return self._done[id(items)]

    def _text(self, text: str) -> str:
        return self.change(text, TEXT)

    def _signature(self, passed: Signature) -> Signature:
        return passed._replace(
            input_dtypes=tuple(map(self._text, passed.input_dtypes)),
            output_dtypes=tuple(map(self._text, passed.output_dtypes)),
        )

    def _stack(self, stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
        return tuple(Frame(self._text(frame.function), self.change(frame.file, FILE), frame.line) for frame in stack)


def untold(told: Told, change: Change) -> Told:
    """The conclusion without its sentences and lines, which the report has."""
    sides = told.traced.sides
    if sides is not None:
        ways = tuple(
            ((change(name, TEXT), shapes, tuple(change(dtype, TEXT) for dtype in dtypes)), ranks)
            for (name, shapes, dtypes), ranks in sides.ways
        )
        sides = replace(sides, ways=ways)
    op = told.traced.op
    traced = replace(told.traced, op=change(op, TEXT) if op else op, sides=sides)
    return replace(told, traced=traced, waits=(), proofs=(), why="", table=None)
