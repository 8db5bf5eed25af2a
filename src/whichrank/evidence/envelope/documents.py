r"""One JSON document that holds many events: what a query answers, saved.

Loki's API (streams of values), Grafana (10 to 12: the inspector's and the query API's frames, "download logs" as JSON),
CloudWatch (`get-log-events`, `filter-log-events`, `get-query-results`), Google Cloud (`gcloud logging read
--format=json`), Datadog (API v1 and v2), Elasticsearch (hits), Log Analytics (tables, `az monitor log-analytics query`),
`journalctl -o json-pretty`; also journald's export format, whose binary fields need the bytes.

Line numbers: where each event's text stands on a line of its own (documents as tools print them), that line; in a
document of one line, the event's ordinal.

>>> part = events(b'{"events": [\n  {"timestamp": 1785403815408, "message": "[rank3] step 7", "ingestionTime": 1785403999000},\n'
...                 b'  {"timestamp": 1785403816408, "message": "[rank3] step 8", "ingestionTime": 1785403999000}]}')
>>> part.lines, part.numbers, part.times[0]
(['[rank3] step 7', '[rank3] step 8'], [2, 3], 1785403815408000000)
>>> part = events(b'{"data":{"result":[{"stream":{"pod":"asr-0"},"values":[["1785403815408883675","step 7"]]}]}}')
>>> part.lines, part.numbers, part.whos[0].pod
(['step 7'], [1], 'asr-0')
>>> events(b'{"step": 1, "loss": 2.1}'), events(b'[{"rank": 0, "host": "gn-05"}]')
(None, None)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from whichrank.evidence.envelope import journal, labels
from whichrank.evidence.envelope.clock import wall
from whichrank.evidence.envelope.part import Part, in_time_order
from whichrank.evidence.envelope.plans import is_wrapped, plan_of
from whichrank.evidence.envelope.records import Reading, Records

LARGEST = 256 << 20  # bytes of a document: it is decoded whole
_EXPORT = re.compile(rb"(?:__CURSOR=|__REALTIME_TIMESTAMP=\d)")
# How JSON goes on after its first bracket: "[rank0]: step 7" and "[2026-03-02 09:00:00]" are no arrays.
_JSON = re.compile(rb'\{\s*(?:["}]|\Z)|\[\s*(?:[{\["\]]|-?\d+(?:\.\d+)?\s*[,\]]|(?:true|false|null)\s*[,\]]|\Z)')


def may_be_document(head: bytes) -> bool:
    """Do a file's first bytes look like those of one document, not of JSON lines?"""
    start = head[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    return bool(_EXPORT.match(start)) or (_JSON.match(start) is not None and not _is_record(head))


def events(data: bytes) -> Part | None:
    """The events of a document in time order; None if these bytes are none, or hold no events."""
    if len(data) > LARGEST or not may_be_document(data):
        return None
    if _EXPORT.match(data):
        return _exported(data)
    whole = _decoded(data)
    found = list(_said_by(whole)) if whole is not None else _concatenated(data)
    if not found:
        return None
    places = _places(data, len(found)) or range(1, len(found) + 1)
    return in_time_order(_part(zip(places, found, strict=True)))


def _is_record(data: bytes) -> bool:
    """Does the file begin with a line that is an object, with more behind it? Then it is JSON lines."""
    first, newline, rest = data[: 1 << 20].lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")
    return bool(newline) and rest.lstrip()[:1] == b"{" and first.rstrip()[-1:] == b"}" and first[:1] == b"{"


def _decoded(data: bytes) -> Any:
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        return None
    except msgspec.DecodeError:
        try:
            return json.loads(data.decode("utf-8", "replace"))  # NaN, or bytes that are no UTF-8
        except (ValueError, RecursionError):
            return None


def _exported(data: bytes) -> Part | None:
    records = Records(exported=False)
    found = ((line, records.read(dict(fields))) for line, fields in journal.entries(data))
    part = _part((line, reading) for line, reading in found if reading is not None)
    return part if part.lines else None


def _part(found: Iterable[tuple[int, Reading]]) -> Part:
    """The lines of these readings, each with the number of its line."""
    part = Part([])
    for number, reading in found:
        for text in reading.lines:
            part.lines.append(text)
            part.numbers.append(number)
            part.times.append(reading.at)
            part.whos.append(reading.who)
    return part


def _said_by(whole: Any) -> Iterator[Reading]:
    """What this document says, whichever tool wrote it."""
    if isinstance(whole, dict):
        streams = _at(whole, "data", "result") or _at(whole, "result") or whole.get("streams")
        if isinstance(streams, list) and any(isinstance(each, dict) and "values" in each for each in streams):
            yield from _streams(streams)
            return
    records = Records()
    for record in _records(whole):
        if (reading := records.read(record)) is not None:
            yield reading


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _streams(streams: list[Any]) -> Iterator[Reading]:
    for stream in streams:
        own = _at(stream, "stream")
        own = own if isinstance(own, dict) else {}
        who = labels.identity(tuple((part, own[path[0]]) for part, path in labels.telling(own) if len(path) == 1))
        for value in _listed(_at(stream, "values")):
            if isinstance(value, list) and len(value) >= 2 and isinstance(value[1], str):
                yield Reading(value[1], wall(value[0]), who)


def _records(whole: Any) -> Iterator[dict[str, Any]]:
    """The events of a document as records, if it is one that holds events."""
    listed: Any = whole
    if isinstance(whole, dict):
        choices = (whole.get(key) for key in ("events", "logs", "entries", "data", "value", "results", "logEvents"))
        listed = next((choice for choice in (*choices, _at(whole, "hits", "hits")) if isinstance(choice, list)), None)
        if listed is None:
            yield from _tables(whole)
            return
    if not isinstance(listed, list):
        return
    rows = [_pairs(each) if isinstance(each, list) else each for each in listed]
    found = [row for row in rows if isinstance(row, dict)]
    if found and sum(map(_is_event, found[:50])) >= 0.5 * len(found[:50]):
        yield from found


def _is_event(record: dict[str, Any]) -> bool:
    plan = plan_of(record)
    return is_wrapped(record) and plan is not None and (plan.time is not None or "_source" in record)


def _pairs(fields: list[Any]) -> dict[str, Any] | None:
    """Insights: [{"field": "@message", "value": "…"}, …]."""
    return {str(_at(each, "field")): _at(each, "value") for each in fields} if fields else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _tables(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Log Analytics' tables (rows), Grafana's frames (columns)."""
    for table in _listed(whole.get("tables")):
        names = [str(_at(column, "name")) for column in _listed(_at(table, "columns"))]
        for row in _listed(_at(table, "rows")):
            if isinstance(row, list) and len(row) == len(names):
                yield dict(zip(names, row, strict=True))
    answers = whole.get("results")
    frames = [
        frame
        for answer in (answers.values() if isinstance(answers, dict) else ())
        for frame in _listed(_at(answer, "frames"))
    ]
    for frame in [*frames, *_listed(whole.get("series"))]:
        fields = _listed(_at(frame, "schema", "fields")) or _listed(_at(frame, "fields"))
        names = [str(_at(field, "name")) for field in fields]
        names = [{"Time": "time", "Line": "line"}.get(name, name) for name in names]
        columns = _listed(_at(frame, "data", "values")) or [_at(field, "values") for field in fields]
        if {"line", "body", "message"} & set(names) and all(isinstance(column, list) for column in columns):
            for row in zip(*columns, strict=False):
                yield dict(zip(names, row, strict=False))


def _concatenated(data: bytes) -> list[Reading]:
    """Objects one after the other, each over several lines (`journalctl -o json-pretty`, `jq`)."""
    records, found = Records(), []
    for piece in re.split(rb"(?m)(?<=^\})\s*\n", data):
        record = _decoded(piece) if piece[:1] == b"{" else None
        if isinstance(record, dict) and (reading := records.read(record)) is not None and is_wrapped(record):
            found.append(reading)
    return found


_KEY = re.compile(
    rb'"(?:message|MESSAGE|@message|line|log|textPayload|msg|text|LogMessage|LogEntry|body)"\s*:\s*["{\[]|^\s*"\d{16,19}",\s*$',
    re.M,
)


def _places(data: bytes, count: int) -> list[int]:
    """The lines on which the texts of `count` events stand, if they can be told apart by their keys alone."""
    if data.count(b"\n") < count:
        return []
    starts = [match.start() for match in _KEY.finditer(data)]
    if len(starts) != count:
        return []
    places, line, last = [], 1, 0
    for start in starts:
        line += data.count(b"\n", last, start)
        last = start
        places.append(line + (1 if data[start : start + 1].isspace() else 0))
    return places
