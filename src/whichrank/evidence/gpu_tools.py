r"""What nvidia-smi says: utilisation, power, memory, throttling, NVLink and ECC errors, lost GPUs.

Reads ``nvidia-smi --query-gpu=… --format=csv`` and ``--query-compute-apps`` with any columns in any order (by the header),
the default table (also of MIG and of GPUs that answer ERR!), ``pmon``, ``nvlink -e``, ``-q -d PERFORMANCE,ECC``. Formats:
driver 450 to 580 (550 renamed "Clocks Throttle Reasons" to "Clocks Event Reasons"). Tables by columns (``dmon``,
rocm-smi, amd-smi) are read by gpu_columns.py.

>>> from whichrank.evidence.sample import facts
>>> sample, = facts(READER, "index, power.draw [W], utilization.gpu [%]\n3, 68.12 W, 0 %")
>>> sample.kind, sample["index"], sample["util"], sample["power_w"]
('gpu_sample', 3, 0, 68.12)
>>> lost, = facts(READER, "Unable to determine the device handle for GPU0000:81:00.0: Unknown Error")
>>> lost.kind, lost["device"]
('gpu_lost', '0000:81:00.0')
"""

from __future__ import annotations

import re
from typing import Any

from whichrank.evidence.scan import Line, Reader, Row
from whichrank.evidence.section import heading
from whichrank.evidence.tool import Tool, Tools
from whichrank.facts import Identity

# Column of a csv header, its unit taken off -> value of the fact.
_COLUMNS = {
    "index": "index",
    "gpu": "index",
    "utilization.gpu": "util",
    "power.draw": "power_w",
    "power.draw.instant": "power_w",
    "power.draw.average": "power_w",
    "memory.used": "mem_mib",
    "temperature.gpu": "temp_c",
}
_REASON = re.compile(r"clocks_(?:throttle|event)_reasons\.(?P<reason>\w+)$")
_HARMLESS = {"gpu_idle", "active", "supported", "applications_clocks_setting", "sync_boost"}
# Bits of NVML's nvmlClocksEventReasons, and of DCGM's field of that name
BITS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
_LOST = re.compile(r"GPU is lost|Unknown Error|GPU requires reset")
_COUNTED = re.compile(
    r"ecc\.errors\.uncorrected|remapped_rows\.(?:uncorrectable|failure|pending)|retired_pages\.(?:double_bit|pending)"
)
_BUS = re.compile(r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def number(cell: str) -> int | float | None:
    match = _NUMBER.match(cell.strip())
    return None if match is None else float(match[0]) if "." in match[0] else int(match[0])


def _reasons(cells: dict[str, str]) -> list[str]:
    """What slows the clocks, by a column each or by the bits of `active`."""
    found: list[str] = []
    for column, cell in cells.items():
        match = _REASON.match(column)
        if match and match["reason"] == "active" and re.fullmatch(r"0x[0-9A-Fa-f]{1,16}", cell):
            found.extend(name for bit, name in BITS.items() if int(cell, 16) & bit)
        elif match and cell == "Active" and match["reason"] not in _HARMLESS:
            found.append(match["reason"])
    return found


class Csv(Tool):
    """Rows under a header that names its columns; `csv,noheader` has none, then the command does."""

    def __init__(self) -> None:
        super().__init__()
        self.columns: list[str] = []

    def read(self, row: Row) -> bool:
        text = row.text.strip()
        if text.startswith("#") and text.count(",") >= 3 and "." in text:
            text = text.rpartition("  ")[2] if "  " in text.partition(",")[0] else text.lstrip("# ")
        elif heading(text):
            query = re.search(r"--query-gpu[= ]([\w.,]+).*noheader", row.command)
            self.columns = query[1].split(",") if query else []
            return bool(query)
        cells = [cell.strip() for cell in text.split(",")]
        names = [re.sub(r" ?\[.*\]$", "", cell) for cell in cells]
        if (
            "index" in names
            or "pci.bus_id" in names
            or "gpu_bus_id" in names
            or any(name.startswith(("utilization.", "power.draw")) for name in names)
        ):
            self.columns = names
            return True
        if not self.columns or len(cells) != len(self.columns):
            return False
        return self._row(row, dict(zip(self.columns, cells, strict=True)))

    def _row(self, row: Row, cells: dict[str, str]) -> bool:
        values: dict[str, Any] = {}
        for column, name in _COLUMNS.items():
            if column in cells and (value := number(cells[column])) is not None:
                values.setdefault(name, value)
        reasons = _reasons(cells)
        bus = next(
            (cell for column, cell in cells.items() if column in ("pci.bus_id", "gpu_bus_id") and _BUS.search(cell)),
            None,
        )
        who = Identity(gpu=bus or cells.get("uuid"))
        if (pid := number(cells.get("pid", ""))) is not None and isinstance(pid, int) and bus:
            self.add(row, "member", who=Identity(pid=pid, gpu=bus))
            return True
        lost = any(_LOST.search(cell) for cell in cells.values())
        if not lost and not (values.keys() - {"index"}) and not reasons:
            return False
        if lost:
            self.add(row, "gpu_lost", who=who, index=values.get("index"), device=bus)
            return True
        self.add(row, "gpu_sample", who=who, **values, throttle=",".join(reasons) or None)
        for column, cell in cells.items():
            if _COUNTED.match(column) and (isinstance(number(cell), int) or cell in ("Yes", "No")):
                self.add(
                    row,
                    "counter",
                    who=who,
                    name=column,
                    value=number(cell) if isinstance(number(cell), int) else int(cell == "Yes"),
                    device=bus or f"gpu {values.get('index')}",
                    snapshot=1,
                )
        return True


class Table(Tool):
    """The default table of nvidia-smi: two lines for each GPU, then the processes."""

    _GPU = re.compile(rf"^\|\s+(?P<index>\d+)\s+\S.*\|\s*(?P<bus>{_BUS.pattern})\s")
    _USE = re.compile(
        r"^\|\s*(?:N/A|\d+%|ERR!)\s+(?:\d+C|N/A|ERR!)\s+\S+\s+(?P<power>\d+|N/A|ERR!)W? / .*?\|\s*(?P<mem>\d+)MiB / +\d+MiB \|\s+(?P<util>\d+|N/A|ERR!)%?"
    )
    _PROCESS = re.compile(r"^\|\s+(?P<index>\d+)\s+(?:N/A|\d+)\s+(?:N/A|\d+)\s+(?P<pid>\d+)\s+(?:C|G|C\+G|M\+C)\s+\S")

    def __init__(self) -> None:
        super().__init__()
        self.index: int | None = None
        self.bus: str | None = None
        self.inside = False

    def read(self, row: Row) -> bool:
        text = row.text.strip()
        if text.startswith("| NVIDIA-SMI"):
            self.inside = True
            return True
        if match := self._GPU.match(text):
            self.index, self.bus, self.inside = int(match["index"]), match["bus"], True
            return True
        if self.index is not None and (match := self._USE.match(text)):
            if text.count("ERR!") >= 4:  # fan, temperature, power and utilisation: nothing of it answers
                self.add(row, "gpu_lost", who=Identity(gpu=self.bus), index=self.index, device=self.bus)
                self.index = None
                return True
            numbers = {
                name: number(match[group])
                for name, group in (("util", "util"), ("power_w", "power"), ("mem_mib", "mem"))
            }
            self.add(row, "gpu_sample", who=Identity(gpu=self.bus), index=self.index, **numbers)
            self.index = None
            return True
        if match := self._PROCESS.match(text):
            self.add(row, "member", who=Identity(pid=int(match["pid"]), gpu=match["index"]))
            return True
        return self.inside and text.startswith(
            (
                "| GPU  Name",
                "| Fan  Temp",
                "| Processes:",
                "|  GPU   GI",
                "|=====",
                "|-----",
                "+-----",
                "|                ",
            )
        )


class Query(Tool):
    """`nvidia-smi -q` and `nvlink -e`: a line for the GPU, then names and values."""

    _GPU = re.compile(rf"^\s*GPU (?:(?P<index>\d+): .*\(UUID: |(?P<bus>{_BUS.pattern})\s*$)")
    _REASON = re.compile(
        r"^\s+(?P<reason>HW Slowdown|HW Thermal Slowdown|HW Power Brake Slowdown|SW Thermal Slowdown|SW Power Cap)\s*: Active\b"
    )
    _NVLINK = re.compile(r"^\s*Link (?P<link>\d+): (?P<name>[A-Z][\w ]+(?:Errors?|Counter)): (?P<value>\d+)")
    _ECC = re.compile(
        r"^\s+(?P<name>(?:SRAM |DRAM |Double Bit ECC|Total )[\w ]*(?:Uncorrectable|Double Bit ECC)[\w ]*|Uncorrectable Error|Remapping Failure Occurred|Pending(?: Page Blacklist)?)\s*: (?P<value>\d+|Yes|No)\s*$"
    )

    def __init__(self) -> None:
        super().__init__()
        self.index: int | None = None
        self.bus: str | None = None
        self.part = ""

    def read(self, row: Row) -> bool:
        if match := self._GPU.match(row.text):
            self.index, self.bus = int(match["index"]) if match["index"] else None, match["bus"]
            self.part = ""
            return True
        if self.index is None and self.bus is None:
            return False
        device = self.bus or f"gpu {self.index}"
        if match := self._REASON.match(row.text):
            self.add(
                row,
                "gpu_sample",
                who=Identity(gpu=self.bus),
                index=self.index,
                throttle=match["reason"].lower().replace(" ", "_"),
            )
            return True
        if match := self._NVLINK.match(row.text):
            name = "nvlink_" + match["name"].lower().replace(" ", "_")
            link = f"{device} link {match['link']}"
            self.add(row, "counter", name=name, value=int(match["value"]), device=link, snapshot=1)
            return True
        if match := self._ECC.match(row.text):
            name = f"ecc_{self.part}{match['name'].strip().lower().replace(' ', '_')}"
            value = int(match["value"] == "Yes") if match["value"] in ("Yes", "No") else int(match["value"])
            self.add(row, "counter", name=name, value=value, device=device, snapshot=1)
            return True
        if match := re.match(r"^\s+(Aggregate|Volatile|Retired Pages|Remapped Rows)\s*$", row.text):
            self.part = "" if match[1] == "Volatile" else match[1].lower().replace(" ", "_") + "_"
            return True
        return False


READER = Reader(
    "gpu_tools",
    lines=(
        Line(
            "gpu_lost",
            "Unable to determine the device handle",
            rf"Unable to determine the device handle for (?:GPU ?|gpu )(?P<device>{_BUS.pattern})?",
        ),
        # Alone on its line: what nvidia-smi says where the driver finds none (any more)
        Line("gpu_lost", "No devices were found", r"(?:^|: )No devices were found\s*$", {"all": True}),
        # Driver 565 and newer say what they want done about a GPU
        Line(
            "gpu_health",
            "GPU Recovery Action",
            r"^\s+GPU Recovery Action\s*: (?P<action>Reset|Reboot|Drain P2P|Drain and Reset)\s*$",
            {"state": "failure", "tool": "nvidia-smi"},
        ),
        # Access control and translation between GPUs: with them peer-to-peer copies go astray or through the CPU.
        Line("p2p_info", "ACSCtl:", r"(?P<text>ACSCtl:\s+SrcValid\+.*)"),
        Line("p2p_info", "Default domain type", r"(?P<text>iommu: Default domain type: Translated)"),
        Line(
            "gpu_lost",
            "GPU is lost",
            rf"^(?!.*Unable to determine)(?:.*?(?P<device>{_BUS.pattern}))?[^,]*?: ?GPU is lost\. +Reboot",
        ),
    ),
    blocks=(
        Tools(Csv, "utilization.", "power.draw", "pci.bus_id", "gpu_bus_id", "memory.used", "--query-gpu"),
        Tools(Table, "NVIDIA-SMI", "MiB |", "|   "),
        Tools(Query, "GPU "),
    ),
    title="GPUs: utilisation, power, throttling, NVLink and ECC errors",
    versions="nvidia-smi of driver 450 to 580 (CSV queries, table also of MIG and ERR!, `nvlink -e`, `-q`)",
    collect=(
        "nvidia-smi",
        "nvidia-smi -q -d PERFORMANCE,ECC",
        "nvidia-smi dmon -s pucm -c 10",
        "rocm-smi",
        "amd-smi metric",
    ),
)
