"""Times as collectors write them: ISO 8601 to the nanosecond, or a number since 1970 in any unit.

>>> wall("2026-07-30T09:30:15.408883675Z"), wall("2026-07-30 09:30:15,25"), wall("2026-07-30T11:30:15+02:00")
(1785403815408883675, 1785403815250000000, 1785403815000000000)
>>> wall(1785403815408), wall("1785403815408883"), wall(1785403815.25), wall({"seconds": 1785403815, "nanos": 7})
(1785403815408000000, 1785403815408883000, 1785403815250000000, 1785403815000000007)
>>> wall(12.5), wall("09:30:15"), wall(None)
(None, None, None)
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache

from whichrank.evidence import stamps

_TAIL = re.compile(r"(?:[.,](?P<f>\d{1,9})\d*)? ?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?")


def wall(value: object) -> int | None:
    """Nanoseconds since 1970, or None for what is no time of the calendar."""
    if type(value) is str:
        # Most are "2026-07-30T09:30:15.408883675Z", and many share their second.
        second = _SECONDS.get(value[:19])
        if second is not None and value[-1:] == "Z" and (digits := value[20:-1]).isdigit() and value[19] == ".":
            return second + int(digits) * _SCALE[len(digits)] if len(digits) < 10 else second + int(digits[:9])
        return _spelled(value)
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return _since_1970(value)
    if isinstance(value, dict) and isinstance(seconds := value.get("seconds"), (int, str)):
        whole, nanos = _since_1970(_number(str(seconds))), value.get("nanos")
        return None if whole is None else whole + (nanos if isinstance(nanos, int) else 0)
    return None


_SECONDS: dict[str, int] = {}
_SCALE = [10 ** (9 - digits) for digits in range(10)]


def _spelled(text: str) -> int | None:
    second = _second(text[:19])
    match = _TAIL.fullmatch(text, 19) if second is not None else None
    if second is None or match is None:
        return _other(text)
    nanos = int(match["f"].ljust(9, "0")) if match["f"] else 0
    return second + nanos - stamps.shift(match["zone"]) * 1_000_000_000


def _second(text: str) -> int | None:
    """A calendar's stamp to the second."""
    if text in _SECONDS:
        return _SECONDS[text]
    if len(text) != 19 or text[4] != "-" or text[10] not in "T ":
        return None
    found = stamps.find(text)
    if found is None or found[1] != "wall":
        return None
    if len(_SECONDS) > 100_000:
        _SECONDS.clear()
    _SECONDS[text] = found[0]
    return found[0]


def _other(text: str) -> int | None:
    if (number := _number(text)) is not None:
        return _since_1970(number)
    found = stamps.find(text)
    return found[0] if found and found[1] == "wall" else None


def _number(text: str) -> int | float | None:
    if len(text) > 24 or not text.replace(".", "", 1).isdecimal():
        return None
    return float(text) if "." in text else int(text)


def _since_1970(number: int | float | None) -> int | None:
    """Seconds, milli-, micro- or nanoseconds: whichever falls between 1973 and 2128."""
    for scale in (1_000_000_000, 1_000_000, 1_000, 1):
        if number is not None and 100_000_000_000_000_000 <= number * scale < 5_000_000_000_000_000_000:
            # A float of this size has no nanoseconds.
            return number * scale if isinstance(number, int) else round(number * scale / 1000) * 1000
    return None


QUARTER = 900_000_000_000  # ns: zones differ by whole quarters of an hour


def zone_shift(lines: list[str], times: list[int | None]) -> int:
    """By how much the lines' own clock, where it names no zone, is ahead of their collector's.

    A collector's clock is UTC, a program's may be local time. Lines that have no stamp of their own get the
    collector's: both must be of one clock, and the program's is the one that the job's other files have.

    >>> zone_shift(["2026-07-30 11:30:15 step 1", "2026-07-30 11:30:16 step 2"], [1785403815 * 10**9] * 2) / QUARTER
    8.0
    >>> zone_shift(["2026-07-30T11:30:15+02:00 step 1"] * 3, [1785403815 * 10**9] * 3)
    0
    """
    found: list[int] = []
    for text, at in zip(lines, times, strict=True):
        if at is not None and at > 2 * 366 * 96 * QUARTER and len(found) < 200:
            own = stamps.find(text, 1970 + int(at / 31_556_952_000_000_000))
            if own and own[1] == "wall" and stamps.zone(text) is None:
                found.append(round((own[0] - at) / QUARTER))
    if len(found) < 2:
        return 0
    common = max(set(found), key=found.count)
    return common * QUARTER if common and abs(common) <= 60 and found.count(common) >= 0.8 * len(found) else 0


_ZONED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)(?= \S+ [\w./-]+(?:\[\d+\])?: )")


def local(line: str, shift: int) -> str:
    """A line of syslog on the program's clock: its stamp without its zone.

    >>> local("2026-07-30T09:30:15.408+00:00 gn-05 kernel: NVRM: Xid", 8 * QUARTER)
    '2026-07-30T11:30:15.408000 gn-05 kernel: NVRM: Xid'
    """
    match = _ZONED.match(line) if line[:2] == "20" else None
    at = wall(match[0]) if match else None
    if match is None or at is None:
        return line
    return f"{written(at + shift)}{line[match.end() :]}"


@lru_cache(maxsize=4096)
def written(at: int) -> str:
    """ISO 8601 to the microsecond, without a zone."""
    return (datetime(1970, 1, 1) + timedelta(microseconds=at // 1000)).isoformat(timespec="microseconds")
