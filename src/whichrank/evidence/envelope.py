"""Wrapping that a log collector puts around lines: JSON lines of Loki, Docker, Google Cloud, Datadog and the like.

The inner text goes to the readers, the collector's labels become identity, its time the line's time, and the lines
are put in time order (exports often are not). Line numbers stay those of the file.

>>> part, = peel('{"log":"[rank3] step 7\\\\n","time":"2026-07-30T09:30:15.4Z","labels":{"pod":"asr-0"}}\\n', None)
>>> part.lines, part.numbers, part.whos[0].pod
(['[rank3] step 7'], [1], 'asr-0')
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from whichrank.evidence import stamps
from whichrank.facts import NOBODY, Identity, Source


@dataclass(slots=True)
class Part:
    """Lines as a program wrote them. `numbers`, `times` (ns since 1970) and `whos` are empty or as long as `lines`."""

    lines: list[str]
    numbers: list[int] = field(default_factory=list)
    times: list[int | None] = field(default_factory=list)
    whos: list[Identity] = field(default_factory=list)


_TEXT = ("line", "log", "message", "msg", "MESSAGE", "textPayload", "text")
_TIME = ("timestamp", "time", "ts", "@timestamp", "__REALTIME_TIMESTAMP", "date")
_HOST = ("host", "hostname", "node", "node_name", "nodename", "_HOSTNAME", "instance")
_POD = ("pod", "pod_name", "kubernetes.pod_name")


class Envelope:
    def unwrap(self, lines: Sequence[str], numbers: Sequence[int]) -> Part:
        part = _unwrapped(list(lines))
        part.numbers = [numbers[n - 1] for n in part.numbers]
        return part


def envelope_of(head: Sequence[str]) -> Envelope | None:
    head = [line for line in head if line.strip()][:40]
    return Envelope() if head and sum(_is_record(line) for line in head) >= 0.8 * len(head) else None


def peel(text: str, source: Source | None) -> Iterator[Part]:
    """The parts of a text; one part with all lines if there is no wrapping."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    head = [line for line in lines[:40] if line.strip()]
    if head and sum(_is_record(line) for line in head) >= 0.8 * len(head):
        yield _unwrapped(lines)
    else:
        yield Part(lines)


def _record(line: str) -> Mapping[str, Any] | None:
    line = line.strip()
    if not (line.startswith("{") and line.endswith("}")):
        return None
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_record(line: str) -> bool:
    record = _record(line)
    return record is not None and _first(record, _TEXT) is not None and _first(record, _TIME) is not None


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if isinstance(value := record.get(name), (str, int, float)) and value != "":
            return value
    return None


def _labels(record: Mapping[str, Any]) -> Identity:
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat.update({key: inner for key, inner in value.items() if isinstance(inner, str)})
            flat.update({f"{name}.{key}": inner for key, inner in value.items() if isinstance(inner, str)})
    flat.update({name: value for name, value in record.items() if isinstance(value, str)})
    return Identity(host=_first(flat, _HOST), pod=_first(flat, _POD))


def _time(record: Mapping[str, Any]) -> int | None:
    value = _first(record, _TIME)
    if isinstance(value, str) and not value.replace(".", "").isdigit():
        found = stamps.find(value)
        return found[0] if found and found[1] == "wall" else None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    for scale in (1e9, 1e6, 1e3, 1.0):  # seconds, milli-, micro-, nanoseconds since 1970
        if 1e8 <= number * scale / 1e9 < 5e9:
            return int(number * scale)
    return None


def _unwrapped(lines: list[str]) -> Part:
    entries: list[tuple[int, int, str, Identity, int | None]] = []
    cache: dict[str, Identity] = {}
    last = 0
    for number, line in enumerate(lines, 1):
        record = _record(line)
        if record is None:
            entries.append((last, number, line, NOBODY, None))
            continue
        at = _time(record)
        last = at or last
        who = cache.setdefault(repr(_labels(record)), _labels(record))
        for inner in str(_first(record, _TEXT) or "").rstrip("\n").split("\n"):
            entries.append((last, number, inner, who, at))
    entries.sort(key=lambda entry: entry[:1])
    if _descending(entries):
        entries.sort(key=lambda entry: (entry[0], -entry[1]))
    return Part([e[2] for e in entries], [e[1] for e in entries], [e[4] for e in entries], [e[3] for e in entries])


def _descending(entries: list[tuple[int, int, str, Identity, int | None]]) -> bool:
    """Newest first: then lines of the same instant stand in reverse order too."""
    falls = sum(a[1] > b[1] for a, b in itertools.pairwise(entries) if a[0] != b[0])
    return falls > 0.8 * max(1, sum(a[0] != b[0] for a, b in itertools.pairwise(entries)))
