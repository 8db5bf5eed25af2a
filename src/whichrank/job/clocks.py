"""One clock for the whole job: years that stamps left out, and times of day without a date.

Only order and distance matter, so a stamp without a zone stays as it is, unless others carry an offset and show that it
is local time (job/zones.py). A stamp without a year gets the year that puts it nearest to the job's other stamps. Where
a host's clock is known to be seconds off, its stamps are corrected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from statistics import median_low

from whichrank.evidence.stamps import YEARLESS
from whichrank.facts import Fact, Said
from whichrank.job import zones
from whichrank.job.model import Job, both

DAY = 86_400_000_000_000
ASTRAY = 5.0  # seconds by which a clock is off from which on it matters: logs round, and lines are written late
_EPOCH = int(datetime(YEARLESS, 1, 1, tzinfo=timezone.utc).timestamp()) * 1_000_000_000
_YEAR = 366 * DAY
_LIMIT = int(datetime(YEARLESS + 2, 1, 1, tzinfo=timezone.utc).timestamp()) * 1_000_000_000


def settle(facts: Sequence[Fact], said: Sequence[Said]) -> tuple[list[Fact], list[Said]]:
    """The same facts and lines, every "wall" stamp with its year, every "day" stamp with its date where known."""
    known = zones.of_items(both(facts, said))
    facts, said = _over_the_turn([_fired(fact) for fact in facts], said)
    walls = [fact.at_ns for fact in facts if fact.clock in ("wall", "near") and fact.at_ns is not None]
    walls += [line.at_ns for line in said if line.at_ns is not None and line.at_ns > 2 * DAY]
    dated = [at for at in walls if at > _LIMIT]
    anchor = median_low(dated) if dated else None
    fixed = [_dated(at, anchor) for at in walls]
    day = min(fixed) // DAY * DAY if fixed else None
    moved_facts = [
        replace(fact, at_ns=at, clock="wall" if fact.clock == "day" else fact.clock)
        if fact.at_ns is not None and fact.clock != "boot" and (at := _moved(fact.at_ns, anchor, day)) != fact.at_ns
        else fact
        for fact in facts
    ]
    moved_said = [
        replace(line, at_ns=at)
        if line.at_ns is not None and (at := _moved(line.at_ns, anchor, day)) != line.at_ns
        else line
        for line in said
    ]
    return zones.unite(moved_facts, moved_said, known)


def offsets(facts: Sequence[Fact]) -> dict[str, float]:
    """Host -> seconds by which its clock is ahead of the others' (behind: below zero), where that is `ASTRAY` or more.

    Of three hosts or more the middle one is right: a time server that is wrong itself moves them all. What a host said
    last counts.
    """
    last = {
        fact.who.host: float(fact["seconds"])
        for fact in sorted(facts, key=lambda fact: fact.order)
        if fact.kind == "clock_offset" and fact.who.host
    }
    base = median_low(last.values()) if len(last) > 2 else 0.0
    return {host: off - base for host, off in last.items() if host and abs(off - base) >= ASTRAY}


def aligned(job: Job) -> tuple[list[Fact], list[Said]] | None:
    """The job's facts and lines, those of hosts whose clock is off with corrected times; None where none is.

    Which host a line comes from is known only once its rank is, so the job has to be built first. A rank whose host is
    unknown keeps its times.
    """
    off = offsets(job.facts)
    if not off:
        return None

    def moved(item: Fact | Said) -> int | None:
        host = item.who.host or job.host_of(item.rank)
        by = off.get(host or "")
        return None if by is None or item.at_ns is None else item.at_ns - int(by * 1e9)

    facts = [
        replace(fact, at_ns=at)
        if fact.clock in ("wall", "near", "day") and fact.kind != "clock_offset" and (at := moved(fact)) is not None
        else fact
        for fact in job.facts
    ]
    return facts, [replace(line, at_ns=at) if (at := moved(line)) is not None else line for line in job.said]


def _fired(fact: Fact) -> Fact:
    """A watchdog's line without a stamp: it came as long after its rank's last stamped line as it says that it ran."""
    ran = fact["ran_ms"]
    unstamped = fact.kind == "timeout" and fact.clock == "near" and not fact["echo"]
    if unstamped and fact.at_ns is not None and isinstance(ran, int):
        return replace(fact, at_ns=fact.at_ns + min(ran, 86_400_000) * 1_000_000, clock="wall")
    return fact


def _over_the_turn(facts: Sequence[Fact], said: Sequence[Said]) -> tuple[Sequence[Fact], Sequence[Said]]:
    """Stamps without a year that are all of winter, or times of day that are all of one night: January and the small
    hours come after December and the evening."""
    stamps = [fact.at_ns for fact in facts if fact.at_ns is not None and fact.clock != "boot"]
    stamps += [line.at_ns for line in said if line.at_ns is not None]
    for begin, length in ((0, DAY), (_EPOCH, _YEAR)):
        parts = {4 * (at - begin) // length for at in stamps if begin <= at < begin + length}
        if 0 in parts and 3 in parts and not parts & {1, 2}:
            late = range(begin, begin + length // 4)
            facts = [
                replace(fact, at_ns=fact.at_ns + length)
                if fact.at_ns is not None and fact.clock != "boot" and fact.at_ns in late
                else fact
                for fact in facts
            ]
            said = [
                replace(line, at_ns=line.at_ns + length) if line.at_ns is not None and line.at_ns in late else line
                for line in said
            ]
    return facts, said


def _moved(at: int, anchor: int | None, day: int | None) -> int:
    if at < 2 * DAY:  # a time of day, perhaps of the day after
        return at + day if day is not None else at
    return _dated(at, anchor)


def _dated(at: int, anchor: int | None) -> int:
    """A stamp of the year YEARLESS in the year that brings it nearest to `anchor`."""
    if at > _LIMIT or anchor is None:
        return at
    then = datetime.fromtimestamp(at / 1e9, tz=timezone.utc)
    year = datetime.fromtimestamp(anchor / 1e9, tz=timezone.utc).year
    moved = []
    for candidate in (year - 1, year, year + 1):
        try:
            moved.append(at + int((then.replace(year=candidate) - then).total_seconds()) * 1_000_000_000)
        except ValueError:  # 29 February
            continue
    return min(moved, key=lambda value: abs(value - anchor), default=at)


def iso(at_ns: int | None) -> str | None:
    """ISO 8601 in UTC; without its year where the evidence has none. None where it is no time."""
    if at_ns is None:
        return None
    try:
        when = datetime.fromtimestamp(at_ns / 1e9, tz=timezone.utc)
    except (OverflowError, ValueError, OSError):  # a timeout of 2^64 ms before a stamp
        return None
    if at_ns < 2 * DAY:
        return f"{when:%H:%M:%S}"
    return f"{when:%m-%dT%H:%M:%S}" if at_ns < _LIMIT else f"{when:%Y-%m-%dT%H:%M:%SZ}"


def span(seconds: float) -> str:
    """A duration as people say it.

    >>> span(14.2), span(600), span(5400), span(200000)
    ('14 s', '10 min', '1.5 h', '2.3 days')
    """
    seconds = abs(seconds)
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    if seconds < 172800:
        return f"{seconds / 3600:.3g} h"
    return f"{seconds / 86400:.2g} days"
