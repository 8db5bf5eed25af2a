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

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from whichrank.evidence import stamps
from whichrank.evidence.scan import Line, Reader, Row, Whole, excerpt
from whichrank.evidence.tool import Tool, Tools
from whichrank.facts import Fact, Gap, Identity, Source, Spot

MOST = 200_000  # ranks of one file

_TOKEN = re.compile(r'"(?P<key>\w+)"\s*:\s*(?P<value>"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?|true|false|null|[\[{])')
_FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
_STATUS = ("init_state", "async_error", "finalize_called", "destroy_flag", "abort_flag")


def sniff(head: bytes, path: str) -> bool:
    """A RAS document, perhaps below the command that was typed."""
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
            found = stamps.find(str(value))
            self.at = found[0] if found and found[1] == "wall" else None
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
    yield from _Document(text, source).read()
    if not text.rstrip().endswith("}"):
        source.coverage = "cut"
        yield Gap(source.path, "the RAS report breaks off", "the whole report", "ncclras -f json > ras.json")


class Report(Tool):
    """The text report: a table of groups of communicators, then who stands apart in which of them."""

    _GROUP = re.compile(
        r"^\s*(?P<group>\d+)\s+(?P<comms>\d+)\s+(?P<nodes>\d+)\s+(?P<per_node>\d+(?:-\d+)?)\s+(?P<size>\d+)\s+(?P<ranks>\d+)\s+(?P<status>[A-Z][A-Z,]+)\s+(?P<errors>[A-Z][A-Z,]*)\s*$"
    )
    _COMM = re.compile(
        r"^\s*#(?P<group>\d+)-(?P<number>\d+) \((?P<hash>[0-9a-f]+)\) (?P<what>MISMATCH|INCOMPLETE|ERROR)\b"
    )
    _DIFFERENT = re.compile(
        r"^\s+Communicator ranks have different (?:collective operation counts|(?P<function>\w+) operation counts|status)"
    )
    _SET = re.compile(
        r"^\s+(?P<members>\d+) ranks have (?:launched up to operation (?P<operation>\d+)|(?P<none>not launched any operations)|status (?P<status>[A-Z]+))"
    )
    _RANK = re.compile(
        r"^\s+Rank (?P<rank>\d+)(?: has (?:launched up to operation (?P<operation>\d+)|(?P<none>not launched any operations)|status (?P<status>[A-Z]+))| reported (?P<error>[\w ]+?))?"
        r" -- (?:GPUs? (?P<gpu>[\d,]+)(?: \(NVML [\d,]+\))? managed by process (?P<pid>\d+) on node (?P<host>\S+)|\[process)"
    )
    _PROCESS = re.compile(r"^\s+Process (?P<pid>\d+) on node (?P<host>\S+) managing GPUs? (?P<gpu>[\d,]+)")
    _FURNITURE = ("Group     Comms", "    #  in group", "Communicators...", "Job summary", "=====")

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, int] = {}
        self.comm: str | None = None
        self.size: int | None = None
        self.section = ""
        self.function = "all"
        self.operation: int | None = None
        self.sets: dict[int, int] = {}
        self.poll = 0

    def read(self, row: Row) -> bool:
        return (
            self._about(row)
            or self._ranks(row)
            or row.text.startswith(self._FURNITURE)
            or any(said in row.text for said in ("communicator data", "considered dead"))
        )

    def _about(self, row: Row) -> bool:
        """What the next lines are about."""
        text = row.text
        if text.startswith("Group     Comms"):  # once in each report
            self.poll, self.sizes, self.comm = self.poll + 1, {}, None
            return True
        if match := self._GROUP.match(text):
            self.sizes[match["group"]] = int(match["size"])
            self.add(
                row,
                "ras_status",
                size=int(match["size"]),
                comms=int(match["comms"]),
                ranks=int(match["ranks"]),
                status=match["status"],
                errors=match["errors"],
                poll=self.poll or None,
            )
        elif match := self._COMM.match(text):
            self.comm, self.size, self.section = match["hash"], self.sizes.get(match["group"]), match["what"]
            self.operation = None
            self.add(row, "ras_status", comm=self.comm, errors=match["what"], size=self.size)
        elif match := self._DIFFERENT.match(text):
            self.function, self.operation, self.sets = match["function"] or "all", None, {}
        elif match := re.match(r"(INCOMPLETE|DEAD|TIMEOUT)\s*$", text):
            self.section, self.comm = match[1], None
        else:
            return False
        return True

    def _ranks(self, row: Row) -> bool:
        """Ranks and processes, and how many of them stand where."""
        text = row.text
        if match := self._SET.match(text):
            self.operation = None if match["status"] else int(match["operation"] or 0)
            if self.operation is not None:
                self.sets[self.operation] = int(match["members"])
        elif match := self._RANK.match(text):
            self._rank(row, match)
        elif match := self._PROCESS.match(text):
            who = Identity(host=match["host"], pid=int(match["pid"]))
            self.add(row, "ras_missing", who=who, unresponsive=True, dead=self.section == "DEAD")
        elif match := re.match(r"\s+The missing ranks?: ([\d,]+)", text):
            for rank in match[1].split(","):
                self.add(
                    row,
                    "ras_missing",
                    rank_in_comm=int(rank),
                    size=self.size,
                    comm=self.comm,
                    unresponsive=True,
                    dead=False,
                )
        else:
            return False
        return True

    def _rank(self, row: Row, match: re.Match[str]) -> None:
        who = Identity(host=match["host"], pid=int(match["pid"]) if match["pid"] else None)
        place: dict[str, Any] = {"rank_in_comm": int(match["rank"]), "size": self.size, "comm": self.comm}
        if self.section == "INCOMPLETE":
            self.add(row, "ras_missing", who=who, **place, unresponsive=True, dead=False)
            return
        if match["operation"] or match["none"]:
            operation: int | None = int(match["operation"] or 0)
            self.sets.setdefault(operation or 0, 1)
        else:
            operation = None if match["status"] or match["error"] else self.operation
        if operation is not None:
            self.add(
                row,
                "ras_counts",
                who=who,
                **place,
                counts={self.function: operation},
                sets=self.sets,
                poll=self.poll or None,
            )
        elif match["error"]:
            self.add(row, "ras_status", who=who, **place, errors=match["error"])


READER = Reader(
    "nccl_ras",
    lines=(
        Line(
            "ras_missing",
            "PEER_DEAD",
            r"\] PEER_DEAD: Process (?P<pid>\d+) on node (?P<host>\S+)",
            {"unresponsive": True, "dead": True},
        ),
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
)
