"""Time stamps as logs write them.

>>> find("2026-04-02 06:10:10,250 [0] INFO step 401")
(1775110210250000000, 'wall')
>>> find("[Thu Jul 03 15:06:16 2025] Memory cgroup out of memory")
(1751555176000000000, 'wall')
>>> find("[  625.867762] Out of memory")
(625867762000, 'boot')
>>> find("[rank3]:[E1130 05:41:18.324909491 ProcessGroupNCCL.cpp:632]", year=2026)
(1796017278324909491, 'wall')
>>> find("03/15/26 01:04:20")
(1773536660000000000, 'wall')
>>> find("08:02:24 [rank0] model ready")
(28944000000000, 'day')
>>> find("no stamp here")

A stamp without a zone is taken as UTC: only differences between stamps of one job matter, and a source that
runs in another zone is found by its offset (job/clocks.py). A stamp without a year gets `year`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from functools import lru_cache

from whichrank.facts import Clock, Fact

_MONTHS = {
    m: i for i, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)
}

_CLOCK = r"(?P<h>\d{2}):(?P<mi>\d{2}):(?P<s>\d{2})(?:[.,](?P<f>\d{1,9}))?"
_NAMES = r"(?P<mon>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"

# One pattern a form, the most telling first. A line's form is the same for all lines of its shape, so a scanner
# asks form_of() once for each shape and read() for each line.
FORMS = tuple(
    re.compile(form)
    for form in (
        # 2026-04-02 06:10:10,250  2026-04-02T06:10:10.25Z  2026/04/02 06:10:10  2026-11-30_06:01:45
        r"(?P<y>(?:19|20)\d{2})[-/](?P<mo>\d{2})[-/](?P<d>\d{2})[T _]" + _CLOCK + r"(?P<z>Z|[+-]\d{2}:?\d{2}(?!\d))?",
        # 05/26/2026-14:02:10
        r"(?P<mo>\d{2})/(?P<d>\d{2})/(?P<y>20\d{2})[- ]" + _CLOCK,
        # sysstat: 03/15/26 01:04:20 (what begins with a year, as Spark's does, has no such month)
        r"(?<![\d/-])(?P<mo>0\d|1[0-2])/(?P<d>[0-3]\d)/(?P<yy>[2-9]\d) " + _CLOCK,
        # glog and c10: E1130 05:41:18.324909491 (the day is always two digits, C++ does not pad the month)
        r"(?<![A-Za-z0-9])[IWEFCV](?P<md>\d{3,4}) " + _CLOCK,
        # dmesg -T, date, syslog: Thu Jul 03 15:06:16 2025
        _NAMES + r" {1,2}(?P<d>\d{1,2}) " + _CLOCK + r"(?: (?:[A-Z]{3,4} )?(?P<y>20\d{2}))?",
        # Thu, 02 Apr 2026 06:21:44 +0000
        r"(?P<d>\d{1,2}) " + _NAMES + r" (?P<y>20\d{2}) " + _CLOCK + r"(?: (?P<z>[+-]\d{4}))?",
        # 04-20 07:03:34, 06-03 14:16:01
        r"(?<![\d-])(?P<mo>[01]\d)[-/](?P<d>[0-3]\d) " + _CLOCK,
        # [  625.867762] seconds since boot
        r"^(?:<\d+>)?\[ *(?P<boot>\d{1,8}\.\d{6})\]",
        # 08:02:24 alone, at the start of the line or after a bracket or a label
        r"(?:(?<=^)|(?<=[\[ (|]))" + _CLOCK + r"(?![\d:/<])",
    )
)
_ZONE = re.compile(r"([+-])(\d{2}):?(\d{2})")
_ZONED = re.compile(r"\d ?(?:Z(?![A-Za-z0-9])|[+-]\d{2}:?\d{2}(?!\d))")  # most lines have none: asked before the forms
YEARLESS = 1972  # a leap year long before any job: job/clocks.py finds the real one
HEAD = 120  # a stamp stands near the start of its line


@lru_cache(maxsize=4096)
def _midnight(year: int, month: int, day: int) -> int | None:
    """Seconds from 1970 to 00:00 UTC of that day; None if there is no such day."""
    try:
        return (date(year, month, day).toordinal() - 719163) * 86400
    except ValueError:
        return None


def _seconds(hour: str, minute: str, second: str, fraction: str | None) -> int | None:
    if int(hour) > 23 or int(minute) > 59 or int(second) > 60:
        return None
    nanos = int(fraction.ljust(9, "0")) if fraction else 0
    return (int(hour) * 3600 + int(minute) * 60 + int(second)) * 1_000_000_000 + nanos


def shift(zone: str | None) -> int:
    """Seconds by which a zone ("+02:00") is ahead of UTC."""
    if not zone or zone == "Z":
        return 0
    match = _ZONE.fullmatch(zone)
    if not match:
        return 0
    seconds = int(match[2]) * 3600 + int(match[3]) * 60
    return seconds if match[1] == "+" else -seconds


def form_of(text: str) -> int | None:
    """Which of FORMS the head of this line holds, or None."""
    head = text[:HEAD]
    if head.count(":") < 2 and "." not in head:
        return None
    for number, form in enumerate(FORMS):
        match = form.search(head)
        if match and _value(match, None) is not None:
            return number
    return None


def read(text: str, form: int, year: int | None = None) -> tuple[int, Clock] | None:
    """The stamp of this form in the head of a line: (nanoseconds, "wall" | "boot" | "day"), or None.

    A stamp that lacks its year is placed in `year`, or in YEARLESS if that is not known (job/clocks.py moves it).
    """
    match = FORMS[form].search(text, 0, HEAD)
    return _value(match, year) if match else None


def find(text: str, year: int | None = None) -> tuple[int, Clock] | None:
    """form_of() and read() in one."""
    form = form_of(text)
    return None if form is None else read(text, form, year)


def wall(text: str) -> int | None:
    """The stamp in nanoseconds since 1970; None for one without a date."""
    found = find(text)
    return found[0] if found and found[1] == "wall" else None


def dated(fact: Fact, text: str) -> Fact:
    """The fact at the time that `text` names, which need not be the one before its line."""
    at = wall(text)
    return fact if at is None else replace(fact, at_ns=at, clock="wall")


def zone(text: str) -> int | None:
    """Nanoseconds by which the stamp's own zone is ahead of UTC; None for a stamp that names none.

    >>> zone("2026-06-02T22:48:04+0200 wm-b07 kernel: bond0: now running without any active interface!")
    7200000000000
    >>> zone("2026-06-02T20:48:04Z pod started")
    0
    >>> zone("2026-06-02 22:48:04,120 step 12")
    """
    if not _ZONED.search(text, 0, HEAD):
        return None
    form = form_of(text)
    match = FORMS[form].search(text, 0, HEAD) if form is not None else None
    written = match.groupdict().get("z") if match else None
    return shift(written) * 1_000_000_000 if written else None


def _value(match: re.Match[str], year: int | None) -> tuple[int, Clock] | None:
    group = match.groupdict()
    if "boot" in group:
        whole, part = group["boot"].split(".")
        return int(whole) * 1_000_000_000 + int(part) * 1000, "boot"
    clock = _seconds(group["h"], group["mi"], group["s"], group["f"])
    if clock is None:
        return None
    if "md" in group:
        month, day = int(group["md"][:-2]), int(group["md"][-2:])
    elif "d" not in group:
        return clock, "day"
    else:
        month, day = _MONTHS[group["mon"]] if "mon" in group else int(group["mo"]), int(group["d"])
    century = f"20{group['yy']}" if group.get("yy") else None
    start = _midnight(int(group.get("y") or century or year or YEARLESS), month, day)
    if start is None:
        return None
    return (start - shift(group.get("z"))) * 1_000_000_000 + clock, "wall"
