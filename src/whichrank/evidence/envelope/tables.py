r"""Tables with a column of text and one of times: what a log viewer saves as CSV.

Grafana (10 to 12, also its Excel form with tabs), CloudWatch (events, Insights), Datadog, Kibana, Log Analytics. A cell
may hold several lines.

>>> layer = recognise(['Date,Host,Service,Message', '2026-07-30T09:30:15.4Z,gn-05,asr,[rank3] step 7'])
>>> opened = layer.open(['2026-07-30T09:30:15.4Z,gn-05,asr,"Traceback (most', '  File ""a.py"", line 3"'])
>>> opened.lines, opened.whos[0].host
(['Traceback (most', '  File "a.py", line 3'], 'gn-05')
>>> recognise(["timestamp, name, utilization.gpu [%]", "2026/07/30 09:30:15.408, H100, 100 %"])
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from whichrank.evidence.envelope.clock import wall
from whichrank.evidence.envelope.part import Opened, opened
from whichrank.evidence.envelope.records import Records
from whichrank.facts import NOBODY

# Lower case -> as records.py knows it
_TEXT = {"line": "line", "log": "log", "message": "message", "@message": "@message", "logmessage": "LogMessage"}
_TEXT |= {"logentry": "LogEntry", "content": "content", "textpayload": "textPayload", "body": "body", "log_s": "log"}
_TIME = {"time": "time", "timestamp": "timestamp", "@timestamp": "@timestamp", "date": "date", "tsns": "ts"}
_TIME |= {"timegenerated": "TimeGenerated", "datetime": "datetime", "created": "created"}
_KNOWN = {**_TEXT, **_TIME}


def _column(name: str) -> str:
    name = re.sub(r" ?\[.*\]$", "", name.strip().strip('"\ufeff'))
    return _KNOWN.get(name.lower(), name)


@dataclass(frozen=True, slots=True)
class Table:
    columns: tuple[str, ...]
    delimiter: str
    header: str
    records: Records = field(default_factory=Records)
    exported: bool = True

    def open(self, lines: Sequence[str]) -> Opened:
        out = opened()
        for origin, end, row in self._rows(lines):
            if lines[origin] == self.header:
                continue
            reading = self.records.read(self._record(row)) if len(row) == len(self.columns) else None
            if reading is None:
                for index in range(origin, end):
                    out.add(lines[index], index, None, NOBODY)
            else:
                for text in reading.lines:
                    out.add(text, origin, reading.at, reading.who)
        return out

    def _record(self, row: list[str]) -> dict[str, Any]:
        record: dict[str, Any] = dict(zip(self.columns, row, strict=True))
        for name in ("labels", "attributes", "kubernetes"):
            if str(record.get(name, ""))[:1] == "{":
                try:
                    record[name] = msgspec.json.decode(record[name])
                except (msgspec.DecodeError, RecursionError):
                    pass
        return record

    def _rows(self, lines: Sequence[str]) -> Iterator[tuple[int, int, list[str]]]:
        """(first line, line after it, cells); lines that are no CSV as rows of one cell."""
        start = 0
        while start < len(lines):
            reader = csv.reader((f"{line}\n" for line in lines[start:]), delimiter=self.delimiter)
            begun = base = start
            try:
                for row in reader:
                    start = base + reader.line_num
                    yield begun, start, row
                    begun = start
            except csv.Error:  # a cell beyond all limits: this line as it is, and on with the next
                yield begun, begun + 1, []
                start = begun + 1


def recognise(lines: Sequence[str]) -> Table | None:
    """The table that these lines begin with."""
    for index, line in enumerate(lines[:2]):  # Excel's "sep=," may stand first
        for delimiter in ",\t;":
            names = [name.strip().strip('"\ufeff').lower() for name in line.split(delimiter)]
            if not 2 <= len(names) <= 80 or not any(name in _TEXT for name in names):
                continue
            columns = tuple(map(_column, line.split(delimiter)))
            if not set(columns) & set(_TIME.values()) or len(set(columns)) < len(columns):
                continue
            table = Table(columns, delimiter, line)
            rows = [row for _, _, row in table._rows(lines[index + 1 : index + 40]) if len(row) == len(columns)]
            timed = [
                row for row in rows if any(wall(row[columns.index(name)]) for name in _TIME.values() if name in columns)
            ]
            if timed and len(timed) >= 0.8 * len(rows):
                return table
    return None
