r"""journald's export format (`journalctl -o export`, systemd 232 to 257): records of several lines.

`NAME=value` lines up to an empty one; a value with control characters stands behind a line with the name alone: eight
bytes of its length, then its bytes. Read exactly from bytes (`entries`), or from text in which the length is damaged.

>>> layer = recognise(["__CURSOR=s=1", "__REALTIME_TIMESTAMP=1785403815408883", "_HOSTNAME=gn-05", "MESSAGE=step 7"])
>>> opened = layer.open(["__REALTIME_TIMESTAMP=1785403815408883", "_HOSTNAME=gn-05", "MESSAGE", "\x07\0\0\0\0\0\0\0foo", "bar", ""])
>>> opened.lines, opened.origins, opened.whos[0].host
(['foo', 'bar'], [2, 2], 'gn-05')
>>> [(line, fields["MESSAGE"]) for line, fields in entries(b"__CURSOR=s=1\nMESSAGE\n\x07\0\0\0\0\0\0\0foo\nbar\n\n")]
[(2, 'foo\nbar')]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from whichrank.evidence.envelope.part import Opened, opened
from whichrank.evidence.envelope.records import Records
from whichrank.facts import NOBODY

_FIELD = re.compile(r"[A-Z_][A-Z0-9_]{0,63}=")
_ALONE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
Fields = dict[str, str]


def entries(data: bytes) -> Iterator[tuple[int, Fields]]:
    """(line of MESSAGE, or of the record's start; fields) of each record, exactly."""
    position, line, start, message = 0, 1, 1, 0
    fields: Fields = {}
    while position < len(data):
        end = data.find(b"\n", position)
        end = len(data) if end < 0 else end
        name, equals, value = data[position:end].partition(b"=")
        here = line
        position, line = end + 1, line + 1
        if not name and not equals:
            if fields:
                yield message or start, fields
            fields, start, message = {}, line, 0
            continue
        if not equals:
            size = int.from_bytes(data[position : position + 8], "little")
            value = data[position + 8 : position + 8 + min(size, len(data))]
            line += data[position : position + 8].count(b"\n") + value.count(b"\n") + 1
            position += 8 + size + 1
        key = name.decode("utf-8", "replace")
        if key == "MESSAGE":
            message = here
        if key not in fields:
            fields[key] = value.decode("utf-8", "replace")
    if fields:
        yield message or start, fields


@dataclass(frozen=True, slots=True)
class Export:
    """Records as lines of text."""

    records: Records = field(default_factory=lambda: Records(exported=False))
    exported: bool = False

    def open(self, lines: Sequence[str]) -> Opened:
        out = opened()
        for first, last in _spans(lines):
            fields, places = _fields(lines, first, last)
            reading = self.records.read(dict(fields)) if "MESSAGE" in fields else None
            if reading is None:
                if not any(_FIELD.match(line) for line in lines[first:last]):
                    for index in range(first, last):
                        out.add(lines[index], index, None, NOBODY)
                continue
            for text in reading.lines:
                out.add(text, places["MESSAGE"], reading.at, reading.who)
        return out


def _spans(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where records begin and end: at empty lines that a record's first field follows."""
    start = 0
    for index, line in enumerate(lines):
        if not line and (index + 1 == len(lines) or _FIELD.match(lines[index + 1])):
            if index > start:
                yield start, index
            start = index + 1
    if start < len(lines):
        yield start, len(lines)


def _fields(lines: Sequence[str], first: int, last: int) -> tuple[Fields, dict[str, int]]:
    fields: Fields = {}
    places: dict[str, int] = {}
    index = first
    while index < last:
        line = lines[index]
        name, equals, value = line.partition("=")
        begun = index
        index += 1
        if not (equals and _FIELD.match(line)):
            if not _ALONE.fullmatch(line):
                continue
            name = line
            taken: list[str] = []
            while index < last and not (taken and (_FIELD.match(lines[index]) or _ALONE.fullmatch(lines[index]))):
                taken.append(lines[index])
                index += 1
            value = _without_length("\n".join(taken))
        fields.setdefault(name, value)
        places.setdefault(name, begun)
    return fields, places


def _without_length(value: str) -> str:
    """A value without the eight bytes of its length, whose zeros may be lost and whose others may be replaced."""
    for taken in range(1, 9):
        rest = value[taken:]
        size = len(rest.encode("utf-8", "replace")).to_bytes(8, "little")
        if value[:taken] in (size.decode("utf-8", "replace"), size.replace(b"\0", b"").decode("utf-8", "replace")):
            return rest
    return re.sub(r"^[\x00-\x08\x0e-\x1f\ufffd]+", "", value)


def recognise(lines: Sequence[str]) -> Export | None:
    named = sum(
        line.startswith(("__REALTIME_TIMESTAMP=", "__CURSOR=", "_SOURCE_REALTIME_TIMESTAMP=")) for line in lines
    )
    fields = sum(bool(_FIELD.match(line)) for line in lines)
    return Export() if named and fields > 0.5 * len(lines) else None
