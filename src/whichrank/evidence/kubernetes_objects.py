"""Kubernetes objects as `kubectl get … -o yaml` and `-o json` print them: pods, events, nodes, jobs of operators.

Read line by line, so that a fact's spot is its line: kubectl writes one key a line, sorted, two spaces a level in YAML and
four in JSON. Formats: kubectl 1.20 to 1.34; events.k8s.io/v1 too; conditions of Job, JobSet, PyTorchJob and its kin
(kubeflow.org/v1), TrainJob, MPIJob, RayJob, Kueue's Workload, Volcano's Job.

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> text = '''apiVersion: v1
... items:
... - apiVersion: v1
...   involvedObject:
...     kind: Pod
...     name: ft-worker-1
...   kind: Event
...   lastTimestamp: "2026-04-02T06:21:44Z"
...   message: 'The node was low on resource: memory. Threshold quantity: 100Mi, available:
...     52Mi.'
...   reason: Evicted
...   type: Warning
... kind: List'''
>>> fact, = facts(Reader("x", (), (Objects(),)), text)
>>> fact.kind, fact.who.pod, fact["message"][-17:], fact.spot.line
('pod_evicted', 'ft-worker-1', ' available: 52Mi.', 9)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from whichrank.evidence import stamps
from whichrank.evidence.kubernetes_pods import EVICTED, STRAY, Ending, of_condition, of_event, taken_away
from whichrank.evidence.scan import Row, State
from whichrank.facts import Fact, Identity

Path = tuple[str | int, ...]
MOST = 20_000  # entries of one object
DEEP = 40
_YAML = re.compile(r"^(?P<indent> *)(?P<dash>- )?(?P<key>[A-Za-z_][\w./-]*):(?: (?P<value>.*))?$")
_JSON = re.compile(r"^(?P<indent>\s*)(?P<dash>)\"(?P<key>[^\"]{1,200})\": ?(?P<value>.*?),?\s*$")
_CLOSED = re.compile(r"^\s*[\]\[{}(),]*\s*$")
_JOBS = ("Job", "JobSet", "PyTorchJob", "MPIJob", "TFJob", "TrainJob", "JAXJob", "PaddleJob", "XGBoostJob", "RayJob", "RayCluster", "Workload", "VCJob")  # fmt: skip


@dataclass(slots=True)
class Level:
    indent: int
    key: str
    item: int = -1


@dataclass(slots=True)
class Record:
    """One object: path -> value and the row that it stands in."""

    values: dict[Path, tuple[str, Row]] = field(default_factory=dict)

    def get(self, *path: str | int) -> str:
        return self.values[path][0] if path in self.values else ""

    def row(self, *path: str | int) -> Row | None:
        return self.values[path][1] if path in self.values else None

    def items(self, *path: str | int) -> list[Path]:
        """The elements of the list at this path."""
        size = len(path)
        found = {
            key[: size + 1]
            for key in self.values
            if len(key) > size and key[:size] == path and isinstance(key[size], int)
        }
        return sorted(found, key=lambda key: int(key[-1]))


class Objects:
    """`apiVersion: v1` starts it: a document, or the first of a list."""

    anchors = ("apiVersion: ", '"apiVersion": "')

    def start(self, row: Row) -> State | None:
        if not re.match(r"^\s*(?:- )?\"?apiVersion\"?: \"?[\w./-]+\"?,?\s*$", row.text):
            return None
        state = _Document()
        state.take(row)
        return state


class _Document:
    def __init__(self) -> None:
        self.levels: list[Level] = []
        self.record = Record()
        self.found: list[Fact] = []
        self.open: tuple[Path, str] | None = None  # a text that goes on in the next line, and what ends it
        self.listed = False  # is the object an element of a list?
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        text = row.text
        if self.open is not None and self._goes_on(text):
            return True
        self.open = None
        if text.strip() == "---":
            self._finish()
            self.levels.clear()
        elif match := _JSON.match(text) or _YAML.match(text):
            self._key(row, match)
        elif text.strip() == "{" and self.levels:
            self._item(len(text) - len(text.lstrip()))
        elif not _CLOSED.match(text) and not re.match(r"^\s*- \S", text):
            self.stray += 1
            return None if self.stray < STRAY else False
        self.stray = 0
        return True

    def _goes_on(self, text: str) -> bool:
        assert self.open is not None
        path, end = self.open
        if path not in self.record.values:
            return False
        value, row = self.record.values[path]
        deeper = len(text) - len(text.lstrip()) > (self.levels[-1].indent if self.levels else 0)
        if end == "" and (not deeper or _YAML.match(text) or re.match(r"^\s*- ", text)):
            return False
        if len(value) < 2000:
            joined = f"{value} {text.strip()}".strip()
            self.record.values[path] = (joined.removesuffix(end) if end else joined, row)
        if end and text.rstrip().endswith(end):
            self.open = None
        return bool(end) or deeper

    def _item(self, indent: int) -> None:
        """A new element of the list whose key stands above."""
        while self.levels and self.levels[-1].indent > indent:
            self.levels.pop()
        if self.levels and self.levels[-1].indent == indent and not self.levels[-1].key:
            self.levels.pop()
        if not self.levels:
            return
        self.levels[-1].item += 1
        if len(self.levels) == 1 and self.levels[-1].key == "items":
            self._finish()

    def _key(self, row: Row, match: re.Match[str]) -> None:
        indent = len(match["indent"])
        if match["dash"]:
            self._item(indent)
            indent += 2
        else:
            while self.levels and self.levels[-1].indent >= indent:
                self.levels.pop()
        if len(self.levels) >= DEEP:
            return
        if not self.levels and match["key"] == "apiVersion" and self.record.get("apiVersion"):
            self._finish()
        value = (match["value"] or "").strip()
        self.levels.append(Level(indent, match["key"]))
        path = self._path()
        if path[:1] == ("items",):
            self.listed, path = True, path[2:]
        elif self.listed:  # `kind: List` stands below its items
            self._finish()
            self.listed = False
        if path and len(self.record.values) < MOST:
            self.record.values[path] = (self._value(path, value), row)

    def _path(self) -> Path:
        path: list[str | int] = []
        for level in self.levels:
            path.append(level.key)
            if level.item >= 0 and level is not self.levels[-1]:
                path.append(level.item)
        return tuple(path)

    def _value(self, path: Path, value: str) -> str:
        if value in ("|", "|-", "|+", ">", ">-", ">+"):
            self.open = (path, "")
            return ""
        if value in ("{", "[", "{}", "[]"):
            return ""
        if value[:1] == '"' and len(value) > 1 and value.endswith('"'):
            try:
                return str(msgspec.json.decode(value))
            except (msgspec.DecodeError, UnicodeError):
                return value.strip('"')
        if value[:1] in ("'", '"'):
            quote = value[0]
            if len(value) > 1 and value.endswith(quote):
                return value[1:-1]
            self.open = (path, quote)
            return value[1:]
        self.open = (path, "") if value else None
        return value

    def _finish(self) -> None:
        record, self.record = self.record, Record()
        kind = record.get("kind")
        read = _READ.get(kind) or (_job if kind in _JOBS else None)
        if read is not None:
            self.found.extend(read(record))

    def facts(self) -> Iterable[Fact]:
        self._finish()
        return self.found


def _pod(record: Record) -> Iterator[Fact]:
    who = Identity(pod=record.get("metadata", "name") or None, host=record.get("spec", "nodeName") or None)
    if who.host and (row := record.row("spec", "nodeName")):
        yield row.fact("member", who=who)
    if who.pod and (row := record.row("metadata", "uid")):
        yield row.fact("pod_uid", who=who, uid=record.get("metadata", "uid"))
    for item in record.items("spec", "containers"):
        for name in ("memory", "ephemeral-storage"):
            if row := record.row(*item, "resources", "limits", name):
                value = record.get(*item, "resources", "limits", name)
                yield row.fact("config", who=who, name=f"limits.{name}", value=value)
    yield from _taken_away(record, who)
    for item in record.items("status", "containerStatuses"):
        container = record.get(*item, "name") or None
        for state in ("lastState", "state"):
            ended = (*item, state, "terminated")
            code, signal = record.get(*ended, "exitCode"), record.get(*ended, "signal")
            yield from Ending(
                container,
                state == "lastState",
                record.get(*ended, "reason") or None,
                int(code) if code.lstrip("-").isdecimal() else None,
                int(signal) if signal.isdecimal() else None,
                record.get(*ended, "finishedAt") or None,
                record.row(*ended, "exitCode"),
                record.row(*ended, "reason"),
            ).facts(who)


def _taken_away(record: Record, who: Identity) -> Iterator[Fact]:
    """An eviction or a preemption: by the pod's own reason, or by its DisruptionTarget condition."""
    reason = record.get("status", "reason")
    proof, message = record.row("status", "message") or record.row("status", "reason"), record.get("status", "message")
    for item in record.items("status", "conditions"):
        if (
            record.get(*item, "type") == "DisruptionTarget"
            and record.get(*item, "status") == "True"
            and reason not in EVICTED
        ):
            reason, message = record.get(*item, "reason"), record.get(*item, "message")
            proof = record.row(*item, "message") or record.row(*item, "reason")
    if proof and (kind := taken_away(reason)):
        yield proof.fact(kind, who=who, pod=who.pod, message=message or reason)


def _event(record: Record) -> Iterator[Fact]:
    about = "involvedObject" if record.row("involvedObject", "name") else "regarding"
    message = record.get("message") or record.get("note")
    proof = record.row("message") or record.row("note") or record.row("reason")
    if proof is None:
        return
    name = f"{record.get(about, 'kind').lower()}/{record.get(about, 'name')}"
    at = record.get("lastTimestamp") or record.get("eventTime") or record.get("series", "lastObservedTime")
    for fact in of_event(proof, record.get("reason"), name, message, record.get("type") or "Normal"):
        yield stamps.dated(fact, at)


def _node(record: Record) -> Iterator[Fact]:
    host = record.get("metadata", "name") or None
    for item in record.items("status", "conditions"):
        kind, status = record.get(*item, "type"), record.get(*item, "status")
        row = record.row(*item, "message") or record.row(*item, "status")
        if (
            row
            and host
            and (
                (kind == "Ready" and status in ("False", "Unknown")) or (kind.endswith("Pressure") and status == "True")
            )
        ):
            reason = "NodeNotReady" if kind == "Ready" else f"NodeHas{kind}"
            yield row.fact("node_event", who=Identity(host=host), reason=reason, message=record.get(*item, "message"))


def _job(record: Record) -> Iterator[Fact]:
    """The last condition of a job that is true and tells how it ended."""
    for item in reversed(record.items("status", "conditions")):
        row = record.row(*item, "message") or record.row(*item, "reason") or record.row(*item, "type")
        if record.get(*item, "status") == "True" and row is not None:
            found = of_condition(
                row, record.get("kind"), record.get("metadata", "name"), record.get(*item, "type"), record.get(*item, "reason"), record.get(*item, "message")
            )  # fmt: skip
            if found is not None:
                yield found
                return


_READ: dict[str, Callable[[Record], Iterator[Fact]]] = {"Pod": _pod, "Event": _event, "Node": _node}
