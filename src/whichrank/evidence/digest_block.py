"""One block of a digest: everything that was read of one file, as msgpack.

An array of version, host, name of the file, place among the files inputs, and then sources, people, facts, ordinary
lines, gaps, rings (digest_rings.py). Facts and lines refer to sources and people (identities) by number; tuples, sets
and numbers of more than 64 bits are extensions 1, 2 and 3.

Whoever made a digest may have wished us ill: nothing in it is taken to have the type or the size that it should have.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import msgspec

from whichrank.evidence import Evidence
from whichrank.evidence.digest_rings import Row, of_dump, to_dump
from whichrank.evidence.unpickle import bounded
from whichrank.facts import IDENTITY_PARTS, MOST_RANKS, Clock, Coverage, Fact, Gap, Identity, Said, Source, Spot

VERSION = 1
_TUPLE, _SET, _LARGE = 1, 2, 3
_SOURCE = tuple(field.name for field in fields(Source) if field.name not in ("identity", "digest"))
_PLAIN = (str, float, bool, bytes, type(None))
DEEP = 20
MOST_LARGE = 1000
# Of memory for a block: a byte of it becomes a few, and would be 72 if it were all empty lists.
LEAST, GROWTH = 64 << 20, 12

_Source = tuple[str, str, Any, Coverage, int, int, bool, list[str], int, dict[str, int], bool, dict[int, int]]
_Fact = tuple[str, int, int | None, str, int | None, Clock, int, str | None, Any, dict[str, Any]]
_Said = tuple[int, int | None, str, int, int | None, str | None, str, int]
_Gap = tuple[str, str, str, str]
_Block = tuple[
    int, str, str, tuple[int, int], list[tuple[_Source, int]], list[Identity], list[_Fact], list[_Said], list[_Gap],
    list[Row],
]  # fmt: skip


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
        [fact.kind, sources[id(fact.spot.source)], fact.spot.line, fact.spot.excerpt, _number(fact.at_ns), fact.clock,
         person(fact.who), fact.group, _plain(fact.seq), _plain(fact.values)]
        for fact in evidence.facts
    ]  # fmt: skip
    said = [
        [sources[id(line.spot.source)], line.spot.line, line.spot.excerpt, person(line.who), _number(line.at_ns),
         None if line.text == line.spot.excerpt else line.text, line.shape, line.index]
        for line in evidence.said
    ]  # fmt: skip
    known = [
        [_plain([getattr(source, name) for name in _SOURCE]), person(source.identity)] for source in evidence.sources
    ]
    dumps = [[sources[id(dump.source)], *of_dump(dump)] for dump in evidence.dumps]
    content = [
        VERSION, packed.host, packed.name, list(packed.left_out), known, [_person(who) for who in people], facts, said,
        [[gap.what, gap.why, gap.would_help, gap.command] for gap in evidence.gaps], dumps,
    ]  # fmt: skip
    return msgspec.msgpack.encode(content)


def unpack(data: bytes, tables: dict[bytes, Any]) -> Packed:
    """The evidence of one block. `tables`: what its rings have in common with those of other blocks.

    Raises ValueError where it is damaged, or made to do something else than to be read.
    """
    if len(data) > 1 and 0x90 <= data[0] <= 0x9F and data[1] < 0x80 and data[1] != VERSION:
        raise ValueError("a block of another version of whichrank")  # which may have other parts
    try:
        return _unpacked(_decoded(data), tables)
    except msgspec.ValidationError as error:
        raise ValueError(f"damaged ({error})"[:200]) from error
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


def _decoded(data: bytes) -> Any:
    _seen.large = 0
    try:
        with bounded(LEAST + GROWTH * len(data)):
            return _block.decode(data)
    except MemoryError:
        raise ValueError("it asks for far more memory than its size explains") from None


def _unpacked(content: Any, tables: dict[bytes, Any]) -> Packed:
    version, host, name, left_out, known, people, facts, said, gaps, dumps = content
    if version != VERSION:
        raise ValueError("a block of another version of whichrank")
    _check(people, left_out, facts)
    sources = [Source(**dict(zip(_SOURCE, values, strict=True)), identity=people[number]) for values, number in known]
    if not all(_texts(source.readers) for source in sources):
        raise ValueError("damaged")
    evidence = Evidence(sources=sources)
    for kind, source_, line, excerpt, at_ns, clock, person, group, seq, values in facts:
        spot = Spot(sources[source_], line, excerpt)
        evidence.facts.append(Fact(kind, spot, at_ns, clock, people[person], group, seq, values))
    for source_, line, excerpt, person, at_ns, text, shape, index in said:
        spot = Spot(sources[source_], line, excerpt)
        evidence.said.append(Said(spot, people[person], at_ns, excerpt if text is None else text, shape, index))
    evidence.gaps = [Gap(*gap) for gap in gaps]
    evidence.dumps = [to_dump(sources[number], rest, tables) for number, *rest in dumps]
    lines, calls = left_out
    return Packed(host, name, evidence, (lines, calls))


def _texts(given: object) -> bool:
    return isinstance(given, tuple) and all(isinstance(text, str) for text in given)


def _check(people: Iterable[Identity], left_out: tuple[int, int], facts: Iterable[Any]) -> None:
    """What types alone do not say."""
    for who in people:
        if not all(number is None or 0 <= number < MOST_RANKS for number in (who.rank, who.local_rank)):
            raise ValueError("a rank that no job has")
    if min(left_out) < 0 or not all(isinstance(fact[8], int | None) for fact in facts):
        raise ValueError("damaged")


def _person(who: Identity) -> dict[str, Any]:
    parts = {part: _number(getattr(who, part)) for part in IDENTITY_PARTS}
    return {part: value for part, value in parts.items() if value is not None}


def _number(value: Any) -> Any:
    """Unknown where it is a number of more than 64 bits, as no time and no process has."""
    return None if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


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
        _count_large(1)
        return int(bytes(data)[:4000])
    items = _decoder.decode(data)
    if code == _TUPLE:
        return tuple(items)
    if code == _SET:
        _count_large(sum(isinstance(item, int) and abs(item) >= 2**32 for item in items))
        return frozenset(items)
    raise ValueError("an extension that is not known here")


def _count_large(more: int) -> None:
    """Python's hashes of numbers are known to everybody: as keys, many large ones could be made to collide."""
    _seen.large += more
    if _seen.large > MOST_LARGE:
        raise ValueError("more large numbers than any log has")


_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(ext_hook=_extended)
_block: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_Block, ext_hook=_extended)


class _Seen(threading.local):
    large = 0  # numbers of more than 64 bits in this block


_seen = _Seen()
