"""The file that the user gives as placement: read whole, whatever its size, and believed before other notes."""

from __future__ import annotations

import os

from whichrank.evidence import Evidence, read
from whichrank.evidence.collect import Found, collect, opened
from whichrank.evidence.envelope import Part
from whichrank.evidence.notes import read_note
from whichrank.evidence.text import decode
from whichrank.facts import Fact, Gap, Source

MOST = 32 << 20  # bytes: 200,000 ranks of a long row each
FORMS = "a row for each rank: `rank host local_rank pid file` with such a header, `0 node-a`, or JSON"


def take(evidence: Evidence, path: str) -> None:
    """Its facts into `evidence`, marked as given; a Gap where it says nothing of any rank."""
    _without(evidence, path)
    ordinary = read([path])
    source = ordinary.sources[0] if ordinary.sources else Source(path)
    source.kind, source.readers = "note", ("placement",)
    facts = _rows(path, source)
    if not facts:
        evidence.gaps.append(Gap(path, "given as placement, and no line of it says where a rank runs", FORMS))
    evidence.sources.append(source)
    evidence.facts += facts + [fact for fact in ordinary.facts if fact.kind not in ("member", "process")]


def _rows(path: str, source: Source) -> list[Fact]:
    for entry in collect([path]):
        for member in opened(entry) if isinstance(entry, Found) else ():
            if isinstance(member, Gap):
                continue
            data = b""
            for block in member.blocks:
                data += block
                if len(data) > MOST:
                    break
            lines = (decode(data) or "").split("\n")
            return list(read_note(Part([line.rstrip("\r") for line in lines]), source, given=True))
    return []


def _without(evidence: Evidence, path: str) -> None:
    """It may lie among the evidence as well: not twice."""
    for source in [source for source in evidence.sources if _same(source.path, path)]:
        evidence.sources.remove(source)
        evidence.facts = [fact for fact in evidence.facts if fact.spot.source is not source]
        evidence.said = [line for line in evidence.said if line.spot.source is not source]
        evidence.gaps = [gap for gap in evidence.gaps if gap.what != source.path]


def _same(one: str, other: str) -> bool:
    return one == other or os.path.realpath(one) == os.path.realpath(other)
