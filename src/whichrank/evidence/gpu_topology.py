r"""How the GPUs of a host are joined: the matrix of `nvidia-smi topo -m`.

Formats: drivers 450 to 580 (network adapters as `mlx5_0` columns until 510, as `NIC0` since; `GPU NUMA ID` since 535;
tabs, or blanks where it was pasted). One matrix says what a host has, not what it should have: boards without NVLink,
bridges between pairs and the cube of the DGX-1 have SYS and NODE by design. Only a host that differs from its like has
lost something.

>>> from whichrank.evidence.sample import facts
>>> text = '''bay-3$ nvidia-smi topo -m
... \tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
... GPU0\t X \tNV18\tSYS\tPIX\t0-23\t0\t\tN/A
... GPU1\tNV18\t X \tSYS\tNODE\t0-23\t0\t\tN/A
... GPU2\tSYS\tSYS\t X \tSYS\t24-47\t1\t\tN/A
... NIC0\tPIX\tNODE\tSYS\t X '''
>>> matrix, = facts(READER, text)
>>> matrix.who.host, matrix["gpus"], matrix["adapters"], matrix["nvlink_pairs"], matrix["links"], matrix["alone"]
('bay-3', 3, 1, 1, 18, (2,))
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from whichrank.evidence.scan import Reader, Row
from whichrank.evidence.tool import Tool, Tools
from whichrank.facts import Fact

_WAYS = re.compile(r"X|NV\d+|SYS|NODE|PHB|PXB|PIX|SOC|C2C|N/A")


class Matrix(Tool):
    """The header, then a line for each GPU and adapter. A matrix that was cut off says nothing."""

    _HEADER = re.compile(r"^\s*GPU0\s+.*\bCPU Affinity\b")
    _ROW = re.compile(r"^(?P<name>GPU\d+|NIC\d+|mlx\d_\w+)\s+(?P<cells>\S.*)$")
    _LEGEND = re.compile(r"^\s*(?:Legend:|NIC Legend:|(?:X|SYS|NODE|PHB|PXB|PIX|NV#)\s+= |NIC\d+: )")

    def __init__(self) -> None:
        super().__init__()
        self.head: Row | None = None
        self.columns: list[str] = []
        self.rows: dict[int, list[str]] = {}

    def read(self, row: Row) -> bool:
        if self._HEADER.match(row.text):
            self.head, self.rows = row, {}
            self.columns = row.text.partition("CPU Affinity")[0].split()
            return True
        if self.head is None:
            return False
        match = self._ROW.match(row.text)
        if match is None or match["name"] not in self.columns:
            return bool(self._LEGEND.match(row.text))
        cells = match["cells"].split()[: len(self.columns)]
        if match["name"].startswith("GPU") and len(cells) == len(self.columns) and all(map(_WAYS.fullmatch, cells)):
            self.rows[int(match["name"][3:])] = cells
            if len(self.rows) == sum(name.startswith("GPU") for name in self.columns):
                self._whole(self.head)
        return True

    def _whole(self, head: Row) -> None:
        gpus = [int(name[3:]) for name in self.columns if name.startswith("GPU")]
        at = {int(name[3:]): place for place, name in enumerate(self.columns) if name.startswith("GPU")}
        if set(gpus) != set(self.rows):
            return
        joined = {gpu: {other for other in gpus if self.rows[gpu][at[other]].startswith("NV")} for gpu in gpus}
        links = [int(self.rows[gpu][at[other]][2:]) for gpu in gpus for other in joined[gpu]]
        self.add(
            head,
            "gpu_topology",
            gpus=len(gpus),
            adapters=len(self.columns) - len(gpus),
            nvlink_pairs=sum(map(len, joined.values())) // 2,
            links=min(links, default=0),
            alone=tuple(gpu for gpu in gpus if not joined[gpu]) if links else (),
        )
        self.head = None

    def facts(self) -> Iterable[Fact]:
        return [fact for fact in super().facts() if fact["gpus"] > 1]


READER = Reader(
    "gpu_topology",
    blocks=(Tools(Matrix, "CPU Affinity"),),
    machine=True,
    title="how the GPUs of a host are joined: NVLink or PCIe, and how many adapters it has",
    versions="nvidia-smi of driver 450 to 580 (`topo -m`)",
    collect=("nvidia-smi topo -m > $(hostname).topo",),
)
