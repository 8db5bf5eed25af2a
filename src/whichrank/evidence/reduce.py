"""Files -> a digest of bounded size. What has to be left out is what is most alike: old calls, lines in the middle."""

from __future__ import annotations

import socket
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from whichrank.dump import COLUMNS, PART, Dump
from whichrank.evidence import Evidence, parallel, read_file, share_of
from whichrank.evidence.collect import Found, collect
from whichrank.evidence.digest import joined
from whichrank.evidence.digest_block import Packed, pack, unpack
from whichrank.evidence.digested import unreadable
from whichrank.evidence.parallel import Workers
from whichrank.facts import Fact, Gap, Said

LIMIT = 60 << 10  # bytes for each rank: 64 KiB less what holds the blocks together
RING = LIMIT // 2  # of that, for one ring
LEAST = 400  # calls of a ring, lines of a log that are kept in any case


class Reduced(NamedTuple):
    """A digest's bytes; files that it holds; ranks they are of; what was left out; gaps of what could not be read."""

    data: bytes
    files: int
    ranks: int
    lines: int
    calls: int
    gaps: list[Gap]


class _Part(NamedTuple):
    block: bytes
    size: int  # once compressed
    ranks: frozenset[int]


def reduce(
    paths: Sequence[str],
    host: str | None = None,
    progress: Callable[[str], None] | None = None,
    workers: Workers = None,
) -> Reduced:
    """A digest of all evidence under `paths`, digests among it. host: put before the names of the files."""
    listed = list(collect(paths))
    found = [entry for entry in listed if isinstance(entry, Found)]
    gaps = [entry for entry in listed if isinstance(entry, Gap)]
    work = partial(_file, share=share_of([entry.bytes for entry in found]), host=host or "", here=_here())
    blocks: set[bytes] = set()
    parts: list[_Part] = []
    for entry, (part, others) in zip(found, parallel.each(work, found, workers), strict=True):
        if progress:
            progress(entry.name)
        blocks.update(others)
        if part is not None:
            parts.append(part)
    parts = _bounded(parts)
    blocks.update(part.block for part in parts)
    packed: list[Packed] = []
    errors: list[str] = []
    for block in sorted(blocks):
        try:
            packed.append(unpack(block, {}))
        except ValueError as error:
            blocks.discard(block)
            errors.append(str(error))
    if errors:
        gaps.append(Gap("digests", f"{unreadable(errors)}: left out", "these digests once more"))
    return Reduced(
        joined(blocks),
        len(blocks),
        len(frozenset[int]().union(*(_ranks(one.parts) for one in packed))),
        sum(one.left_out[0] for one in packed),
        sum(one.left_out[1] for one in packed),
        gaps,
    )


def _here() -> str:
    return socket.gethostname().partition(".")[0]


def _file(found: Found, share: int, host: str, here: str) -> tuple[_Part | None, list[bytes]]:
    """A file's own block; where it is a digest, the blocks that it holds."""
    if host:
        found = found._replace(name=f"{host}/{found.name}")
    evidence = read_file(found, share)
    others = [block.data for block in evidence.blocks]
    if others:
        return None, others
    if host:
        evidence.facts[:] = [_at(host, fact) for fact in evidence.facts]
    return _packed(Packed(host or here, found.name, evidence, (0, 0))), []


def _at(host: str, fact: Fact) -> Fact:
    """A dump lies where its rank runs; a log may speak of ranks of other hosts."""
    if fact.kind != "dump" or fact.who.host is not None:
        return fact
    return replace(fact, who=replace(fact.who, host=host))


def _packed(packed: Packed) -> _Part:
    block = pack(packed)
    size = len(zlib.compress(block, 6))
    return _Part(block, size, _ranks(packed.parts))


def _ranks(evidence: Evidence) -> frozenset[int]:
    ranks = {source.identity.rank for source in evidence.sources} | {dump.rank for dump in evidence.dumps}
    ranks |= {line.who.rank for line in evidence.said}
    return frozenset(rank for rank in ranks if rank is not None)


# ---- within bounds


def _bounded(parts: list[_Part]) -> list[_Part]:
    """Each part whole where all fit; else the largest are made smaller, down to one size."""
    ranks = frozenset[int]().union(*(part.ranks for part in parts))
    room = LIMIT * max(1, len(ranks))
    if sum(part.size for part in parts) <= room:
        return parts
    level = _level([part.size for part in parts], room)
    return [part if part.size <= level else _smaller(part, level) for part in parts]


def _level(sizes: Sequence[int], room: int) -> int:
    """What no part may exceed for all to have room."""
    for at, size in enumerate(sorted(sizes)):
        if size * (len(sizes) - at) > room:
            return room // (len(sizes) - at)
        room -= size
    return max(sizes, default=0)


def _smaller(part: _Part, level: int) -> _Part:
    packed = unpack(part.block, {})
    if packed.parts.dumps:
        packed = _shorter_rings(packed, level)
    whole = _packed(packed)
    kept = max(len(packed.parts.said), len(packed.parts.facts))
    while whole.size > level and kept > 8:
        kept = max(8, int(kept * max(0.2, min(0.8, level / whole.size))))
        whole = _packed(_fewer_lines(packed, kept))
    return whole


def _fewer_lines(packed: Packed, kept: int) -> Packed:
    evidence = replace(packed.parts, said=_chosen(packed.parts.said, kept), facts=_chosen(packed.parts.facts, kept))
    gone = len(packed.parts.said) + len(packed.parts.facts) - len(evidence.said) - len(evidence.facts)
    return packed._replace(parts=evidence, left_out=(packed.left_out[0] + gone, packed.left_out[1]))


T = TypeVar("T", Fact, Said)


def _chosen(items: list[T], kept: int) -> list[T]:
    """The last ones of each speaker (and of each kind of fact) before all others, and a few first ones of each."""
    if len(items) <= kept:
        return list(items)
    lanes: dict[object, list[int]] = defaultdict(list)
    for at, item in enumerate(items):
        lanes[item.spot.source.path, item.who, getattr(item, "kind", "")].append(at)
    order: list[tuple[int, int, int]] = []
    for places in lanes.values():
        order += [(2 * turn, -at, at) for turn, at in enumerate(reversed(places))]  # the last ones
        order += [(8 * turn + 1, at, at) for turn, at in enumerate(places)]  # the first ones
    wanted: dict[int, None] = {}
    for _, _, at in sorted(order):
        if len(wanted) >= kept:
            break
        wanted[at] = None
    return [items[at] for at in sorted(wanted)]


def _shorter_rings(packed: Packed, level: int) -> Packed:
    """Rings that begin later, as if they had been smaller: what a ring lost is told from what never was."""
    dumps, gone = [], 0
    each = max(RING, level // (2 * len(packed.parts.dumps)))
    for dump in packed.parts.dumps:
        kept = len(dump)
        shorter = dump
        while kept > LEAST and _ring_size(shorter) > min(each, level):
            kept = max(LEAST, kept // 2)
            shorter = _newest(dump, kept)
        gone += len(dump) - len(shorter)
        dumps.append(shorter)
    return packed._replace(
        parts=replace(packed.parts, dumps=dumps), left_out=(packed.left_out[0], packed.left_out[1] + gone)
    )


def _ring_size(dump: Dump) -> int:
    return len(zlib.compress(pack(Packed("", "", Evidence(sources=[dump.source], dumps=[dump]), (0, 0))), 6))


def _newest(dump: Dump, kept: int) -> Dump:
    """A ring's last calls; from its oldest unfinished one on where that does not make it four times as many."""
    first = max(0, len(dump) - kept)
    unfinished = dump.open.nonzero()[0]
    if len(unfinished) and len(dump) - int(unfinished[0]) <= 4 * kept:
        first = min(first, int(unfinished[0]))
    while first and dump.kind[first - 1] == PART:  # a batch is not cut apart
        first -= 1
    shorter = replace(dump, **{name: getattr(dump, name)[first:] for name in COLUMNS})
    return _used_only(shorter)


def _used_only(dump: Dump) -> Dump:
    """Without the names, shapes and stacks that only older calls had."""
    import numpy as np

    changed: dict[str, Any] = {}
    for column, table in (("name", "names"), ("signature", "signatures"), ("site", "sites")):
        known = getattr(dump, table)
        used = sorted({*np.unique(getattr(dump, column)).tolist(), *((0,) if column == "site" else ())})
        number = {old: new for new, old in enumerate(used)}
        changed[table] = tuple(known[old] for old in used)
        sort = getattr(dump, column).dtype
        changed[column] = np.array([number[old] for old in getattr(dump, column).tolist()], sort)
    return replace(dump, **changed)
