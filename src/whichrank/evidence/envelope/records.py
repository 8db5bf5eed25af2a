r"""JSON records, one a line, each around a piece of text.

Docker's json-file (moby 17 to 28), Loki (`logcli -o jsonl`, 2.9 to 3.5), journald (`journalctl -o json`, systemd 232 to
257; also json-seq and json-sse), CloudWatch (`aws logs tail --format none`), Google Cloud Logging, Datadog's archives,
Elasticsearch, Filebeat, Fluent Bit, Vector, Azure's ContainerLogV2, and loggers that write JSON themselves
(python-json-logger, structlog, loguru).

Which key holds what is found out once for each set of keys; a record without any text (metrics) stays as it is.

>>> layer = recognise(['{"log":"[rank3] step 7\\n","stream":"stderr","time":"2026-07-30T09:30:15.4Z"}'])
>>> opened = layer.open(['{"log":"[rank3] long","stream":"stderr","time":"2026-07-30T09:30:15.4Z"}',
...                      '{"log":" line\\n","stream":"stderr","time":"2026-07-30T09:30:15.4Z"}'])
>>> opened.lines, opened.origins
(['[rank3] long line'], [0])
>>> layer = recognise(['{"level":"info","message":"step 3","rank":3,"time":1785403815}'])
>>> opened = layer.open(['{"level":"info","message":"step 3","rank":3,"time":1785403815}', '{"step":3,"loss":2.1}'])
>>> opened.lines, opened.whos[0].rank
(['step 3', '{"step":3,"loss":2.1}'], 3)
>>> recognise(['{"step":3,"loss":2.1,"time":1785403815}'] * 9)
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from whichrank.evidence.envelope import labels, plans
from whichrank.evidence.envelope.clock import wall, written
from whichrank.evidence.envelope.part import LONGEST, Opened, opened
from whichrank.evidence.envelope.plans import DAEMON, LEVEL, OF_A_COLLECTOR, Plan, Quick, decode, record_of
from whichrank.facts import NOBODY, Identity

_CUT = re.compile(r'"(?:log|line|message|msg|MESSAGE|textPayload)"\s*:\s*"((?:[^"\\]|\\.)*)')


class Reading(NamedTuple):
    text: str
    at: int | None
    who: Identity
    lane: object = None  # whose next record continues this text, if it
    goes_on: bool = False
    introduction: str | None = None

    @property
    def lines(self) -> list[str]:
        return self.text.rstrip("\r\n").split("\n")


@dataclass(slots=True)
class _Run:
    """What is kept between the records of one run of lines."""

    out: Opened
    begun: dict[object, tuple[Reading, int]] = field(default_factory=dict)  # lines that go on
    introduced: set[Identity] = field(default_factory=set)

    def add(self, reading: Reading, origin: int) -> None:
        if self.begun or reading.goes_on:
            reading, origin = _joined(reading, origin, self.begun)
            if reading.goes_on:
                return
        for text in reading.lines:
            self.out.add(text, origin, reading.at, reading.who)
        if reading.introduction and reading.who not in self.introduced:
            self.out.add(reading.introduction, origin, reading.at, reading.who)
        self.introduced.add(reading.who)


@dataclass(slots=True)
class Records:
    """Records of one file. `ends`: each text ends with its newline, so that one without it continues (Docker)."""

    exported: bool = True
    ends: bool = False
    _plans: dict[tuple[str, ...], tuple[Plan | None, Quick | None]] = field(default_factory=dict)
    _nested: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    _tries: dict[tuple[str, ...], int] = field(default_factory=dict)

    def open(self, lines: Sequence[str]) -> Opened:
        run = _Run(opened())
        out, begun, introduced, ends = run.out, run.begun, run.introduced, self.ends
        add_text, add_origin, add_time, add_who = (
            out.lines.append,
            out.origins.append,
            out.times.append,
            out.whos.append,
        )
        for origin, line in enumerate(lines):
            try:
                record = decode(line)
            except (msgspec.DecodeError, RecursionError):
                record = record_of(line)
            if type(record) is not dict:
                reading = _cut_off(line)
                if reading is None:
                    out.add(line, origin, None, NOBODY)
                else:
                    run.add(reading, origin)
                continue
            plan, quick = self._plan(record)
            # Most records: the same as _read() and add(), without a step to spare.
            if quick is not None and not begun and (who := _known(record, quick)) is not None:
                text = record[quick.text]
                if (
                    type(text) is str
                    and not (ends and text[-1:] != "\n")
                    and (quick.partial is None or record[quick.partial] == "F")
                    and not (quick.introduces and who not in introduced)
                ):
                    text = text.rstrip("\r\n")
                    at = wall(record[quick.time])
                    for piece in (text,) if "\n" not in text else text.split("\n"):
                        add_text(piece)
                        add_origin(origin)
                        add_time(at)
                        add_who(who)
                    continue
            reading = self._read(record, plan) if plan is not None else None
            if reading is None:
                out.add(line, origin, None, NOBODY)
            else:
                run.add(reading, origin)
        for reading, origin in begun.values():
            out.add(reading.text, origin, reading.at, reading.who)
        return out._replace(cut=bool(begun))

    def read(self, record: dict[str, Any]) -> Reading | None:
        """What a record says; None if there is no text in it."""
        plan, _ = self._plan(record)
        return self._read(record, plan) if plan is not None else None

    def _read(self, record: dict[str, Any], plan: Plan) -> Reading | None:
        text = plans.at(record, plan.text)
        if type(text) is not str:
            text = _as_text(text)
            if text is None:
                return None
        at = wall(plans.at(record, plan.time)) if plan.time else None
        values = tuple([plans.at(record, path) for _, path in plan.who])
        parts = tuple(
            [(part, value) for (part, _), value in zip(plan.who, values, strict=True) if type(value) in (str, int)]
        )
        if plan.tags:
            tags = record[plan.tags]
            parts += tuple(labels.tagged(tags.get("tags") if type(tags) is dict else tags))
        who = labels.identity(parts) if parts else NOBODY
        if plan.plain and len(plan.known) < 4096 and all(type(value) in (str, int) for value in values):
            plan.known[values] = who
        for key in plan.traces:
            if "\n" in (trace := record.get(key) or ""):
                text = f"{text.rstrip()}\n{trace}"
        lane, goes_on = None, False
        if self.ends or plan.partial:
            lane = (who, record.get(plan.stream) if plan.stream else None)
            goes_on = not text.endswith("\n") if self.ends else str(record.get(plan.partial or "")) in ("P", "true")
        if plan.daemon and (name := _daemon(record, plan.daemon)) is not None:
            head = f"{written(at or 0)}+00:00 {who.host or 'localhost'} {name}"
            text = "\n".join(f"{head}: {line}" for line in text.rstrip().split("\n"))
        return Reading(text, at, who, lane, goes_on, labels.introduction(parts) if plan.introduces else None)

    def _plan(self, record: dict[str, Any]) -> tuple[Plan | None, Quick | None]:
        keys = tuple(record)
        nested = self._nested.get(keys)
        if nested is None:
            nested = tuple(key for key, value in record.items() if type(value) is dict)
            if len(self._nested) < 4096:
                self._nested[keys] = nested
        for key in nested:
            inner = record[key]
            keys += (key, *inner) if type(inner) is dict else ("",)
        found = self._plans.get(keys)
        if found is None:
            plan = plans.plan_of(record)
            found = (plan, plans.quick(plan))
            # One record whose time is empty says nothing of the others; many do.
            self._tries[keys] = tries = self._tries.get(keys, 0) + 1
            if len(self._plans) < 4096 and ((plan and plan.time) or tries > 20):
                self._plans[keys] = found
        return found


def _known(record: dict[str, Any], quick: Quick) -> Identity | None:
    """Whose record it is, if one with the same labels was read before."""
    try:
        return quick.known.get(
            tuple(
                [
                    record[key] if inner is None else record[key][inner] if not path else plans.at(record, path)
                    for key, inner, path in quick.spots
                ]
            )
        )
    except (TypeError, KeyError):  # an object where others have a name
        return None


def _joined(reading: Reading, origin: int, begun: dict[object, tuple[Reading, int]]) -> tuple[Reading, int]:
    """A reading behind what came before it of the same line; kept in `begun` while the line goes on."""
    if (before := begun.pop(reading.lane, None)) is not None:
        reading = reading._replace(text=(before[0].text + reading.text)[:LONGEST], at=before[0].at)
        origin = before[1]
    if reading.goes_on:
        begun[reading.lane] = (reading, origin)
    return reading, origin


def _as_text(value: object) -> str | None:
    if isinstance(value, list):
        listed: list[Any] = value[-1] if value and isinstance(value[-1], list) else value  # a field with several values
        try:
            return bytes(listed).decode("utf-8", "replace")
        except (TypeError, ValueError):
            return None
    return json.dumps(value) if isinstance(value, dict) else None


def _daemon(record: dict[str, Any], key: str) -> str | None:
    """The program of the machine that wrote it, as syslog names it; None for the user's own."""
    journal = record[key] if key == "jsonPayload" else record
    if journal.get("_TRANSPORT") == "kernel":
        return "kernel"
    name = journal.get("SYSLOG_IDENTIFIER") or journal.get("appname") or journal.get("program")
    if not isinstance(name, str) or not DAEMON.fullmatch(name):
        return None
    pid = journal.get("_PID") or journal.get("SYSLOG_PID") or journal.get("procid")
    return f"{name}[{pid}]" if pid and name != "kernel" else name


def _cut_off(line: str) -> Reading | None:
    """The text of a record that breaks off in the middle: where a file was cut."""
    if line[:1] != "{" or line.rstrip().endswith("}") or (match := _CUT.search(line)) is None:
        return None
    try:
        text = decode(f'"{match[1]}"')
    except msgspec.DecodeError:
        return None
    return Reading(str(text), None, NOBODY)


def recognise(lines: Sequence[str]) -> Records | None:
    """The layer, if a good part of these lines are records around a text."""
    found = [record for line in lines if line[:1] in "{\x1ed\ufeff" and (record := record_of(line)) is not None]
    if not found or len(found) < min(3, len(lines)):
        return None
    wrapped = [record for record in found if plans.is_wrapped(record)]
    if len(wrapped) < max(1, min(3, len(lines)), len(lines) // 20):
        return None
    docker = [record["log"] for record in wrapped if isinstance(record.get("log"), str) and "time" in record]
    ends = len(docker) > 0.9 * len(wrapped) and sum(text.endswith("\n") for text in docker) >= 0.5 * len(docker)
    journal = sum("_TRANSPORT" in record or "__CURSOR" in record for record in wrapped)
    own = sum(bool(LEVEL & record.keys()) and not (OF_A_COLLECTOR & record.keys()) for record in wrapped)
    program = ends or journal + own > 0.5 * len(wrapped) or len(wrapped) < 0.8 * len(lines)
    return Records(exported=not program, ends=ends)
