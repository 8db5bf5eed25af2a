r"""NCCL RAS: what `ncclras` says of each communicator: how many collectives each rank has launched, who is missing.

Text of NCCL 2.24 and newer, JSON of 2.28.7 and newer (src/ras/client_support.cc). The JSON is read by its keys and not
by a parser: 2.28.7 to 2.28.9 leave out a comma wherever a rank is missing, files hold several polls or are cut off.
The rank is the one in the communicator; host and pid lead to the global rank.

>>> document = b'''{ "nccl_version": "2.28.9", "communicators_count": 1, "communicators": [ { "hash": "0x7f1c", "size": 2,
... "ranks": [ { "rank": 0, "host": "10.12.0.51", "pid": 5100, "collective_counts": { "AllReduce": 88120 } } ],
... "missing_ranks": [ { "rank": 1, "host": "10.12.0.52", "pid": 6100, "nvml_dev": 0
... "status": { "unresponsive": true, "considered_dead": false } } ] } ] }'''
>>> for fact in read(document, Source("ras.json")):
...     if isinstance(fact, Fact): print(fact.spot.line, fact.kind, fact.who.host, fact.who.pid, dict(fact.values))
1 ras_status None None {'comm': '0x7f1c', 'size': 2, 'present': 1, 'missing': 1, 'version': '2.28.9', 'poll': 1}
2 ras_counts 10.12.0.51 5100 {'rank_in_comm': 0, 'size': 2, 'comm': '0x7f1c', 'poll': 1, 'counts': {'AllReduce': 88120}}
3 ras_missing 10.12.0.52 6100 {'rank_in_comm': 1, 'size': 2, 'comm': '0x7f1c', 'poll': 1, 'unresponsive': True, 'dead': False}
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from whichrank.evidence import stamps
from whichrank.evidence.nccl_ras_text import Report
from whichrank.evidence.scan import Line, Reader, Whole, excerpt
from whichrank.evidence.tool import Tools
from whichrank.facts import Fact, Gap, Identity, Source, Spot

MOST = 200_000  # ranks of one file

_TOKEN = re.compile(r'"(?P<key>\w+)"\s*:\s*(?P<value>"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?|true|false|null|[\[{])')
# Events of MONITOR (2.29 and newer): JSON, and in the text form of READER's lines.
_EVENT = re.compile(
    r'\{\s*"timestamp": "(?P<when>[^"]+)",\s*"group": "\w+",\s*"event": "(?P<event>PEER_\w+)",\s*"peer": \{\s*"host": "(?P<host>[^"]+)",\s*"pid": (?P<pid>\d+),'
)
_SILENT = {
    "PEER_DEAD": (True, True),
    "PEER_TIMEOUT_DEAD": (True, True),
    "PEER_UNRESPONSIVE": (True, False),
    "PEER_KEEPALIVE_TIMEOUT": (True, False),
    "PEER_RECOVERED": (False, False),
}  # event -> unresponsive, dead
_FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
_STATUS = ("init_state", "async_error", "finalize_called", "destroy_flag", "abort_flag")


def sniff(head: bytes, path: str) -> bool:
    """A RAS document, perhaps below the command that was typed; or the events of its monitor."""
    if _EVENT.search(head.decode("latin-1")):
        return True
    start = re.match(rb"\s*(?:[$#+][^\n]*\n\s*){0,3}\{", head)
    return bool(start) and all(key in head for key in (b'"nccl_version"', b'"communicators_count"', b'"communicators"'))


@dataclass(slots=True)
class _Communicator:
    line: int
    hash: str = ""
    size: int | None = None
    present: int = 0
    missing: int = 0
    facts: list[Fact] = field(default_factory=list)


@dataclass(slots=True)
class _Entry:
    line: int
    rank: int
    missing: bool
    values: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


class _Document:
    """Walks the keys of one file in their order."""

    def __init__(self, text: str, source: Source) -> None:
        self.text, self.source = text, source
        self.lines = text.split("\n")
        self.version: str | None = None
        self.at: int | None = None
        self.poll = 0
        self.comm: _Communicator | None = None
        self.entry: _Entry | None = None
        self.in_missing = False
        self.total = 0

    def read(self) -> Iterator[Fact]:
        line, last = 1, 0
        for match in _TOKEN.finditer(self.text):
            line += self.text.count("\n", last, match.start())
            last = match.start()
            yield from self._token(match["key"], _value(match["value"]), line)
            if self.total > MOST:
                break
        yield from self._close()

    def _token(self, key: str, value: Any, line: int) -> Iterator[Fact]:
        if key == "nccl_version":
            yield from self._close()
            self.poll += 1
            self.version, self.at = str(value), None
        elif key == "timestamp":
            self.at = stamps.wall(str(value))
        elif key == "hash":
            yield from self._close()
            self.comm = _Communicator(line, str(value))
        elif self.comm and key == "size" and isinstance(value, int):
            self.comm.size = value
        elif key in ("ranks", "missing_ranks"):
            self._end_entry()
            self.in_missing = key == "missing_ranks"
        elif key == "rank" and isinstance(value, int):
            self._end_entry()
            self.entry = _Entry(line, value, self.in_missing)
        elif self.entry:
            if key in _FUNCTIONS and isinstance(value, int):
                self.entry.counts[key] = value
            else:
                self.entry.values.setdefault(key, value)

    def _end_entry(self) -> None:
        entry, self.entry = self.entry, None
        if entry is None or self.comm is None:
            return
        host, pid = entry.values.get("host"), entry.values.get("pid")
        who = Identity(
            host=host if isinstance(host, str) and host != "unknown" else None,
            pid=pid if isinstance(pid, int) else None,
        )
        values: dict[str, Any] = {
            "rank_in_comm": entry.rank,
            "size": self.comm.size,
            "comm": self.comm.hash,
            "poll": self.poll,
        }
        if entry.missing:
            self.comm.missing += 1
            kind = "ras_missing"
            values.update(
                unresponsive=entry.values.get("unresponsive") is True, dead=entry.values.get("considered_dead") is True
            )
        elif entry.counts:
            self.comm.present += 1
            kind = "ras_counts"
            values.update(
                counts=entry.counts, **{name: entry.values[name] for name in _STATUS if entry.values.get(name)}
            )
        else:
            return  # cut off before its counts
        self.total += 1
        self.comm.facts.append(self._fact(kind, entry.line, who, values))

    def _close(self) -> Iterator[Fact]:
        self._end_entry()
        comm, self.comm, self.in_missing = self.comm, None, False
        if comm is not None:
            values = {
                "comm": comm.hash,
                "size": comm.size,
                "present": comm.present,
                "missing": comm.missing,
                "version": self.version,
                "poll": self.poll,
            }
            yield self._fact("ras_status", comm.line, Identity(), values)
            yield from comm.facts

    def _fact(self, kind: str, line: int, who: Identity, values: dict[str, Any]) -> Fact:
        spot = Spot(self.source, line, excerpt(self.lines[line - 1]))
        return Fact(kind, spot, self.at, "wall" if self.at is not None else "none", who, values=values)


def _value(text: str) -> Any:
    if text.startswith('"'):
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    return int(text) if len(text) < 25 and text.removeprefix("-").isdecimal() else None


def read(data: bytes, source: Source) -> Iterator[Fact | Gap]:
    """All facts of a RAS document; a Gap if it breaks off."""
    text = data.decode("utf-8", "replace")
    source.lines = text.count("\n") + 1
    yield from _events(text, source)
    if '"communicators_count"' not in text:
        return
    yield from _Document(text, source).read()
    if not text.rstrip().endswith("}"):
        source.coverage = "cut"
        yield Gap(source.path, "the RAS report breaks off", "the whole report", "ncclras -f json > ras.json")


def _events(text: str, source: Source) -> Iterator[Fact]:
    """What the monitor told of peers that went silent, died or came back."""
    for match in itertools.islice(_EVENT.finditer(text), MOST):
        if match["event"] not in _SILENT:
            continue
        unresponsive, dead = _SILENT[match["event"]]
        line = text.count("\n", 0, match.start("event")) + 1
        at = stamps.wall(match["when"])
        spot = Spot(source, line, f'"event": "{match["event"]}"')
        who = Identity(host=match["host"], pid=int(match["pid"]))
        values = {"unresponsive": unresponsive, "dead": dead}
        yield Fact("ras_missing", spot, at, "wall" if at is not None else "none", who, values=values)


READER = Reader(
    "nccl_ras",
    lines=tuple(
        Line(
            "ras_missing",
            f"] {event}: Process ",
            rf"\] {event}: Process (?P<pid>\d+) on node (?P<host>\S+)",
            {"unresponsive": unresponsive, "dead": dead},
        )
        for event, (unresponsive, dead) in _SILENT.items()
    ),
    blocks=(
        Tools(
            Report,
            "Ranks     Ranks     Ranks",
            ") MISMATCH",
            ") INCOMPLETE",
            ") ERROR",
            "considered dead",
            "communicator data",
        ),
    ),
    whole=Whole(sniff, read),
    title="`ncclras`: what each rank of a running job has launched, who is missing",
    versions="text of NCCL 2.24 and newer, JSON of 2.28.7 and newer, also where it is broken; the monitor of 2.29. Take two or three: a difference in one poll proves nothing. Do not poll NCCL 2.26.2, 2.26.5 and 2.27.3: jobs have crashed on it",
    collect=("ncclras -v -f json > ras.json",),
)
