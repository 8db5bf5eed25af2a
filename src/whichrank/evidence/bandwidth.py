r"""Bandwidth as tools measure it: tables of pairs of hosts, `ib_write_bw`, `iperf3` (nccl-tests: nccl_tests.py).

Figures are GB/s of the bus (busbw) in tables of pairs, of the link for `ib_write_bw` and `iperf3`.

>>> table = '''# pair  size(B)  time(us)  algbw  busbw  #wrong
...   node-01-node-02  1073741824  5570.2  192.77  361.44  0'''
>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.network_tools import READER
>>> [(fact.kind, fact["a"], fact["b"], fact["busbw"], fact["size"]) for fact in facts(READER, table)]
[('bandwidth', 'node-01', 'node-02', 361.44, 1073741824)]
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from whichrank.evidence.scan import Line, Row
from whichrank.evidence.section import heading
from whichrank.evidence.tool import SIZE, Tool, size_of
from whichrank.facts import Fact

_DIGITS = re.compile(r"\d+")


class Pairs(Tool):
    """A table with a line for each pair of hosts; its header names the columns."""

    def __init__(self) -> None:
        super().__init__()
        self.columns: list[str] = []

    def read(self, row: Row) -> bool:
        words = row.text.strip().lstrip("#").split()
        if "busbw" in (lower := [re.sub(r"\(.*\)|\[.*\]", "", word).lower() for word in words]) and lower[0] in (
            "pair",
            "nodes",
            "hosts",
            "src",
            "a",
            "node1",
            "host1",
            "from",
        ):
            self.columns = lower
            return True
        ends = 1 if self.columns and self.columns[0] in ("pair", "nodes", "hosts") else 2
        if not self.columns or len(words) < len(self.columns) or not (pair := _pair(words[:ends])):
            return False
        cells = dict(zip(self.columns[ends:], words[ends:], strict=False))
        busbw, size = SIZE.match(cells.get("busbw", "")), size_of(cells.get("size", ""))
        if not busbw:
            return False
        length = None if size is None else int(size)
        self.add(row, "bandwidth", a=pair[0], b=pair[1], busbw=float(busbw["number"]), size=length)
        return True


def _pair(words: list[str]) -> tuple[str, str] | None:
    """Two hosts: two words, or one that joins them; of its hyphens the one with the like on both sides."""
    if len(words) == 2:
        return (words[0], words[1]) if all(re.search(r"\d", word) for word in words) else None
    if match := re.fullmatch(r"([\w.-]+?)(?:<->|->|<>|--|:|,|/|\+)([\w.-]+)", words[0]):
        return match[1], match[2]
    parts = words[0].split("-")
    cuts = [("-".join(parts[:cut]), "-".join(parts[cut:])) for cut in range(1, len(parts))]
    alike = [cut for cut in cuts if _DIGITS.sub("#", cut[0]) == _DIGITS.sub("#", cut[1])]
    return (alike or cuts)[0] if cuts and (alike or len(cuts) == 1) else None


class Links(Tool):
    """`ib_write_bw` and `iperf3`, one end to the other."""

    _IPERF = re.compile(
        r"^\[\s*(?:\d+|SUM)\]\s+0\.00-(?P<to>[\d.]+)\s+sec\s+[\d.]+ \w+\s+(?P<rate>[\d.]+) (?P<unit>[KMG])bits/sec.*\breceiver"
    )

    def __init__(self) -> None:
        super().__init__()
        self.peer: str | None = None
        self.scale = 0.0

    def read(self, row: Row) -> bool:
        if heading(row.text):
            match = re.match(r"(?:ib_\w+_bw|iperf3?)\b.* (?P<peer>[\w.-]*\d[\w.-]*)$", row.command)
            self.peer, self.scale = (match["peer"] if match else None), 0.0
            return match is not None
        if match := re.match(r"Connecting to host (?P<peer>\S+), port \d+", row.text):
            self.peer = match["peer"]
            return True
        if match := re.match(r"\s*#bytes\s+#iterations\s+BW peak\[(?P<unit>\S+)\]", row.text):
            self.scale = {"Gb/sec": 0.125, "MB/sec": 0.001, "MiB/sec": 0.001048576}.get(match["unit"], 0.0)
            return True
        if match := self._IPERF.match(row.text):
            self._link(row, float(match["rate"]) * {"K": 1e-6, "M": 1e-3, "G": 1.0}[match["unit"]] / 8, "iperf")
            return True
        if self.scale and (
            match := re.match(r"\s*(?P<size>\d+)\s+\d+\s+[\d.]+\s+(?P<rate>[\d.]+)\s+[\d.]+\s*$", row.text)
        ):
            self._link(row, float(match["rate"]) * self.scale, "ib_write_bw", size=int(match["size"]))
            return True
        return False

    def _link(self, row: Row, busbw: float, test: str, size: int | None = None) -> None:
        self.add(row, "bandwidth", a=row.who.host, b=self.peer, busbw=round(busbw, 3), test=test, size=size)


def _expected(row: Row, match: re.Match[str]) -> Iterable[Fact]:
    scale = 0.125 if match["unit"] and match["unit"].lower().startswith("gb") and match["unit"][1] == "b" else 1
    low, high = float(match["low"]) * scale, float(match["high"] or match["low"]) * scale
    yield row.fact("expected_busbw", low=low, high=high)


EXPECTED = Line(
    "expected_busbw",
    ("expect", "Expect", "should be", "baseline"),
    r"(?:[Ee]xpect\w*|should be|baseline)\b[^\d\n]{0,40}?(?:bus ?bw|busbw|bus bandwidth|bandwidth)?[^\d\n]{0,15}?(?P<low>\d+(?:\.\d+)?)(?: ?(?:-|–|to|\.\.) ?(?P<high>\d+(?:\.\d+)?))? ?(?P<unit>G[Bb](?:/s|ps|it/s))",
    read=_expected,
)
