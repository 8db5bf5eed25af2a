"""What Kubernetes says of one pod: `kubectl describe pod` (node, job), `kubectl get pods -o wide`.

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> for fact in facts(Reader("x", (), (Describe(),)), '''Name:             ft-worker-1
... Node:             gpu-7f-x2/10.4.7.22
... Status:           Failed
... Containers:
...   trainer:
...     State:          Terminated
...       Reason:       OOMKilled
...       Exit Code:    137
...       Finished:     Thu, 02 Apr 2026 06:21:44 +0000'''):
...     print(fact.kind, fact.who.pod, fact.who.host, dict(fact.values))
member ft-worker-1 gpu-7f-x2 {}
pod_oom ft-worker-1 gpu-7f-x2 {'container': 'trainer'}
container_exit ft-worker-1 gpu-7f-x2 {'code': 137, 'reason': 'OOMKilled', 'container': 'trainer', 'last': False}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from whichrank.evidence import stamps
from whichrank.evidence.scan import Row, State
from whichrank.facts import Fact, Identity

_ASSIGNED = re.compile(r"Successfully assigned (?:[\w.-]+/)?(?P<pod>[\w.-]+) to (?P<host>[\w.-]+)")
_VICTIM = re.compile(r"victim process: (?P<comm>[^,]+), pid: (?P<pid>\d+)")
_KILLED = re.compile(
    r"(?P<cgroup>Memory cgroup )?[Oo]ut of memory: Kill(?:ed)? process (?P<pid>\d+) \((?P<comm>[^)]+)\)(?:.*?anon-rss:(?P<rss>\d+)kB)?"
)
PREEMPTED = ("Preempted", "Preempting", "PreemptionByScheduler", "PreemptScheduled")
EVICTED = (
    "Evicted",
    "TaintManagerEviction",
    "EvictionByEvictionAPI",
    "TerminationByKubelet",
    "DeletionByTaintManager",
)
_SPOT = re.compile(r"Spot|Preempt|Terminat\w*Notice|RebootScheduled|FreezeScheduled")
STRAY = 60


def taken_away(reason: str | None) -> str | None:
    """The kind of fact for a pod's reason that says that it was evicted or preempted."""
    return "pod_evicted" if reason in EVICTED else "pod_preempted" if reason in PREEMPTED else None


def of_event(
    row: Row, reason: str, about: str, message: str, type_: str = "Warning", age: str | None = None
) -> Iterator[Fact]:
    """The facts of one event about pod/name or node/name."""
    what, _, name = about.rpartition("/")
    who = (
        Identity(pod=name)
        if what.endswith("pod") or what == "Pod"
        else Identity(host=name)
        if what.lower().endswith("node")
        else Identity()
    )
    values: dict[str, Any] = {"message": message, **({"age": age} if age else {})}
    if match := _ASSIGNED.search(message):
        yield row.fact("member", who=Identity(pod=match["pod"], host=match["host"]))
    elif reason in EVICTED:
        yield row.fact("pod_evicted", who=who, pod=who.pod, **values)
    elif reason in PREEMPTED and who.pod:
        yield row.fact("pod_preempted", who=who, pod=who.pod, **values)
    elif reason == "OOMKilled":
        yield row.fact("pod_oom", who=who, **values)
    elif reason == "SystemOOM" and (match := _VICTIM.search(message)):
        yield row.fact("oom_kill", who=Identity(host=who.host, pid=int(match["pid"])), comm=match["comm"], cgroup=False)
    elif match := _KILLED.search(message):
        yield row.fact(
            "oom_kill",
            who=Identity(host=who.host, pid=int(match["pid"])),
            comm=match["comm"],
            cgroup=match["cgroup"] is not None,
            rss_kb=int(match["rss"] or 0) or None,
        )
    elif reason == "Killing" and who.pod:
        yield row.fact("launcher_stop", who=who, launcher="kubelet", signal=15, **values)
    elif (
        type_ == "Warning"
        or (
            reason.startswith("Node")
            and reason
            not in (
                "NodeReady",
                "NodeAllocatableEnforced",
                "NodeHasSufficientMemory",
                "NodeHasNoDiskPressure",
                "NodeHasSufficientPID",
                "NodeSchedulable",
            )
        )
        or _SPOT.search(reason)
    ):
        yield row.fact("node_event", who=who, reason=reason, **values)


@dataclass(slots=True)
class Ending:
    """One `State: Terminated` of a container, as far as it was read."""

    container: str | None = None
    last: bool = False
    reason: str | None = None
    code: int | None = None
    signal: int | None = None
    finished: str | None = None
    row: Row | None = None
    reason_row: Row | None = None

    def facts(self, who: Identity) -> Iterator[Fact]:
        if self.code is None and self.reason is None:
            return
        at = (self.finished or "").strip('"')
        named: dict[str, Any] = {"container": self.container} if self.container else {}
        if self.reason == "OOMKilled" and self.reason_row:
            yield stamps.dated(self.reason_row.fact("pod_oom", who=who, **named), at)
        if self.code is not None and self.row:
            values: dict[str, Any] = {
                "code": self.code,
                "reason": self.reason,
                **named,
                "last": self.last,
                "signal": self.signal,
            }
            yield stamps.dated(
                self.row.fact(
                    "container_exit", who=who, **{name: value for name, value in values.items() if value is not None}
                ),
                at,
            )


def of_condition(row: Row, kind: str, name: str, type_: str, reason: str, message: str) -> Fact | None:
    """A job's condition that says how it ended: `Failed`, `Evicted`, `Preempted`, `Restarting`."""
    values = {"of": kind, "name": name, "reason": reason, "message": message}
    said: dict[str, Any] = {key: value for key, value in values.items() if value}
    if type_ == "Restarting":
        return row.fact("restart", launcher=kind or "kubernetes", **said)
    preempted = type_ == "Preempted" or (type_ == "Evicted" and reason.startswith("Preempt"))
    state = (
        "PREEMPTED" if preempted else {"Failed": "FAILED", "FailureTarget": "FAILED", "Evicted": "EVICTED"}.get(type_)
    )
    if state and reason == "DeadlineExceeded":
        state = "DEADLINE"
    return row.fact("job_state", state=state, **said) if state else None


class Describe:
    """`kubectl describe pod`: `Name:` at the left edge, then what belongs to this pod."""

    anchors = ("Name:",)

    def start(self, row: Row) -> State | None:
        match = re.match(r"Name: {2,}(?P<name>[a-z0-9][a-z0-9.-]*)\s*$", row.text)
        return _Pod(match["name"]) if match else None


@dataclass(slots=True)
class _Pod:
    name: str
    host: str | None = None
    node_row: Row | None = None
    top: dict[str, str] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    container: str | None = None
    section: str = ""
    endings: list[Ending] = field(default_factory=list)
    limits: list[tuple[Row, str, str]] = field(default_factory=list)
    events: list[Fact] = field(default_factory=list)
    ended: tuple[Row, dict[str, str]] | None = None
    condition: dict[str, str] = field(default_factory=dict)  # of a job: its keys come one a line, the type last
    stray: int = 0
    _sick: ClassVar[re.Pattern[str]] = re.compile(
        r"^  Ready +(?:False|Unknown) +(?:\S.*?  +){2}\S+ +(?P<message>\S.*)$"
    )

    def take(self, row: Row) -> bool | None:
        match = re.match(r"(?P<indent> *)(?P<key>[A-Za-z][\w ./-]*):(?: +(?P<value>\S.*?))?\s*$", row.text)
        if self.section == "Events" and (
            event := re.match(r"  (Normal|Warning)\s+(\w+)\s{2,}(\S.*?)\s{2,}(\S+)\s+(\S.*)$", row.text)
        ):
            self.events.extend(of_event(row, event[2], f"{self._what()}/{self.name}", event[5], event[1], event[3]))
        elif self.section == "Conditions" and (sick := self._sick.match(row.text)):
            self.events.append(
                row.fact("node_event", who=Identity(host=self.name), reason="NodeNotReady", message=sick["message"])
            )
        elif match and not match["indent"] and match["key"] == "Name":
            return False
        elif match:
            self._pair(row, len(match["indent"]), match["key"], match["value"] or "")
        elif not re.match(r"  +\S", row.text):
            self.stray += 1
            return None if self.stray < STRAY else False
        self.stray = 0
        return True

    def _what(self) -> str:
        """What is described: a node has roles, a job has a kind of its own."""
        return "node" if "Roles" in self.top else "pod" if self.top.get("Kind", "Pod") == "Pod" else "job"

    def _pair(self, row: Row, indent: int, key: str, value: str) -> None:
        if indent == 0:
            self.section, self.container = key, None
            self.top.setdefault(key, value)
            self.rows.setdefault(key, row)
            if key == "Node" and value:
                self.host, self.node_row = value.split("/")[0], row
        elif self.section == "Status" and key in ("Message", "Reason", "Status", "Type") and "Kind" in self.top:
            self.condition[key] = value
            if key == "Type" and self.condition.get("Status") == "True":
                self.ended = (row, dict(self.condition))
        elif indent == 2 and not value and self.section in ("Containers", "Init Containers"):
            self.container = key
        elif key in ("State", "Last State"):
            self.endings.append(Ending(self.container, last=key == "Last State"))
            if value != "Terminated":
                self.endings[-1].container = None
        elif self.endings and key == "Reason":
            self.endings[-1].reason, self.endings[-1].reason_row = value, row
        elif self.endings and key == "Exit Code" and value.lstrip("-").isdecimal():
            self.endings[-1].code, self.endings[-1].row = int(value), row
        elif self.endings and key == "Signal" and value.isdecimal():
            self.endings[-1].signal = int(value)
        elif self.endings and key == "Finished":
            self.endings[-1].finished = value
        elif key in ("memory", "ephemeral-storage") and indent >= 6 and value:
            self.limits.append((row, key, value))

    def facts(self) -> Iterable[Fact]:
        if self.ended is not None:
            row, condition = self.ended
            found = of_condition(
                row,
                self.top.get("Kind", ""),
                self.name,
                condition["Type"],
                condition.get("Reason", ""),
                condition.get("Message", ""),
            )
            yield from [found] if found is not None else []
        if self._what() != "pod":
            yield from self.events
            return
        if "Node" not in self.top and "Containers" not in self.top and "Status" not in self.top:
            return
        who = Identity(pod=self.name, host=self.host)
        if self.node_row and self.host and self.host != "<none>":
            yield self.node_row.fact("member", who=who)
        reason, proof = self.top.get("Reason"), self.rows.get("Message") or self.rows.get("Reason")
        if proof and (kind := taken_away(reason)):
            yield proof.fact(kind, who=who, pod=self.name, message=self.top.get("Message", ""))
        elif proof and reason in (
            "NodeLost",
            "NodeShutdown",
            "Terminated",
            "Shutdown",
            "NodeAffinity",
            "UnexpectedAdmissionError",
        ):
            yield proof.fact("node_event", who=who, reason=reason, message=self.top.get("Message", ""))
        for ending in self.endings:
            yield from ending.facts(who)
        for row, name, value in self.limits:
            yield row.fact("config", who=who, name=f"limits.{name}", value=value)
        yield from self.events


class Pods:
    """`kubectl get pods [-o wide]`."""

    anchors = ("RESTARTS",)

    def start(self, row: Row) -> State | None:
        return _PodRows(row.text) if re.search(r"\bNAME\s+READY\s+STATUS\s+RESTARTS\b", row.text) else None


class _PodRows:
    _row = re.compile(
        r"(?:(?P<namespace>[a-z0-9-]+)\s+)?(?P<pod>[a-z0-9][a-z0-9.-]*)\s+\d+/\d+\s+(?P<status>[A-Z][\w:]*)\s+(?P<restarts>\d+(?: \([^)]*\))?)\s+(?P<age>\S+)(?:\s+(?P<ip>[\d.a-f:]+|<none>)\s+(?P<host>[\w.<>-]+))?"
    )

    def __init__(self, header: str) -> None:
        self.found: list[Fact] = []
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        match = self._row.match(row.text)
        if not match:
            self.stray += 1
            return None if self.stray < STRAY else False
        self.stray = 0
        host = match["host"] if match["host"] not in (None, "<none>") else None
        who = Identity(pod=match["pod"], host=host)
        if host:
            self.found.append(row.fact("member", who=who))
        kind = {"Evicted": "pod_evicted", "OOMKilled": "pod_oom", "Preempting": "pod_preempted"}.get(match["status"])
        if kind:
            self.found.append(row.fact(kind, who=who, pod=match["pod"], message=match["status"]))
        return True

    def facts(self) -> Iterable[Fact]:
        return self.found


class Uids:
    """A table of pods with their UIDs: `kubectl get pods -o custom-columns=NAME:…,UID:.metadata.uid,NODE:…`."""

    anchors = ("UID",)

    def start(self, row: Row) -> State | None:
        names = row.text.split()
        return _UidRows(names) if {"NAME", "UID"} <= set(names) and len(names) <= 12 else None


class _UidRows:
    _uid = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.found: list[Fact] = []

    def take(self, row: Row) -> bool | None:
        cells = row.text.split()
        record = dict(zip(self.names, cells, strict=False))
        if len(cells) < len(self.names) or not self._uid.fullmatch(record["UID"]):
            return False
        host = record.get("NODE", "<none>")
        who = Identity(pod=record["NAME"], host=None if host == "<none>" else host)
        self.found.append(row.fact("pod_uid", who=who, uid=record["UID"]))
        return True

    def facts(self) -> Iterable[Fact]:
        return self.found
