r"""nccl-tests: what all_reduce_perf and its sisters measured, and on which hosts.

Formats: nccl-tests 2.0 to 2.19 (src/common.cu, src/util.cu): text, and the JSON of `-J` (2.17 and newer). The "# Rank" lines
name hosts and GPUs, before 2.14.1 with the bus alone, ``[0x07]``; before 2.13.4 they have no group, and up to 2.12 the
column after busbw is an error bound and no count (``0e+00``). Of a table only the largest size counts (small ones
measure latency), of its two halves the first that is there (out of place). Figures are GB/s of the bus (busbw).
Wrong values count at every size.

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.network_tools import READER
>>> table = '''# Collective test starting: all_reduce_perf
... #  Rank  0 Group  0 Pid   6100 on      c2n02 device  0 [0000:18:00] NVIDIA H100 80GB HBM3
... #  Rank  1 Group  0 Pid   6140 on      c2n03 device  0 [0000:18:00] NVIDIA H100 80GB HBM3
... #       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
... #        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
...     67108864      16777216     float     sum      -1  1445.32   46.43   46.43       0  1448.12   46.34   46.34     N/A
...   1073741824     268435456     float     sum      -1  24120.1   44.52   44.52       0  24127.3   44.50   44.50      12
... # Out of bounds values : 1 FAILED'''
>>> for fact in facts(READER, table): print(fact.kind, fact.spot.line, dict(fact.values))
bandwidth 7 {'a': 'c2n02', 'b': 'c2n03', 'hosts': ['c2n02', 'c2n03'], 'size': 1073741824, 'busbw': 44.52, 'test': 'all_reduce_perf', 'wrong': 12, 'gpus': 2, 'gpu': 'NVIDIA H100 80GB HBM3'}
wrong_values 7 {'count': 12, 'size': 1073741824, 'test': 'all_reduce_perf', 'hosts': ['c2n02', 'c2n03']}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from whichrank.evidence.scan import Row, excerpt
from whichrank.evidence.slurm_tables import hosts_of
from whichrank.evidence.tool import Tool
from whichrank.facts import Fact, Gap, Source, Spot

_NUMBER = r"\d+(?:\.\d+)?(?:e[+-]\d+)?"
_HALF = (
    rf"(?P<time{{0}}>{_NUMBER})\s+(?P<algbw{{0}}>{_NUMBER})\s+(?P<busbw{{0}}>{_NUMBER})\s+(?P<wrong{{0}}>{_NUMBER}|N/A)"
)
_FURNITURE = (
    "#       size",
    "#        (B)",
    "#                                                       ",
    "# nThread",
    "# nccl-tests version",
    "# Using devices",
    "# Avg bus bandwidth",
    "# Collective test",
)


class NcclTests(Tool):
    """The hosts of the "# Rank … on host" lines, and the row of the largest size."""

    _RANK = re.compile(
        r"^#\s+Rank\s+(?P<rank>\d+) (?:Group\s+(?P<group>\d+) )?(?:Pid\s+\d+ )?on\s+(?P<host>\S+) device\s+\d+ \[[^\]]*\] ?(?P<gpu>.*)"
    )
    _START = r"^\s*(?P<size>\d+)\s+\d+\s+\w+\s+(?:\w+\s+)?(?:-?\d+\s+)?"
    _ROW = re.compile(rf"{_START}{_HALF.format(1)}(?=\s|$)(?:\s+{_HALF.format(2)}(?=\s|$))?")
    # With -I each half has four columns of single iterations more.
    _LONG = re.compile(rf"{_START}{_HALF.format(1)}(?=\s|$)(?:(?:\s+\S+){{4}}\s+{_HALF.format(2)}(?=\s|$))?")
    # srun's and mpirun's ways to name hosts, where the "# Rank" lines are not there.
    _HOSTS = re.compile(r"(?:^|\s)(?:-w|--nodelist|-H|--?host|--hosts)[ =](?P<hosts>\S+).*\b\w+_perf\b")

    def __init__(self) -> None:
        super().__init__()
        self._clear()

    def _clear(self) -> None:
        self.hosts: list[str] = []
        self.ranks = 0
        self.groups: set[str] = set()
        self.gpu: str | None = None
        self.test: str | None = None
        self.best: tuple[int, Row, re.Match[str]] | None = None
        self.worst: tuple[int, Row, int] | None = None  # wrong values, where, size
        self.counted = True  # is the column a number of wrong values?
        self.shape = self._ROW
        self.over = False

    def read(self, row: Row) -> bool:
        text = row.text.rstrip()
        if match := re.match(r"# Collective test starting: (\w+)", text):
            self._close()
            self.test = match[1]
            return True
        if match := self._RANK.match(text):
            self._rank(match)
            return True
        if re.match(r"#\s+size\s+count\s+type\b.*algbw\s+busbw", text):
            if self.best:
                self._close()
            self.counted = "#wrong" in text
            self.shape = self._LONG if "i_min" in text else self._ROW
            if not self.hosts and (named := self._HOSTS.search(row.command)):
                self.hosts = list(dict.fromkeys(hosts_of(re.sub(r":\d+", "", named["hosts"]))))
            return True
        if self.hosts and (match := self.shape.match(text)):
            self._row(row, match)
            return True
        if text.startswith("# Out of bounds values"):
            self.over = True
            return True
        return text.startswith(_FURNITURE) or text == "#"

    def _rank(self, match: re.Match[str]) -> None:
        if self.over or self.best:
            self._close()
        self.ranks += 1
        self.groups.add(match["group"] or "0")
        self.gpu = self.gpu or match["gpu"].strip() or None
        if match["host"] not in self.hosts:
            self.hosts.append(match["host"])

    def _row(self, row: Row, match: re.Match[str]) -> None:
        if self.best is None or int(match["size"]) >= self.best[0]:
            self.best = (int(match["size"]), row, match)
        wrong = self._wrong(match)
        if wrong and (self.worst is None or wrong > self.worst[0]):
            self.worst = (wrong, row, int(match["size"]))

    def _wrong(self, match: re.Match[str]) -> int:
        """Wrong values of both halves' worse one."""
        cells = (match["wrong1"], match["wrong2"]) if self.counted else ()
        return max((int(float(cell)) for cell in cells if cell and cell != "N/A"), default=0)

    def _close(self) -> None:
        if self.best:
            size, row, match = self.best
            values = _values(
                self.hosts, size, float(match["busbw1"]), self.test, self._wrong(match), self.ranks, self.gpu
            )
            self.add(row, "bandwidth", **values, groups=len(self.groups) if len(self.groups) > 1 else None)
        if self.worst:
            count, row, size = self.worst
            self.add(row, "wrong_values", count=count, size=size, test=self.test, hosts=list(self.hosts))
        self._clear()

    def facts(self) -> Iterable[Fact]:
        self._close()
        return super().facts()


def _values(
    hosts: list[str], size: int, busbw: float, test: str | None, wrong: int, ranks: int, gpu: str | None
) -> dict[str, Any]:
    """The values of a `bandwidth` fact: two ends only where one or two hosts took part."""
    a, b = (hosts[0], hosts[-1]) if 0 < len(hosts) <= 2 else (None, None)
    return {
        "a": a,
        "b": b,
        "hosts": list(hosts),
        "size": size,
        "busbw": busbw,
        "test": test,
        "wrong": wrong or None,
        "gpus": ranks or None,
        "gpu": gpu,
    }


class _Device(msgspec.Struct):
    hostname: str = ""
    device_info: str = ""


class _Config(msgspec.Struct):
    devices: list[_Device] = []


class _Side(msgspec.Struct):
    bus_bw: float | str | None = None  # "nan" is a text
    nwrong: float | str | None = None


class _Result(msgspec.Struct):
    size: int = 0
    out_of_place: _Side | None = None
    in_place: _Side | None = None


class _Report(msgspec.Struct):
    args: list[str] = []
    env: list[str] = []
    config: _Config | None = None
    results: list[_Result] = []


def sniff(head: bytes, path: str) -> bool:
    """The JSON that `-J FILE` writes: one line, its version first."""
    return re.match(rb'\s*\{"version":\d+,"start_time":', head) is not None and b'"args":[' in head


def read(data: bytes, source: Source) -> Iterator[Fact | Gap]:
    """Facts of a `-J` report; a Gap if it breaks off."""
    source.kind, source.lines = "metrics", 1
    try:
        report = msgspec.json.decode(data, type=_Report)
    except (msgspec.DecodeError, RecursionError) as error:
        yield Gap(source.path, f"the JSON of nccl-tests cannot be read: {error}", "the test's text output")
        return
    devices = report.config.devices if report.config else []
    hosts = list(dict.fromkeys(device.hostname for device in devices if device.hostname))
    test = report.args[0].rsplit("/", 1)[-1] if report.args else None
    for setting in report.env:
        name, _, value = setting.partition("=")
        if name.startswith("NCCL_") and value:
            yield Fact("env_set", Spot(source, 1, excerpt(setting)), values={"name": name, "value": value})
    best = max(report.results, key=lambda result: result.size, default=None)
    side = (best.out_of_place or best.in_place) if best else None
    if best and side and isinstance(side.bus_bw, float) and hosts:
        values = _values(
            hosts, best.size, side.bus_bw, test, _bad(best), len(devices), devices[0].device_info.strip() or None
        )
        text = f"{test} {best.size} bytes on {', '.join(hosts[:8])}: busbw {side.bus_bw:g} GB/s"
        kept = {name: value for name, value in values.items() if value is not None}
        yield Fact("bandwidth", Spot(source, 1, excerpt(text)), values=kept)
    worst = max(report.results, key=_bad, default=None)
    if worst and _bad(worst):
        text = f"{test} {worst.size} bytes on {', '.join(hosts[:8])}: {_bad(worst)} wrong values"
        found = {"count": _bad(worst), "size": worst.size, "test": test, "hosts": hosts}
        yield Fact("wrong_values", Spot(source, 1, excerpt(text)), values=found)


def _bad(result: _Result) -> int:
    """Wrong values of both halves' worse one."""
    sides = [side.nwrong for side in (result.out_of_place, result.in_place) if side]
    return max((int(wrong) for wrong in sides if isinstance(wrong, float)), default=0)
