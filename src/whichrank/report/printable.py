"""Text from logs, made safe to show: no terminal sequences, no invisible characters, no longer than there is room.

>>> printable("loss \\x1b[31m0.3\\x1b[0m\\u202e gnp.exe")
'loss 0.3 gnp.exe'
>>> shorter_path("logs/none_v7k2qe1x/attempt_0/5/stderr.log:123", 36)
'logs/…/attempt_0/5/stderr.log:123'
"""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, device strings
    r"|\x1b[ -/]*[0-~]"
)
_HARMLESS = re.compile(r"[ -~]*")
_FRAME = re.compile(
    r"\s*(?:\[[^\]]{0,80}\]:?|\([\w:. -]*pid=\d+[^)]{0,60}\)|\d{1,5}:(?= )|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|[\w.-]+:\d+:\d+(?= )|NCCL(?= [IW])|INFO|WARN(?:ING)?|ERROR"
    r"|(?:[\w.-]+ )?kernel:)\s*"
)


def printable(text: str, keep_lines: bool = False) -> str:
    """One line of visible characters. Tabs and line ends become spaces, or stay with `keep_lines`."""
    text = str(text)  # a made-up digest may hold anything
    if _HARMLESS.fullmatch(text):
        return text
    text = _SEQUENCE.sub("", text)
    return "".join(_visible(character, keep_lines) for character in text)


def _visible(character: str, keep_lines: bool) -> str:
    if " " <= character <= "~":
        return character
    if character in "\n\t":
        return character if keep_lines else " "
    kind = unicodedata.category(character)
    if kind in ("Zl", "Zp", "Zs") or character == "\r":
        return " "
    if kind == "Cs":
        return "\ufffd"
    # Cc: controls; Cf: text direction, zero width, tags. Cn and Co have no agreed picture.
    return "" if kind in ("Cc", "Cf", "Cn", "Co") else character


def cells(text: str) -> int:
    """Columns that a printable text takes in a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """At most `width` columns; what is missing at the end shows as "…"."""
    if cells(text) <= width:
        return text
    while text and cells(text) > width - 1:
        text = text[: min(len(text) - 1, max(1, width - 1))]
    return text.rstrip() + "…"


def shorter_path(path: str, width: int) -> str:
    """A path within `width` columns: its first folder and as many of its last parts as fit."""
    if cells(path) <= width:
        return path
    parts = path.replace("\\", "/").split("/")
    for at in range(1, len(parts)):  # the end tells files apart, so it outranks the first folder
        for start in ([parts[0], "…"], ["…"]) if at > 1 else (["…"],):
            if cells(shorter := "/".join([*start, *parts[at:]])) <= width:
                return shorter
    name, half = parts[-1], (width - 1) // 2
    return name if cells(name) <= width else f"{cut_plain(name, half)}…{name[-(width - 1 - half) :]}"


def cut_plain(text: str, width: int) -> str:
    """The beginning of a text, as many characters as fit in `width` columns."""
    while cells(text) > width:
        text = text[:-1]
    return text


def lead(excerpt: str, room: int, lines: int = 1) -> str:
    """An excerpt for so many lines of `room` columns.

    Where it is longer than one line, the stamps and labels before its message go first.
    """
    if cells(excerpt) <= room:
        return excerpt
    at = 0
    while (match := _FRAME.match(excerpt, at)) and match.end() > at and match.end() < len(excerpt):
        at = match.end()
    # Breaking between words costs some columns of every line but the last.
    return cut("…" + excerpt[at:] if at else excerpt, room * lines - (lines - 1) * min(12, room // 4))


def shape(text: str) -> str:
    """The text with its numbers taken out: what is alike between ranks."""
    return re.sub(r"\d+", "#", text)


_TIME = re.compile(
    r"(?:(?P<year>\d{4})-)?(?:(?P<date>\d\d-\d\d)[T ])?(?P<time>\d\d:\d\d:\d\d)(?:[.,]\d+)?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)


def moment(at: str | None) -> datetime | None:
    """A time of a report, to count with: fractions of a second dropped, a year or day that no line told made up."""
    match = _TIME.fullmatch(at or "")
    if not match:
        return None
    zone = (match["zone"] or "").replace("Z", "+00:00")
    zone = zone if ":" in zone or not zone else f"{zone[:3]}:{zone[3:]}"
    try:
        return datetime.fromisoformat(f"{match['year'] or 2000}-{match['date'] or '01-01'}T{match['time']}{zone}")
    except ValueError:
        return None


def day(at: str | None) -> str:
    """ "2026-11-30", or "11-30" where no line told the year, or nothing."""
    match = _TIME.fullmatch(at or "")
    return "-".join(filter(None, [match["year"], match["date"]])) if match else ""


def clock(at: str | None, with_date: bool = False) -> str:
    """ "05:12:44Z" or "2026-11-30 05:12:44Z"; a time in no known form as it stands."""
    match = _TIME.fullmatch(at or "")
    if match is None:
        return printable(at or "")
    time = match["time"] + (match["zone"] or "").replace("+00:00", "Z")
    return f"{day(at)} {time}".strip() if with_date else time


def lasting(seconds: float) -> str:
    """A duration as people say it: "0.3 s", "44 s", "29 min", "2 h 5 min".

    >>> lasting(1764)
    '29 min'
    """
    if seconds < 10:
        return f"{seconds:.3g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 2880 else f"{minutes / 1440:.0f} days"


def many(number: int, word: str) -> str:
    """ "1 file", "71 files"."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
