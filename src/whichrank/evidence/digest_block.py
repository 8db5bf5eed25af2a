"""One block of a digest: everything that was read of one file, as msgpack.

An array of version, host, name of the file, place among the files inputs, and then sources, people, facts, ordinary
lines, gaps, rings. Facts and lines refer to sources and people (identities) by number; tuples, sets and numbers of more
than 64 bits are extensions 1, 2 and 3. Columns of a ring are differences, byte by byte: what grows evenly, as numbers
and times do, is packed away by zlib.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from whichrank.evidence import Evidence
from whichrank.facts import IDENTITY_PARTS, Fact, Gap, Identity, Said, Source, Spot

if TYPE_CHECKING:
    from whichrank.dump import Dump

VERSION = 1
_TUPLE, _SET, _LARGE = 1, 2, 3
_SOURCE = tuple(field.name for field in fields(Source) if field.name != "identity")
_PLAIN = (str, float, bool, bytes, type(None))
DEEP = 20


class Packed(NamedTuple):
    """host: where the file was read; name: as it was called there; parts: what stands in the block of its evidence."""

    host: str
    name: str
    parts: Evidence
    left_out: tuple[int, int]  # ordinary lines and facts; older calls of rings


def pack(packed: Packed) -> bytes:
    evidence = packed.parts
    sources = {id(source): number for number, source in enumerate(evidence.sources)}
    people: dict[Identity, int] = {}

    def person(who: Identity) -> int:
        return people.setdefault(who, len(people))

    facts = [
        [fact.kind, sources[id(fact.spot.source)], fact.spot.line, fact.spot.excerpt, fact.at_ns, fact.clock,
         person(fact.who), fact.group, fact.seq, _plain(fact.values)]
        for fact in evidence.facts
    ]  # fmt: skip
    said = [
        [sources[id(line.spot.source)], line.spot.line, line.spot.excerpt, person(line.who), line.at_ns,
         None if line.text == line.spot.excerpt else line.text, line.shape, line.index]
        for line in evidence.said
    ]  # fmt: skip
    known = [
        [_plain([getattr(source, name) for name in _SOURCE]), person(source.identity)] for source in evidence.sources
    ]
    dumps = [[sources[id(dump.source)], *_of_dump(dump)] for dump in evidence.dumps]
    content = [
        VERSION, packed.host, packed.name, list(packed.left_out), known, [_person(who) for who in people], facts, said,
        [[gap.what, gap.why, gap.would_help, gap.command] for gap in evidence.gaps], dumps,
    ]  # fmt: skip
    return msgspec.msgpack.encode(content)


def unpack(data: bytes, tables: dict[bytes, Any]) -> Packed:
    """The evidence of one block. `tables`: what its rings have in common with those of other blocks.

    Raises ValueError where it is damaged.
    """
    try:
        return _unpacked(_decoder.decode(data), tables)
    except ValueError:
        raise
    except (
        msgspec.DecodeError,
        TypeError,
        IndexError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ValueError(f"damaged ({type(error).__name__})") from error


def _unpacked(content: Any, tables: dict[bytes, Any]) -> Packed:
    version, host, name, left_out, known, people, facts, said, gaps, dumps = content
    if version != VERSION:
        raise ValueError("a block of another version of whichrank")
    who = [_identity(person) for person in people]
    if not all(isinstance(values[0], str) for values, _ in known):
        raise ValueError("damaged")
    sources = [Source(**dict(zip(_SOURCE, values, strict=True)), identity=who[number]) for values, number in known]
    evidence = Evidence(sources=sources)
    for kind, source_, line, excerpt, at_ns, clock, person, group, seq, values in facts:
        spot = Spot(sources[source_], line, excerpt)
        evidence.facts.append(Fact(kind, spot, at_ns, clock, who[person], group, seq, values))
    for source_, line, excerpt, person, at_ns, text, shape, index in said:
        spot = Spot(sources[source_], line, excerpt)
        evidence.said.append(Said(spot, who[person], at_ns, excerpt if text is None else text, shape, index))
    evidence.gaps = [Gap(*gap) for gap in gaps]
    evidence.dumps = [_dump(sources[number], rest, tables) for number, *rest in dumps]
    lines, calls = left_out
    return Packed(host, name, evidence, (lines, calls))


def _person(who: Identity) -> dict[str, Any]:
    return {part: value for part in IDENTITY_PARTS if (value := getattr(who, part)) is not None}


def _identity(person: Any) -> Identity:
    return Identity(**person)


# ---- values that msgpack does not know


def _plain(value: Any, deep: int = 0) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else msgspec.msgpack.Ext(_LARGE, str(value).encode())
    if deep > DEEP:
        return None
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item, deep + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, deep + 1) for item in value]
    if isinstance(value, tuple):
        return msgspec.msgpack.Ext(_TUPLE, msgspec.msgpack.encode([_plain(item, deep + 1) for item in value]))
    if isinstance(value, (set, frozenset)):
        items = sorted((_plain(item, deep + 1) for item in value), key=repr)
        return msgspec.msgpack.Ext(_SET, msgspec.msgpack.encode(items))
    return str(value)


def _extended(code: int, data: memoryview) -> Any:
    if code == _LARGE:
        return int(bytes(data)[:4000])
    items = _decoder.decode(data)
    if code == _TUPLE:
        return tuple(items)
    if code == _SET:
        return frozenset(items)
    raise ValueError("an extension that is not known here")


_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ext_hook=_extended)


# ---- rings


def _of_dump(dump: Dump) -> Iterator[Any]:
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


def _dump(source: Source, packed: list[Any], tables: dict[bytes, Any]) -> Dump:
    import numpy as np

    from whichrank.dump import COLUMNS, Dump, GroupOf, Status

    rank, version, backend, library, groups, common, status, calls, sorts, data = packed
    if common not in tables:
        tables[common] = _tables(common)
    names, signatures, sites = tables[common]
    columns: dict[str, Any] = {}
    at = 0
    for name, sort in zip(COLUMNS, sorts, strict=True):
        if sort not in "?bhilq":
            raise ValueError("damaged")
        kind = np.dtype(sort)
        if not calls:
            columns[name] = np.zeros(0, kind)
            continue
        taken = np.frombuffer(data, np.uint8, calls * kind.itemsize, at).reshape(kind.itemsize, calls)
        at += taken.size
        column = np.ascontiguousarray(taken.T).reshape(-1).view(kind)
        columns[name] = np.cumsum(column, dtype=kind) if kind.kind == "i" else column.copy()
    known = {
        "group": groups,
        "name": names,
        "signature": signatures,
        "site": sites,
        "kind": range(4),
        "state": range(4),
    }
    for name, table in known.items():
        if calls and not 0 <= int(columns[name].min()) <= int(columns[name].max()) < len(table):
            raise ValueError("damaged")
    return Dump(
        source, rank, version, backend,
        [GroupOf(name, desc, _ranks(members), pg_id) for name, desc, members, pg_id in groups],
        names, signatures, sites, **columns,
        status={number: Status(*counts) for number, *counts in status}, library=library,
    )  # fmt: skip


def _ranks(members: Any) -> tuple[int, ...] | range | None:
    if members is None:
        return None
    return range(*members[:3]) if len(members) == 4 and members[3] is None else tuple(members)


def _tables(table: bytes) -> tuple[Any, Any, Any]:
    from whichrank.dump import Frame, Signature

    names, signatures, frames, stacks = _decoder.decode(table)
    made = [Frame(*frame) for frame in frames]
    return (
        tuple(names),
        tuple(
            Signature(tuple(map(tuple, inputs)), tuple(map(tuple, outputs)), tuple(input_dtypes), tuple(output_dtypes))
            for inputs, outputs, input_dtypes, output_dtypes in signatures
        ),
        tuple(tuple(made[number] for number in stack) for stack in stacks),
    )
