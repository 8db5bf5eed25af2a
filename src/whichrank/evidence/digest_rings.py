"""Rings of Flight Recorder within a block of a digest.

Columns are differences, byte by byte: what grows evenly, as numbers and times do, is packed away by zlib. What comes
back is checked as a dump is that a recorder wrote: whoever made the digest may have wished us ill.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from whichrank.facts import MOST_RANKS, Source

if TYPE_CHECKING:
    from whichrank.dump import Dump

# source, rank, version, backend, library, groups (name, description, members, number), what rings have in common,
# counters of groups, calls, sorts of the columns, columns
Row = tuple[
    int, int | None, str, str, str, list[tuple[str, str, list[int | None] | None, int]], bytes,
    list[tuple[int, int, int, int]], int, str, bytes,
]  # fmt: skip
_Shapes = list[list[int]]
_COMMON = tuple[
    list[str], list[tuple[_Shapes, _Shapes, list[str], list[str]]], list[tuple[str, str, int]], list[list[int]]
]
_common: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_COMMON)


def of_dump(dump: Dump) -> Iterator[Any]:
    yield dump.rank
    yield dump.version
    yield dump.backend
    yield dump.library
    yield [[g.name, g.desc, _members(g.members), g.pg_id] for g in dump.groups]
    yield msgspec.msgpack.encode([list(dump.names), [_signature(s) for s in dump.signatures], *_stacks(dump.sites)])
    yield [[number, *status] for number, status in dump.status.items()]
    yield len(dump)
    yield from _columns(dump)


def _members(members: tuple[int, ...] | range | None) -> Any:
    if isinstance(members, range):
        return [members.start, members.stop, members.step, None]
    return None if members is None else [*members]


def _signature(signature: Any) -> list[Any]:
    return [*(list(map(list, shapes)) for shapes in signature[:2]), *map(list, signature[2:])]


def _stacks(sites: tuple[tuple[Any, ...], ...]) -> tuple[list[Any], list[list[int]]]:
    frames: dict[Any, int] = {}
    stacks = [[frames.setdefault(frame, len(frames)) for frame in stack] for stack in sites]
    return [list(frame) for frame in frames], stacks


def _columns(dump: Dump) -> Iterator[Any]:
    import numpy as np

    from whichrank.dump import COLUMNS

    pieces, sorts = [], ""
    for name in COLUMNS:
        column = getattr(dump, name)
        sorts += column.dtype.char
        if column.dtype.kind == "i":
            column = np.diff(column, prepend=column.dtype.type(0))  # wraps around, and back again
        pieces.append(column.view(np.uint8).reshape(len(column), column.dtype.itemsize).T.tobytes())
    yield sorts
    yield b"".join(pieces)


# ---- and back


def to_dump(source: Source, row: Any, tables: dict[bytes, Any]) -> Dump:
    """`row` without its source. Raises ValueError where it is not what `of_dump` makes."""
    from whichrank.dump import Dump, GroupOf, Status

    rank, version, backend, library, groups, common, status, calls, sorts, data = row
    if rank is not None and not 0 <= rank < MOST_RANKS:
        raise ValueError("a ring of a rank that no job has")
    if common not in tables:
        tables[common] = _tables(common)
    names, signatures, sites = tables[common]
    columns = _from_columns(calls, sorts, data)
    sizes = {
        "group": groups,
        "name": names,
        "signature": signatures,
        "site": sites,
        "kind": range(4),
        "state": range(4),
    }
    for name, table in sizes.items():
        if calls and not 0 <= int(columns[name].min()) <= int(columns[name].max()) < len(table):
            raise ValueError("damaged")
    return Dump(
        source, rank, version, backend,
        [GroupOf(name, desc, _ranks(members), pg_id) for name, desc, members, pg_id in groups],
        names, signatures, sites, **columns,
        status={number: Status(*counts) for number, *counts in status}, library=library,
    )  # fmt: skip


def _from_columns(calls: int, sorts: str, data: bytes) -> dict[str, Any]:
    import numpy as np

    from whichrank.dump import COLUMNS, NEVER
    from whichrank.evidence.flight_columns import MOST, UNSET

    if not 0 <= calls <= MOST or len(sorts) != len(COLUMNS):
        raise ValueError("damaged")
    columns: dict[str, Any] = {}
    at = 0
    for name, sort in zip(COLUMNS, sorts, strict=True):
        if sort not in ("?" if name in ("open", "retired") else "bhilq"):
            raise ValueError("damaged")
        kind = np.dtype(sort)
        taken = np.frombuffer(data, np.uint8, calls * kind.itemsize, at) if calls else np.zeros(0, np.uint8)
        at += taken.size
        column = np.ascontiguousarray(taken.reshape(kind.itemsize, calls).T).reshape(-1).view(kind)
        columns[name] = np.cumsum(column, dtype=kind) if kind.kind == "i" else column.view(np.uint8) != 0
    for name in ("created", "started", "completed"):
        column = columns[name]
        if column.dtype.itemsize == 8:
            columns[name] = np.where(column > UNSET, column, NEVER)
    for name in ("record", "seq", "p2p_seq", "op"):
        columns[name] = columns[name].clip(NEVER)
    return columns


def _ranks(members: list[int | None] | None) -> tuple[int, ...] | range | None:
    """The ranks that a group lists: as many as a job may have."""
    if members is None:
        return None
    if len(members) == 4 and members[3] is None:
        start, stop, step = (int(number or 0) for number in members[:3])
        ranks: tuple[int, ...] | range = range(start, stop, step)
    else:
        ranks = tuple(int(rank) for rank in members if rank is not None)
    if (
        not ranks
        or len(ranks) > MOST_RANKS
        or not -1 < min(ranks[0], ranks[-1]) <= max(ranks[0], ranks[-1]) < MOST_RANKS
    ):
        raise ValueError("a group of ranks that no job has")
    if isinstance(ranks, tuple) and not -1 < min(ranks) <= max(ranks) < MOST_RANKS:
        raise ValueError("a group of ranks that no job has")
    return ranks


def _tables(table: bytes) -> tuple[Any, Any, Any]:
    from whichrank.dump import Frame, Signature

    names, signatures, frames, stacks = _common.decode(table)
    made = [Frame(*frame) for frame in frames]
    if not stacks or stacks[0]:
        raise ValueError("damaged")  # the first one is the empty one
    return (
        tuple(names),
        tuple(
            Signature(tuple(map(tuple, inputs)), tuple(map(tuple, outputs)), tuple(input_dtypes), tuple(output_dtypes))
            for inputs, outputs, input_dtypes, output_dtypes in signatures
        ),
        tuple(tuple(made[number] for number in stack) for stack in stacks),
    )
