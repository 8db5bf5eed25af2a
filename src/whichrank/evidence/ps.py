"""Tables of `ps` and `top`: one fact a process.

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> fact, = facts(Reader("x", (), (Ps(),)), '''    PID    PPID STAT WCHAN                %CPU     ELAPSED CMD
...   21050   20417 Sl   pipe_read             0.0    00:52:10 /opt/venv/bin/python -u train.py --num-workers 8''')
>>> fact.who.pid, fact["ppid"], fact["stat"], fact["wchan"], fact["command"]
(21050, 20417, 'Sl', 'pipe_read', '/opt/venv/bin/python -u train.py --num-workers 8')
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from whichrank.evidence.scan import Line, Row, State
from whichrank.facts import Fact, Identity

_LAST = ("CMD", "COMMAND", "COMM", "ARGS")
_NAMES = {
    "PPID": "ppid",
    "STAT": "stat",
    "S": "stat",
    "WCHAN": "wchan",
    "%CPU": "cpu_percent",
    "TIME": "cpu_time",
    "TIME+": "cpu_time",
    "ELAPSED": "elapsed",
    "RSS": "rss_kb",
    "USER": "user",
}
_DATE = re.compile(r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} +\d+ [\d:]{8} \d{4}\b")
STRAY = 6


class Ps:
    anchors = ("PID", "ps -")

    def start(self, row: Row) -> State | None:
        names = row.text.split()
        if names[:1] != ["PID"] and (asked := _ASKED.search(row.text)):
            return _Rows(_columns(asked["columns"]))  # grep took the heading away: the command names the columns
        if (
            not {"PID"} < set(names)
            or names[-1] not in _LAST
            or not set(names) & {"STAT", "S", "PPID", "WCHAN", "%CPU"}
        ):
            return None
        return _Rows(names)


_ASKED = re.compile(
    r"\bps (?:-?[A-Za-z]+ )*?-?[A-Za-z]*o[ =]?(?P<columns>[a-z%]+(?::\d+)?(?:,[a-z%]+(?::\d+)?){2,})[^|]*\|[^|]*grep"
)
_HEADS = {
    "pcpu": "%CPU",
    "args": "CMD",
    "cmd": "CMD",
    "command": "CMD",
    "comm": "COMM",
    "state": "S",
    "s": "S",
    "etime": "ELAPSED",
}


def _columns(asked: str) -> list[str]:
    """Headings of `ps -o pid,stat,wchan:18`."""
    names = [name.partition(":")[0] for name in asked.split(",")]
    return [_HEADS.get(name, name.upper()) for name in names]


class _Rows:
    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.found: list[Fact] = []
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        if self.found and (row.text.split() == self.names or _ASKED.search(row.text)):
            return False  # the next table, as of `watch`
        # `lstart` prints a whole date under one heading.
        cells = _DATE.sub(lambda match: "_".join(match[0].split()), row.text).split(None, len(self.names) - 1)
        record = dict(zip(self.names, cells, strict=False))
        if (
            len(cells) < len(self.names)
            or not record["PID"].isdecimal()
            or not re.match(r"[RSDTtZXI]", record.get("STAT") or record.get("S") or "S")
        ):
            self.stray += 1
            return None if self.stray < STRAY else False
        self.stray = 0
        values: dict[str, Any] = {_NAMES[name]: record[name] for name in self.names if name in _NAMES}
        for name in ("ppid", "rss_kb"):
            if str(values.get(name, "")).isdecimal():
                values[name] = int(values[name])
        if values.get("wchan") in ("-", "0"):
            del values["wchan"]
        self.found.append(
            row.fact("process", who=Identity(pid=int(record["PID"])), command=record[self.names[-1]], **values)
        )
        return True

    def facts(self) -> Iterable[Fact]:
        return self.found


def read_status(row: Row, match: re.Match[str]) -> Iterable[Fact]:
    """`State: t (tracing stop)` of /proc/PID/status: the pid stands in the command above, or before grep's colon."""
    path = re.match(r"/proc/(\d+)/status:", row.text) or re.search(r"/proc/(\d+)/status", row.command)
    if path:
        yield row.fact("process", who=Identity(pid=int(path[1])), stat=match["stat"])


LINES = (Line("process", "State:", r"^(?:/proc/\d+/status:)?State:\s+(?P<stat>[A-Za-z]) \(", read=read_status),)
