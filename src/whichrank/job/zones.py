"""Stamps with an offset beside stamps without a zone: one host's journal writes 22:48:04+0200, the job's log 22:48:04.

What has no zone is taken as UTC. That is wrong where the job writes local time, and a cause of 22:48 then seems to lie
two hours before its effect. Stamps that carry an offset tell what local time is, and the ranges of both show which
reading holds. Nothing is moved unless only one reading makes them meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from whichrank.evidence import stamps
from whichrank.facts import Fact, Said
from whichrank.job.model import Item, both, gap

MINUTE = 60_000_000_000  # ns
FAR = 15 * MINUTE  # between two ranges: they do not meet; the finest step of any zone
MEET = 5 * MINUTE  # between two ranges that meet: a log ends a little before the lines about its end
STEADY = 20  # lines in the last hours of a log that would have gone on if time had
_SPEAKING = ("training", "unknown", "dump")
_DATED = 400 * 86_400_000_000_000  # ns since 1970: less is a time of day, or has no year


def unite(facts: list[Fact], said: list[Said], zones: Sequence[int | None]) -> tuple[list[Fact], list[Said]]:
    """Facts and lines in UTC; `zones` says of each, facts first, what offset its own stamp carries (of_items)."""
    offset = _offset(both(facts, said), zones)
    if offset is None:
        return facts, said
    bare = [zone is None for zone in zones]
    return (
        [
            replace(fact, at_ns=fact.at_ns - offset)
            if naive and fact.at_ns is not None and fact.clock != "boot" and fact.at_ns > _DATED
            else fact
            for fact, naive in zip(facts, bare[: len(facts)], strict=True)
        ],
        [
            replace(line, at_ns=line.at_ns - offset)
            if naive and line.at_ns is not None and line.at_ns > _DATED
            else line
            for line, naive in zip(said, bare[len(facts) :], strict=True)
        ],
    )


def of_items(items: Sequence[Item]) -> list[int | None]:
    """The offset in ns that each one's stamp carries. What has the stamp of a line before it has that line's."""
    own = [stamps.zone(item.spot.excerpt) if item.at_ns is not None else None for item in items]
    if not any(own):  # none but UTC: no local time to learn
        return [None] * len(items)
    carried = {
        (item.spot.source.path, item.at_ns): zone for item, zone in zip(items, own, strict=True) if zone is not None
    }
    return [
        zone if zone is not None or not _borrowed(item) else carried.get((item.spot.source.path, item.at_ns))
        for item, zone in zip(items, own, strict=True)
    ]


def _borrowed(item: Item) -> bool:
    return item.clock == "near" if isinstance(item, Fact) else stamps.form_of(item.spot.excerpt) is None


def _offset(items: Sequence[Item], zones: Sequence[int | None]) -> int | None:
    """The one offset from UTC, in ns, by which the stamps without a zone are late; None where that is not shown."""
    offsets = {zone for zone in zones if zone}
    if len(offsets) != 1:
        return None
    offset = next(iter(offsets))
    zoned = [item.at_ns for item, zone in zip(items, zones, strict=True) if zone is not None and item.at_ns is not None]
    naive = _speaking([item for item, zone in zip(items, zones, strict=True) if zone is None and _dated(item)])
    if not naive or not zoned or abs(offset) < 2 * FAR:
        return None
    here, there = (min(naive), max(naive)), (min(zoned), max(zoned))
    moved = here[0] - offset, here[1] - offset
    if gap(here, there) > FAR:
        return offset if gap(moved, there) <= MEET else None
    # They meet as they are, since the job ran for longer than the offset. But a log that spoke all the time and
    # falls silent just as long before the job's end as the offset is ended with the job.
    late = [at for at in zoned if at > there[1] - abs(offset)]
    ends = offset > 0 and abs(moved[1] - there[1]) <= FAR and len(set(late)) >= STEADY
    return offset if ends and here[1] - there[1] > FAR else None


def _dated(item: Item) -> bool:
    return (
        item.at_ns is not None
        and item.at_ns > _DATED
        and not (isinstance(item, Fact) and item.clock in ("boot", "day"))
    )


def _speaking(items: Sequence[Item]) -> list[int]:
    """When the job spoke; when its hosts did, where nothing else has such stamps."""
    of_job = [item.at_ns for item in items if item.at_ns is not None and item.spot.source.kind in _SPEAKING]
    return of_job or [item.at_ns for item in items if item.at_ns is not None]
