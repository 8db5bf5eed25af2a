r"""GPU tables by columns, and what rocm-smi and amd-smi print: `nvidia-smi dmon` and `pmon`, `dcgmi dmon`, text, CSV, JSON.

Formats: nvidia-smi 450 to 580 (dmon and pmon, also with `-o DT`); rocm-smi of ROCm 5 to 7 (concise table, `--showuse`,
`--showbus`, `--csv`, `--json`); amd-smi of ROCm 6 and 7 (`monitor`, also with a time or a partition before the columns,
`metric`, `process`, `--json`); `dcgmi dmon`, `dcgmi health -c` and
`dcgmi diag` of DCGM 2 and 3.

>>> from whichrank.evidence.sample import facts
>>> text = '''GPU  XCP  POWER   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%   ENC%   DEC%      VRAM_USAGE
...   0    0  750 W   69 °C   50 °C  1278 MHz  100 %    1 %    N/A    0 %    2.0/192.0 GB'''
>>> [(fact["index"], fact["util"], fact["power_w"]) for fact in facts(READER, text)]
[(0, 100, 750)]
>>> text = "# gpu         pid  type    sm    mem    enc    dec    command\n    1    2885559     C      -      -      -      -    python"
>>> [(fact.kind, fact.who.pid, fact.who.gpu) for fact in facts(READER, text)]
[('member', 2885559, '1')]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from whichrank.evidence.gpu_tools import number
from whichrank.evidence.scan import Line, Reader, Row, Whole
from whichrank.evidence.tool import Tool, Tools
from whichrank.facts import Fact, Gap, Identity, Source, Spot

_NAMES = {
    "gpu": "index",
    "device": "index",
    "entity": "index",
    "entityid": "index",
    "pwr": "power_w",
    "power": "power_w",
    "avgpwr": "power_w",
    "powr": "power_w",
    "sm": "util",
    "gputl": "util",
    "gfx%": "util",
    "gfx_util": "util",
    "gpu%": "util",
}
_UNITS = {"W", "%", "°C", "MHz", "GB", "MB"}


class Columns(Tool):
    """A header that names the columns, a line a GPU. rocm-smi's middle columns hold blanks: read from both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.columns: list[str] = []
        self.rocm = self.dcgm = False

    def read(self, row: Row) -> bool:
        words = row.text.strip().lstrip("#").split()
        lower = [word.lower() for word in words]
        if self._header(lower):
            return True
        if lower[:2] == ["idx", "w"] or lower[:1] in (["idx"], ["id"], ["yyyymmdd"], ["hh:mm:ss"]):
            return True
        if not self.columns or not words:
            return False
        if self.dcgm and words[0] in ("GPU", "GPU-I"):  # "GPU 3   100  61": the entity is two words
            words = words[1:]
        values = self._rocm(words) if self.rocm else self._plain(row, words)
        if values is None:
            return False
        if len(values) > 1 and "index" in values:
            self.add(row, "gpu_sample", **values)
        return True

    def _header(self, lower: list[str]) -> bool:
        names = set(lower)
        known = (
            {"pwr", "sm"} <= names
            or {"pid", "sm", "type"} <= names
            or names & {"gfx%", "gfx_util", "gpu%"}
            or ("gputl" in names and names & {"entity", "entityid"})
        )
        if not known or not (names & {"gpu", "device", "entity", "entityid"}):
            return False
        self.columns, self.rocm, self.dcgm = (
            lower,
            ("gpu%" in names and "device" in names) or lower[-1:] == ["gpu%"],
            bool(names & {"entity", "entityid"}),
        )
        return True

    def _plain(self, row: Row, words: list[str]) -> dict[str, Any] | None:
        plain = [word for word in words if word not in _UNITS]
        if len(plain) < min(3, len(self.columns)):
            return None
        cells = dict(zip(self.columns, plain, strict=False))
        at = next((cells[name] for name in ("gpu", "device", "entity", "entityid") if name in cells), "")
        if not at.isdecimal() or any(
            not re.match(r"[\d.:/NACGM-]", word) for word in plain[: len(self.columns) - 1][:4]
        ):
            return None
        if cells.get("pid", "").isdecimal():
            self.add(row, "member", who=Identity(pid=int(cells["pid"]), gpu=at))
        return {
            _NAMES[column]: value
            for column, word in cells.items()
            if column in _NAMES and (value := number(word)) is not None
        }

    def _rocm(self, words: list[str]) -> dict[str, Any] | None:
        if not words[0].isdecimal():
            return None
        watts = next((number(word) for word in words if re.fullmatch(r"\d+(?:\.\d+)?W", word)), None)
        util = number(words[-1]) if words[-1].endswith("%") else None
        cells = {"index": int(words[0]), "util": util, "power_w": watts}
        return {name: value for name, value in cells.items() if value is not None}


class AmdText(Tool):
    """`amd-smi metric` and `amd-smi process`: a GPU, then names and values in indented groups."""

    _GPU = re.compile(r"^GPU:? (?P<index>\d+):?$")
    _UTIL = re.compile(r"^\s+GFX_ACTIVITY: (?P<value>\d+) %$")
    _PID = re.compile(r"^\s+PID: (?P<pid>\d+)$")
    _ECC = re.compile(r"^\s+(?P<name>TOTAL_UNCORRECTABLE_COUNT|UNCORRECTABLE_COUNT): (?P<value>\d+)$")
    _ANY = re.compile(r"^\s+[A-Z][A-Z0-9_]*(?: \d+)?:(?: .*)?$")

    def __init__(self) -> None:
        super().__init__()
        self.index: int | None = None

    def read(self, row: Row) -> bool:
        if match := self._GPU.match(row.text):
            self.index = int(match["index"])
            return True
        if self.index is None:
            return False
        if match := self._UTIL.match(row.text):
            self.add(row, "gpu_sample", index=self.index, util=int(match["value"]))
        elif match := self._PID.match(row.text):
            self.add(row, "member", who=Identity(pid=int(match["pid"]), gpu=str(self.index)))
        elif (match := self._ECC.match(row.text)) and match["name"].startswith("TOTAL"):
            name = f"ecc_{match['name'].lower()}"
            self.add(row, "counter", name=name, value=int(match["value"]), device=f"gpu {self.index}", snapshot=1)
        return bool(self._ANY.match(row.text))


class RocmCsv(Tool):
    """`rocm-smi --showuse … --csv`: a header that begins with `device`, rows that begin with `card0`."""

    def __init__(self) -> None:
        super().__init__()
        self.columns: list[str] = []

    def read(self, row: Row) -> bool:
        cells = row.text.strip().split(",")
        if cells[0] == "device" and "GPU use (%)" in cells:
            self.columns = cells
            return True
        if not self.columns or len(cells) != len(self.columns) or not (match := re.fullmatch(r"card(\d+)", cells[0])):
            return False
        _add_card(self, row, int(match[1]), dict(zip(self.columns, cells, strict=True)))
        return True


def _card(cells: Mapping[str, Any]) -> dict[str, Any]:
    """What one card of rocm-smi says, whatever set of columns was asked for."""
    values: dict[str, Any] = {}
    for name, cell in cells.items():
        value = number(str(cell))
        if value is None:
            continue
        if name == "GPU use (%)":
            values["util"] = int(value)
        elif name.endswith("Power (W)") and "Max" not in name:
            values["power_w"] = value
        elif name == "VRAM Total Used Memory (B)":
            values["mem_mib"] = int(value) // 2**20
    return values


def _add_card(tool: Tool, row: Row, index: int, cells: Mapping[str, Any]) -> None:
    if values := _card(cells):
        tool.add(row, "gpu_sample", index=index, **values)


class Health(Tool):
    """`dcgmi health -c`: the GPUs that are not healthy. `dcgmi diag`: the tests that failed, and on which GPUs."""

    _GPU = re.compile(r"^\|\s*(?:-> *|GPU ID: *|GPU +)(?P<index>\d+)\s*\|\s*(?P<state>Warning|Failure)\b")
    _TEST = re.compile(
        r"^\|\s*(?P<test>[A-Z][\w /&-]*?)?\s*\|\s*(?P<result>Pass|Fail|Skip)\b(?: - GPUs?: (?P<gpus>[\d, ]+?)\s*\|)?"
    )

    def __init__(self) -> None:
        super().__init__()
        self.what = ""
        self.test: str | None = None

    def read(self, row: Row) -> bool:
        text = row.text.strip()
        if "Health Monitor Report" in text:
            self.what = "health"
        elif re.match(r"\| Diagnostic\s+\| Result\s", text):
            self.what = "diag"
        elif self.what == "health" and (match := self._GPU.match(text)):
            self.add(row, "gpu_health", index=int(match["index"]), state=match["state"].lower(), tool="dcgmi health")
        elif self.what == "diag" and (match := self._TEST.match(text)):
            self.test = match["test"] or self.test
            for index in re.findall(r"\d+", match["gpus"] or "") if match["result"] == "Fail" else ():
                self.add(row, "gpu_health", index=int(index), state="failure", tool="dcgmi diag", test=self.test)
        return bool(self.what) and text.startswith(("|", "+", "Health"))


def _is_json(head: bytes, name: str) -> bool:
    text = head[:1500]
    return (b'"card' in text and b"{" in text and b"GPU use (%)" in head) or (
        text.lstrip()[:1] in (b"[", b"{") and b'"gpu":' in text and (b'"gfx_activity"' in head or b'"gfx"' in head)
    )


def _read_json(data: bytes, source: Source) -> Iterator[Fact | Gap]:
    """rocm-smi: {"card0": {name: text}}; amd-smi: [{"gpu": 0, "usage": {"gfx_activity": {"value": 0, "unit": "%"}}}]."""
    source.kind = "metrics"
    at = min((place for place in (data.find(b"{"), data.find(b"[")) if place >= 0), default=0)
    try:
        found = msgspec.json.decode(data[at:])
    except (msgspec.DecodeError, RecursionError):
        yield Gap(source.path, "JSON of a GPU tool that does not end", "the whole output")
        return
    items = found.get("gpu_data", [found]) if isinstance(found, dict) and "card0" not in found else found
    if isinstance(items, dict):
        for name, cells in items.items():
            match = re.fullmatch(r"card(\d+)", str(name))
            if match and isinstance(cells, dict) and (values := _card(cells)):
                yield _sample(source, f"{name}: GPU use (%): {cells.get('GPU use (%)')}", int(match[1]), values)
        return
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, dict) or not isinstance(item.get("gpu"), int):
            continue
        usage, power = _inner(item, "usage", "gfx_activity"), _inner(item, "power", "socket_power")
        values = {name: value for name, value in (("util", usage), ("power_w", power)) if value is not None}
        if values:
            yield _sample(source, f"gpu {item['gpu']}: gfx_activity {usage}", item["gpu"], values)


def _inner(item: Mapping[str, Any], part: str, name: str) -> int | float | None:
    found = item.get(part)
    cell = found.get(name) if isinstance(found, dict) else None
    cell = cell.get("value") if isinstance(cell, dict) else cell
    return cell if isinstance(cell, (int, float)) and not isinstance(cell, bool) else None


def _sample(source: Source, text: str, index: int, values: Mapping[str, Any]) -> Fact:
    return Fact("gpu_sample", Spot(source, None, text), values={"index": index, **values})


def _showbus(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    yield row.fact("bus_ids", ids=[(int(match["index"]), match["bus"].lower())])


READER = Reader(
    "gpu_columns",
    lines=(
        Line("gpu_sample", ": GPU use (%): ", r"^GPU\[(?P<index>\d+)\]\s*: GPU use \(%\): (?P<util>\d+)\s*$"),
        Line(
            "bus_ids",
            ": PCI Bus: ",
            r"^GPU\[(?P<index>\d+)\]\s*: PCI Bus: (?P<bus>[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$",
            read=_showbus,
        ),
    ),
    blocks=(
        Tools(Columns, "    pwr", "   sm  ", "GFX%", "GFX_UTIL", "GPU%", "GPUTL"),
        Tools(RocmCsv, "GPU use (%)"),
        Tools(Health, "Health Monitor Report", "| Diagnostic "),
        Tools(AmdText, "GPU: "),
    ),
    whole=Whole(_is_json, _read_json),
    machine=True,
    title="GPU tables by columns: `dmon`, `pmon`, rocm-smi, amd-smi, dcgmi",
    versions="nvidia-smi of driver 450 to 580, ROCm 5 to 7, DCGM 2 and 3",
    collect=(
        "nvidia-smi dmon -c 5",
        "rocm-smi --showuse --showbus",
        "amd-smi monitor",
        "dcgmi health -c",
    ),
)
