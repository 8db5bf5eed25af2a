"""Where JSON records of a set of keys hold their text, their time and their labels."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from whichrank.evidence.envelope import labels
from whichrank.evidence.envelope.clock import wall
from whichrank.evidence.envelope.labels import Path
from whichrank.facts import Identity

_TEXT = (
    "line",
    "log",
    "message",
    "msg",
    "MESSAGE",
    "textPayload",
    "@message",
    "text",
    "event",
    "body",
    "content",
    "LogMessage",
    "LogEntry",
)
_TRACES = ("exc_info", "exc_text", "exception", "traceback", "stack_trace", "stacktrace", "error.stack_trace")
# When the line was written; the times at which a collector took it in stand last.
_TIME = (
    "_SOURCE_REALTIME_TIMESTAMP",
    "time",
    "timestamp",
    "@timestamp",
    "ts",
    "asctime",
    "datetime",
    "date",
    "created",
    "TimeGenerated",
    "timeUnixNano",
    "__REALTIME_TIMESTAMP",
    "receiveTimestamp",
    "ingestionTime",
    "@ingestionTime",
)
_INSIDE = ("_source", "jsonPayload", "attributes", "content", "fields")  # objects that hold the text or the time
_LOGURU = ("record", "time", "timestamp")
LEVEL = {"level", "levelname", "severity", "status", "stream", "log_level", "lvl"}
OF_A_COLLECTOR = {"labels", "kubernetes", "resource", "_source", "insertId", "tags", "ddtags", "agent", "logStreamName"}
_PROGRAM = ("SYSLOG_IDENTIFIER", "_TRANSPORT", "appname", "program")
_PARTIAL = ("logtag", "CONTAINER_PARTIAL_MESSAGE", "partial_message")
# Programs of the machine: their lines go on as syslog has them, so that a reader sees who spoke.
DAEMON = re.compile(
    r"kernel|systemd(?:-[\w-]+)?|NetworkManager|slurm\w+|kubelet|containerd|dockerd|sshd|nvidia-[\w-]+|CRON|cron|rsyslogd"
    r"|earlyoom|smartd|opensm|ntpd|chronyd|multipathd|mcelog|rasdaemon|dbus-daemon|polkitd|crio|snapd"
)
decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Plan:
    """Where records of one set of keys hold what. `known`: values of `who` seen before -> whose they are."""

    text: Path
    time: Path | None
    who: tuple[tuple[str, Path], ...]
    traces: tuple[str, ...]
    daemon: str | None  # the key that names the program
    tags: str | None
    partial: str | None
    stream: str | None
    known: dict[tuple[object, ...], Identity] = field(default_factory=dict)

    @property
    def introduces(self) -> bool:
        """It tells the size of the world."""
        return any(part == "world_size" for part, _ in self.who)

    @property
    def plain(self) -> bool:
        """Text and time stand in the record itself, and nothing but labels matters beside them."""
        shallow = len(self.text) == 1 and self.time is not None and len(self.time) == 1
        return shallow and not (self.traces or self.daemon or self.tags)


class Quick(NamedTuple):
    """A plain plan, taken apart for speed."""

    text: str
    time: str
    spots: tuple[tuple[str, str | None, Path], ...]  # key, inner key, and the path where it is longer
    partial: str | None
    introduces: bool
    known: dict[tuple[object, ...], Identity]


def quick(plan: Plan | None) -> Quick | None:
    if plan is None or plan.time is None or not plan.plain:
        return None
    spots = tuple((path[0], path[1] if len(path) > 1 else None, path if len(path) > 2 else ()) for _, path in plan.who)
    return Quick(plan.text[0], plan.time[0], spots, plan.partial, plan.introduces, plan.known)


def record_of(line: str) -> dict[str, Any] | None:
    """The object that a line is, if it is one."""
    if line[:1] != "{":
        line = line.strip("\x1e\ufeff \t\r")  # application/json-seq
        if line.startswith("data: {"):
            line = line[6:].lstrip()
        if line[:1] != "{":
            return None
    try:
        found = decode(line)
    except msgspec.DecodeError:
        if not line.rstrip().endswith("}"):
            return None
        try:
            found = json.loads(line)  # NaN, which Python writes and JSON does not know
        except (ValueError, RecursionError):
            return None
    except RecursionError:
        return None
    return found if isinstance(found, dict) else None


def at(record: Any, path: Path) -> Any:
    for key in path:
        if type(record) is not dict:
            return None
        record = record.get(key)
    return record


def _holds_text(value: object) -> bool:
    if isinstance(value, list):  # journald: a message with control characters is an array of bytes
        return bool(value) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value[:64])
    return isinstance(value, str)


def plan_of(record: Mapping[str, Any]) -> Plan | None:
    """Where this record holds its text, time and labels; None if it has no text."""
    inside: list[Path] = [(), *((key,) for key in _INSIDE if isinstance(record.get(key), dict))]
    inside += [(*path, "attributes") for path in inside if isinstance(at(record, (*path, "attributes")), dict)]
    texts = [(*path, key) for path in inside for key in _TEXT if _holds_text(at(record, (*path, key)))]
    bodies = ((*path, "body", "stringValue") for path in inside)  # OpenTelemetry
    texts += [path for path in bodies if isinstance(at(record, path), str)]
    texts += [(key,) for key in ("LogMessage", "message") if isinstance(record.get(key), dict)]
    if not texts:
        return None
    times = [*((*outer, key) for key in _TIME for outer in inside), _LOGURU]
    journal = at(record, ("jsonPayload", "SYSLOG_IDENTIFIER"))
    return Plan(
        texts[0],
        next((path for path in times if wall(at(record, path)) is not None), None),
        tuple(labels.telling(record)),
        tuple(key for key in _TRACES if isinstance(record.get(key), str)),
        _first(key for key in _PROGRAM if key in record) or ("jsonPayload" if isinstance(journal, str) else None),
        _first(key for key in ("tags", "ddtags") if isinstance(record.get(key), (str, list)))
        or ("attributes" if isinstance(at(record, ("attributes", "tags")), list) else None),
        _first(key for key in _PARTIAL if key in record),
        _first(key for key in ("stream", "source") if isinstance(record.get(key), str)),
    )


def _first(names: Any) -> str | None:
    return next(iter(names), None)


def is_wrapped(record: Mapping[str, Any]) -> bool:
    """Is this text in an envelope, not a sample of a data set or a row of metrics?"""
    plan = plan_of(record)
    return plan is not None and (
        (plan.time is not None and plan.text[-1] not in ("text", "content"))
        or bool(LEVEL & record.keys())
        or bool(OF_A_COLLECTOR & record.keys())
        or (plan.time is not None and bool(plan.who))
        or plan.time == _LOGURU
    )
