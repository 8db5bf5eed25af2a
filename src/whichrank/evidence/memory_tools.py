r"""How short a host is of memory, disk time or processors: pressure-stall information, `free`, /proc/meminfo, `vmstat`.

Formats: Linux 4.20 to 6.12 /proc/pressure/* and cgroup v2 *.pressure (Documentation/accounting/psi.rst), procps 3.3 and
4 (`free` in any unit; the column `available` came with 3.3.10), /proc/meminfo since 3.14. An average over a minute is a
state, not a counter: it tells by itself. Which of memory, io and cpu is meant stands in the heading, the file's name or
the command, not in the lines. `vmstat 1` of procps 3.3 and 4 (also -w, -t) counts by the intervals between its lines; the
first line below a header is the average since the boot, and left out.

>>> from whichrank.evidence.sample import facts
>>> text = "n3$ cat /proc/pressure/io\nsome avg10=91.20 avg60=88.10 avg300=61.02 total=9123\nfull avg10=90.00 avg60=84.35 avg300=60.00 total=9001"
>>> some, full = facts(READER, text)
>>> full.who.host, full["resource"], full["of"], full["avg60"]
('n3', 'io', 'full', 84.35)
>>> free, = facts(READER, "               total        used        free      shared  buff/cache   available\nMem:           503Gi       498Gi       1.1Gi       8.6Mi       3.2Gi       2.4Gi")
>>> free["resource"], round(free["available_percent"], 1)
('memory', 0.5)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from whichrank.evidence.scan import Reader, Row
from whichrank.evidence.tool import MOST, Tool, Tools, size_of
from whichrank.facts import Fact

LEAST = 3  # intervals that tell of more than a moment


class Pressure(Tool):
    """A file of /proc/pressure or of a cgroup: which one, then its lines."""

    _WHICH = re.compile(r"(?:pressure/(?P<a>memory|io|cpu|irq)|(?P<b>memory|io|cpu|irq)\.pressure)\b")
    _LINE = re.compile(
        r"(?:^|:)\s*(?P<of>some|full) avg10=(?P<avg10>\d+\.\d+) avg60=(?P<avg60>\d+\.\d+) avg300=(?P<avg300>\d+\.\d+) total=\d+\s*$"
    )

    def __init__(self) -> None:
        super().__init__()
        self.which: str | None = None

    def read(self, row: Row) -> bool:
        match = self._WHICH.search(row.text)
        if match:
            self.which = match["a"] or match["b"]
        line = self._LINE.search(row.text)
        if line is None:
            return match is not None
        which = self.which
        if which is None and (named := re.search(r"(?:^|[._-])(memory|io|cpu)(?=[._-]|$)", row.source.path)):
            which = named[1]
        if which in ("memory", "io", "cpu"):
            averages: dict[str, Any] = {name: float(line[name]) for name in ("avg10", "avg60", "avg300")}
            self.add(row, "pressure", resource=which, of=line["of"], **averages)
        return True


class Free(Tool):
    """`free`: a header that names the columns, and the line of the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.columns: list[str] = []

    def read(self, row: Row) -> bool:
        words = row.text.split()
        if words[:3] == ["total", "used", "free"]:
            self.columns = words
            return True
        if not self.columns or words[:1] != ["Mem:"] or "available" not in self.columns:
            return bool(self.columns) and words[:1] == ["Swap:"]
        cells = dict(zip(self.columns, words[1:], strict=False))
        total, left = size_of(cells.get("total", "")), size_of(cells.get("available", ""))
        if total and left is not None:
            self.add(row, "pressure", resource="memory", available_percent=100 * left / total)
        return True


class MemInfo(Tool):
    """/proc/meminfo: MemTotal, later MemAvailable."""

    _LINE = re.compile(r"^(?P<name>MemTotal|MemFree|MemAvailable):\s+(?P<kb>\d+) kB\s*$")

    def __init__(self) -> None:
        super().__init__()
        self.total: int | None = None

    def read(self, row: Row) -> bool:
        match = self._LINE.match(row.text)
        if match is None:
            return False
        if match["name"] == "MemTotal":
            self.total = int(match["kb"])
        elif match["name"] == "MemAvailable" and self.total:
            self.add(row, "pressure", resource="memory", available_percent=100 * int(match["kb"]) / self.total)
        return True


class Vmstat(Tool):
    """`vmstat INTERVAL`: what was swapped, and who waited for disks, on the average of the intervals."""

    _HEADER = re.compile(r"^\s*r\s+b\s+swpd\s+free\s")

    def __init__(self) -> None:
        super().__init__()
        self.columns: list[str] = []
        self.first = True
        self.seen: dict[str | None, list[tuple[Row, dict[str, int]]]] = {}

    def read(self, row: Row) -> bool:
        if self._HEADER.match(row.text):
            self.columns, self.first = row.text.split(), True
            return True
        words = row.text.split()
        if not self.columns or len(words) < 16 or not all(word.isdecimal() for word in words[:16]):
            return bool(re.match(r"\s*-*procs-* -+memory-", row.text))
        if not self.first and " -S" not in row.command:
            cells = {name: int(word) for name, word in zip(self.columns, words, strict=False) if word.isdecimal()}
            lines = self.seen.setdefault(row.who.host, [])
            if len(lines) < MOST:
                lines.append((row, cells))
        self.first = False
        return True

    def facts(self) -> Iterable[Fact]:
        for lines in self.seen.values():
            if len(lines) < LEAST:
                continue

            def mean(*names: str, lines: list[tuple[Row, dict[str, int]]] = lines) -> float:
                return sum(cells.get(name, 0) for _, cells in lines for name in names) / len(lines)

            worst = max(lines, key=lambda line: line[1].get("si", 0) + line[1].get("so", 0))[0]
            self.add(worst, "pressure", resource="memory", swapped_kb_s=mean("si", "so"), intervals=len(lines))
            worst = max(lines, key=lambda line: line[1].get("wa", 0))[0]
            self.add(
                worst, "pressure", resource="io", waited_percent=mean("wa"), blocked=mean("b"), intervals=len(lines)
            )
        return super().facts()


READER = Reader(
    "memory_tools",
    blocks=(
        Tools(Pressure, "/pressure/", ".pressure", " avg60="),
        Tools(Free, "total        used        free", "total       used       free"),
        Tools(MemInfo, "MemTotal:"),
        Tools(Vmstat, " swpd ", "-----memory-----"),
    ),
    machine=True,
    title="memory and pressure: what is left, and who waits for it",
    versions="Linux 4.20 to 6.12 (/proc/pressure), procps 3.3 and 4 (`free`, `vmstat`), /proc/meminfo",
    collect=(
        "head /proc/pressure/*",
        "free -h",
        "vmstat 1 30",
    ),
)
