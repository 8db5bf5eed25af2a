"""Dumps without private things: the names and paths in them under the same aliases as in the report.

A dump's texts are few and stand in short lists (groups, operations, stacks); its columns hold numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from whichrank.dump import Dump, Frame, GroupOf
from whichrank.facts import Source
from whichrank.findings.dumps import Told
from whichrank.job.collectives import Collectives, Ring

FILE, TEXT = "source", "text"  # how a text is to be read
Change = Callable[[str, str], str]


def texts(table: Collectives) -> Iterator[tuple[str, str]]:
    """Every different text of the dumps that a picture may show, with how it is to be read."""
    frames: set[Frame] = set()
    plain: set[str] = set()
    for ring in table.rings.values():
        dump = ring.dump
        yield dump.source.path, FILE
        plain.update(dump.names)
        for group in dump.groups:
            plain.update((group.name, group.desc))
        for stack in dump.sites:
            frames.update(stack)
        for passed in dump.signatures:
            plain.update(passed.input_dtypes)
            plain.update(passed.output_dtypes)
    for text in sorted(plain):
        yield text, TEXT
    for frame in sorted(frames):
        yield frame.file, FILE
        yield frame.function, TEXT


def redacted(table: Collectives, change: Change) -> Collectives:
    """The same table with every text changed. Gaps are told by the report and left out here."""
    stacks: dict[tuple[Frame, ...], tuple[Frame, ...]] = {}

    def stack(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        if frames not in stacks:
            stacks[frames] = tuple(
                Frame(change(frame.function, TEXT), change(frame.file, FILE), frame.line) for frame in frames
            )
        return stacks[frames]

    rings = {
        rank: Ring(ring.rank, _dump(ring.dump, change, stack), ring.group, ring.places, ring.open_at, ring.active_only)
        for rank, ring in table.rings.items()
    }
    groups = [replace(group, name=change(group.name, TEXT), desc=change(group.desc, TEXT)) for group in table.groups]
    return replace(table, rings=rings, groups=groups, gaps=[])


def _dump(dump: Dump, change: Change, stack: Callable[[tuple[Frame, ...]], tuple[Frame, ...]]) -> Dump:
    return replace(
        dump,
        source=Source(change(dump.source.path, FILE), dump.source.kind),
        names=[change(name, TEXT) for name in dump.names],
        groups=[
            GroupOf(change(group.name, TEXT), change(group.desc, TEXT), group.members, group.pg_id)
            for group in dump.groups
        ],
        signatures=[
            passed._replace(
                input_dtypes=tuple(change(name, TEXT) for name in passed.input_dtypes),
                output_dtypes=tuple(change(name, TEXT) for name in passed.output_dtypes),
            )
            for passed in dump.signatures
        ],
        sites=[stack(frames) for frames in dump.sites],
        library="",
    )


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
    return Told(traced, (), (), "")
