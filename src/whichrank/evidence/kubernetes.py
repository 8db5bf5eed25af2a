"""Kubernetes: events, `describe`, `get pods`, objects as YAML and JSON, kubelet's log.

Formats: kubectl 1.20 to 1.34. Exit code 137 alone is only a SIGKILL: `OOMKilled` or `Evicted` says whose. A killed
DataLoader worker leaves the container running.

>>> from whichrank.evidence.sample import facts
>>> for fact in facts(READER, '''LAST SEEN   TYPE      REASON      OBJECT                MESSAGE
... 52m         Normal    Scheduled   pod/ft-job-worker-1   Successfully assigned ml/ft-job-worker-1 to gpu-7f-x2
... 31m         Warning   Evicted     pod/ft-job-worker-1   The node was low on resource: ephemeral-storage.'''):
...     print(fact.kind, fact.who.pod, fact.who.host)
member ft-job-worker-1 gpu-7f-x2
pod_evicted ft-job-worker-1 None
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from whichrank.evidence.kubernetes_manifest import Manifest
from whichrank.evidence.kubernetes_objects import Objects
from whichrank.evidence.kubernetes_pods import Describe, Pods, Uids, of_event
from whichrank.evidence.scan import Line, Reader, Row, State
from whichrank.facts import Fact, Identity

STRAY = 20


class Events:
    """`kubectl get events`: a table whose columns start where the words of its header do."""

    anchors = ("MESSAGE",)

    def start(self, row: Row) -> State | None:
        if not re.search(r"\bTYPE\s+REASON\b", row.text) or "OBJECT" not in row.text:
            return None
        rows = _EventRows(row.text)
        return rows if {"TYPE", "REASON"} <= {name for name, _ in rows.columns} else None


class _EventRows:
    _names = re.compile(r"LAST SEEN|FIRST SEEN|\S+")

    def __init__(self, header: str) -> None:
        self.columns = [(match[0], match.start()) for match in self._names.finditer(header)]
        self.found: list[Fact] = []
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        record = self._record(row.text)
        if record.get("TYPE") not in ("Normal", "Warning"):
            self.stray += 1
            return None if self.stray < STRAY else False
        self.stray = 0
        self.found.extend(
            of_event(
                row,
                record["REASON"],
                record.get("OBJECT", ""),
                record.get("MESSAGE", ""),
                record["TYPE"],
                record.get("LAST SEEN"),
            )
        )
        return True

    def _record(self, text: str) -> dict[str, str]:
        """Cells by runs of spaces; by the header's offsets where a column is empty or a cell fills its own."""
        cells = re.split(r"\s{2,}|\t", text.strip(), maxsplit=len(self.columns) - 1)
        if len(cells) == len(self.columns):
            return dict(zip((name for name, _ in self.columns), cells, strict=True))
        ends = [start for _, start in self.columns[1:]] + [None]
        return {name: text[start:end].strip() for (name, start), end in zip(self.columns, ends, strict=True)}

    def facts(self) -> Iterable[Fact]:
        return self.found


def _pod_of(text: str) -> Identity:
    """Kubelet names pods as namespace/name, with structured logging in pod="…"."""
    match = re.search(r'pods?="?\[?"?(?:[\w.-]+/)?(?P<pod>[a-z0-9][\w.-]*)', text) or re.search(
        r"[Pp]od:? \"?(?:[\w.-]+[/.])?(?P<pod>[a-z0-9][a-z0-9-]*)", text
    )
    return Identity(pod=match["pod"]) if match else Identity()


def read_evicted(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    yield row.fact("pod_evicted", who=_pod_of(row.raw), message=match[0].strip())


def read_drain(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    host = re.search(r"node[-_]?name[\"=:\s]+(?P<host>[\w.-]+)", row.raw, re.I)
    yield row.fact(
        "node_event",
        who=Identity(host=host["host"] if host else None),
        reason="SpotTermination",
        message=match["message"] or match[0],
    )


def read_node(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    found: dict[str, Any] = match.groupdict()
    yield row.fact(
        "node_event",
        who=Identity(host=found.get("host")),
        reason=next(name for name in found if name not in ("host",) and found[name]),
        message=match[0].strip(),
    )


# fmt: off
LINES = (
    Line("pod_evicted", ("pod is evicted successfully", "Evicting pod", "evicting pod", "must evict pod"), r"(?:[Ee]viction manager: )?(?:pod is evicted successfully|[Ee]victing pod\b).*", read=read_evicted),
    Line("pod_evicted", "Marking for deletion Pod", r"^(?!\S+\s+(?:Normal|Warning)).*Marking for deletion Pod (?:[\w.-]+/)?(?P<pod>[\w.-]+)", {"message": "taint manager"}),
    Line("oom_kill", "System OOM encountered", r"^(?!\S+\s+(?:Normal|Warning)\s).*System OOM encountered, victim process: (?P<comm>[^,]+), pid: (?P<pid>\d+)", {"cgroup": False}),
    Line("pod_oom", '"OOMKilled": true', r'"OOMKilled": true'),
    Line("pod_oom", ("TaskOOM", "container oom"), r"TaskOOM event|\bcontainer oom \w+"),
    # Kubeflow's training operator
    Line("container_exit", "exited with code", r"Pod: (?:[\w-]+\.)?(?P<pod>[\w-]+) exited with code (?P<code>\d+)"),
    # AWS node termination handler
    Line("node_event", ("SPOT_ITN", "Spot ITN", "SCHEDULED_EVENT", "REBALANCE_RECOMMENDATION"), r"(?:Requesting instance drain|Adding new event|Node successfully cordoned).*(?:kind=(?P<kind>\w+)|(?P<message>Spot ITN received[^\"\\]*))", read=read_drain),
    Line("node_event", ("shutdown event", "spot", "Spot", "preempt", "nterruption", "instance-action", "ermination notice"), r"(?P<Shutdown>Shutdown manager detected (?:new )?shutdown event.*)|(?P<SpotTermination>(?i:spot (?:instance )?(?:interruption|termination|preemption)[\w ]*(?:notice|warning|received|detected).*)|\"?instance-action\"?.*terminate|instance/preempted.*TRUE|[Ii]nstance (?:termination|preemption) notice.*|\"EventType\": ?\"Preempt\".*)", read=read_node),
    Line("node_event", ("became not ready", "status is now: NodeNotReady"), r"^(?!\s*(?:\S+\s+)?(?:Normal|Warning)\s|\s*(?:- )?\"?message\"?: ).*(?P<NodeNotReady>Node (?:(?P<host>[\w.-]+) )?(?:became not ready|status is now: NodeNotReady).*)", read=read_node),
)
# fmt: on


class LooseMessage:
    """The message of an eviction or preemption outside of any table: in a controller's log, in a person's note."""

    anchors = (
        "node was low on resource",
        "Preempted by",
        "Preempted in order to admit critical pod",
        "node had condition",
        "exceeds the total limit of containers",
        "exceeds the limit",
    )
    _evicted = re.compile(
        r"The node (?:was low on resource: .*|had condition: .*)|.*ephemeral local storage usage exceeds the total limit of containers.*|Usage of EmptyDir volume \S+ exceeds the limit.*"
    )
    _preempted = re.compile(
        r"Preempted by (?:a )?[\w./-]+(?: on node (?P<host>[\w.-]+))?|Preempted in order to admit critical pod"
    )

    def start(self, row: Row) -> State | None:
        if match := self._evicted.search(row.text):
            return _Single(row.fact("pod_evicted", who=_pod_of(row.raw), message=match[0].strip()))
        if match := self._preempted.search(row.text):
            return _Single(
                row.fact("pod_preempted", who=_pod_of(row.raw).filled(Identity(host=match["host"])), message=match[0])
            )
        return None


class _Single:
    def __init__(self, fact: Fact) -> None:
        self.fact = fact

    def take(self, row: Row) -> bool | None:
        return False

    def facts(self) -> Iterable[Fact]:
        return (self.fact,)


READER = Reader(
    "kubernetes",
    LINES,
    (Events(), Pods(), Uids(), Describe(), Objects(), Manifest(), LooseMessage()),
    machine=True,
    title="Kubernetes: `get events`, `describe`, `get pods`, also as YAML and JSON, manifests, kubelet",
    versions="kubectl 1.20 to 1.34",
    collect=("kubectl describe pod POD", "kubectl get events --sort-by=.lastTimestamp", "kubectl get pods -o wide"),
)
