"""Files that were read twice: themselves, and in a digest that lies beside them."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

from whichrank.evidence import Evidence
from whichrank.facts import Source, slashed

if TYPE_CHECKING:
    from whichrank.dump import Dump


class Here:
    """What has been read so far, to be asked whether a file of a digest is among it.

    A ring tells by its calls whose and which it is, wherever it lies and whatever it is called. Another file has to
    have the same name, in the same folder or one of that name, the same size, and the lines that the digest has kept.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.rings: dict[int | None, list[Dump]] = defaultdict(list)
        self.files: dict[tuple[str, int, int], list[tuple[str, set[int]]]] = defaultdict(list)
        self.add(evidence)

    def add(self, evidence: Evidence) -> None:
        for dump in evidence.dumps:
            self.rings[dump.rank].append(dump)
        for source, lines in _files(evidence):
            self.files[_key(source)].append((slashed(source.path), lines))

    def holds(self, evidence: Evidence) -> bool:
        """Is all of this there, and as long?"""
        return (
            bool(evidence.sources)
            and all(any(_same(dump, other) for other in self.rings.get(dump.rank, ())) for dump in evidence.dumps)
            and all(self._file(source, lines) for source, lines in _files(evidence))
        )

    def _file(self, source: Source, lines: set[int]) -> bool:
        mine = slashed(source.path)
        return any(
            lines <= others and (f"/{mine}".endswith(f"/{path}") or f"/{path}".endswith(f"/{mine}"))
            for path, others in self.files.get(_key(source), ())
        )


def _files(evidence: Evidence) -> list[tuple[Source, set[int]]]:
    """All but rings, each with its lines."""
    ringed = {id(dump.source) for dump in evidence.dumps}
    lines: dict[int, set[int]] = {id(source): set() for source in evidence.sources}
    for spot in chain((fact.spot for fact in evidence.facts), (line.spot for line in evidence.said)):
        if id(spot.source) in lines:
            lines[id(spot.source)].add(hash((spot.line, spot.excerpt)))
    return [(source, lines[id(source)]) for source in evidence.sources if id(source) not in ringed]


def _key(source: Source) -> tuple[str, int, int]:
    return slashed(source.path).rpartition("/")[2], source.bytes, source.lines


def _same(dump: Dump, other: Dump) -> bool:
    """Does `other` end with the calls of `dump`, and know the same of them?"""
    kept = len(dump)
    if len(other) < kept or (dump.version, dump.status) != (other.version, other.status):
        return False
    if not kept:
        return not len(other) and dump.groups == other.groups
    columns = ("record", "seq", "p2p_seq", "state", "created", "completed")
    return all((getattr(dump, name) == getattr(other, name)[-kept:]).all() for name in columns)
