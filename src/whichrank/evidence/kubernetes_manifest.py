"""A pod's manifest, or a fragment of one: its name, its node, how its containers ended.

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> end, oom = facts(Reader("x", (), (Manifest(),)), '''lastState:
...   terminated:
...     exitCode: 137
...     reason: OOMKilled''')
>>> oom.kind, end.kind, end["code"], end["reason"], end["last"]
('pod_oom', 'container_exit', 137, 'OOMKilled', True)
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from whichrank.evidence.kubernetes_pods import STRAY, Ending, taken_away
from whichrank.evidence.scan import Row, State
from whichrank.facts import Fact, Identity


class Manifest:
    """YAML or JSON of a pod, whole or a fragment: only keys on lines of their own, or one `terminated: {…}`."""

    anchors = ("terminated", "kind: Pod", '"kind": "Pod"', "containerStatuses", "lastState")
    _first = re.compile(
        r"^\s*(?:- )?[\"']?(?:terminated|containerStatuses|kind|lastState)[\"']?:\s*(?P<rest>.*)$|[\"']?(?:terminated)[\"']?:\s*\{"
    )

    def start(self, row: Row) -> State | None:
        match = self._first.search(row.text)
        if not match or ("kind" in match[0] and not re.search(r"\bPod\b[\"']?,?\s*$", match[0])):
            return None
        state = _PodStatus()
        state.take(row)
        return state


class _PodStatus:
    _pair = re.compile(r"^(?P<indent>\s*)(?:- )?[\"']?(?P<key>[A-Za-z]\w*)[\"']?:\s*(?P<value>.*?),?\s*$")
    _inline = re.compile(r"[\"']?(\w+)[\"']?:\s*(?:[\"']([^\"']*)[\"']|([\w.:+-]+))")

    def __init__(self) -> None:
        self.pod: str | None = None
        self.host: str | None = None
        self.inside = ""
        self.level: int | None = None  # indent of what stands directly in metadata
        self.endings: list[Ending] = []
        self.loose: list[tuple[Row, str, str]] = []  # row, kind of fact, reason
        self.message = ""
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        if inline := re.search(
            r"(?P<last>lastState[\"']?:\s*\{\s*[\"']?)?terminated[\"']?:\s*\{(?P<body>[^}]*)\}", row.text
        ):
            self.endings.append(Ending(last=bool(inline["last"]) or self.inside == "lastState"))
            for name, quoted, bare in self._inline.findall(inline["body"]):
                self._set(row, name, quoted or bare)
            return True
        match = self._pair.match(row.text)
        if match:
            self.stray = 0
            self._key(row, match["key"], match["value"].strip("\"'"), len(match["indent"]))
            return True
        if re.match(r"^[\s\]\[{}(),-]*$", row.text):
            return True
        self.stray += 1
        return None if self.stray < STRAY else False

    def _key(self, row: Row, key: str, value: str, indent: int) -> None:
        if self.inside == "metadata" and self.level is None:
            self.level = indent
        if key in ("lastState", "state", "metadata", "spec", "status"):
            self.inside = key
        elif key == "terminated":
            self.endings.append(Ending(last=self.inside == "lastState"))
        elif key == "nodeName":
            self.host = value
        elif key == "name" and self.inside == "metadata" and self.pod is None and indent == self.level:
            self.pod = value
        elif key == "name" and self.endings and self.endings[-1].container is None:
            self.endings[-1].container = value
        elif key == "reason" and (kind := taken_away(value)):
            self.loose.append((row, kind, value))
        elif key == "message" and "low on resource" in value:
            self.message = value
        elif self.endings:
            self._set(row, key, value)

    def _set(self, row: Row, key: str, value: str) -> None:
        ending = self.endings[-1]
        if key == "exitCode" and value.lstrip("-").isdecimal() and ending.code is None:
            ending.code, ending.row = int(value), row
        elif key == "reason" and ending.reason is None:
            ending.reason, ending.reason_row = value, row
        elif key == "finishedAt":
            ending.finished = value
        elif key == "signal" and value.isdecimal():
            ending.signal = int(value)

    def facts(self) -> Iterable[Fact]:
        who = Identity(pod=self.pod, host=self.host)
        for row, kind, reason in self.loose:
            yield row.fact(kind, who=who, pod=self.pod, message=self.message or reason)
        for ending in self.endings:
            yield from ending.facts(who)
