r"""Disks and file systems as tools show them: how full, how mounted, how slow.

Reads `df` (any unit, with or without types), `mount` and `findmnt` for network file systems and tmpfs, `iostat -x`
(columns by the header's names: sysstat 10 to 12, where `await` was split and `avgqu-sz` became `aqu-sz`; text and
`-o JSON`), `nfsiostat` and raw /proc/self/mountstats (nfs-utils 1.3 to 2.8). iostat's and nfsiostat's first report is the
average since the boot or the mount, those after it are of their interval: `interval` says which.

>>> from whichrank.evidence.sample import facts
>>> disk, = facts(READER, "$ df -h /dev/shm\nFilesystem      Size  Used Avail Use% Mounted on\nshm              64M   63M  1.0M  99% /dev/shm")
>>> disk.kind, disk["mount"], disk["size"], disk["used_percent"]
('disk', '/dev/shm', '64M', 99)
>>> text = "Device r/s r_await aqu-sz %util\nsda 24.23 0.55 0.03 0.75\n\nDevice r/s r_await aqu-sz %util\nsda 3.00 5120.10 64.00 100.00"
>>> [(fact["interval"], fact["await_ms"], fact["util"]) for fact in facts(READER, text)]
[(None, 0.55, 0.75), (True, 5120.1, 100.0)]
"""

from __future__ import annotations

import re
from collections import Counter

from whichrank.evidence.scan import Line, Reader, Row
from whichrank.evidence.tool import Tool, Tools
from whichrank.facts import Identity

_AMOUNT = r"\d+(?:\.\d+)?[KMGTPE]?i?B?|-"
_NETWORK = r"nfs\d?|lustre|beegfs|beegfs_nodev|gpfs|ceph|cifs|smb3|fuse[\w.-]*|wekafs|tmpfs"


class IoStat(Tool):
    """`iostat -x`: a block of devices each interval; a device that comes again is of an interval (`-y`: from the first)."""

    _WAITS = ("await", "r_await", "w_await")
    _QUEUE = ("aqu-sz", "avgqu-sz")
    _JSON = re.compile(r'\{"disk_device": "(?P<device>[^"]+)", (?P<cells>.*)\}')

    _BANNER = re.compile(
        r'^Linux \S+ \((?P<a>[\w.-]+)\)\s+\S+\s+_\w+_\s+\(\d+ CPU\)|^\s*"nodename": "(?P<b>[\w.-]+)",$'
    )

    def __init__(self) -> None:
        super().__init__()
        self.columns: list[str] = []
        self.seen: Counter[str] = Counter()
        self.host: str | None = None

    def read(self, row: Row) -> bool:
        if match := self._BANNER.match(row.text):
            self.host = match["a"] or match["b"]
            self.seen.clear()
            return True
        if match := self._JSON.search(row.text):
            cells = dict(re.findall(r'"([^"]+)": (\d+(?:\.\d+)?)', match["cells"]))
            self._sample(row, match["device"], {"%util" if name == "util" else name: cells[name] for name in cells})
            return True
        words = row.text.split()
        if len(words) > 3 and words[0].rstrip(":") == "Device" and "%util" in words:
            self.columns = words
            return True
        if (
            not self.columns
            or len(words) != len(self.columns)
            or not all(re.fullmatch(r"\d+[.,]\d+", word) for word in words[1:])
        ):
            return False
        self._sample(row, words[0], dict(zip(self.columns[1:], words[1:], strict=True)))
        return True

    def _sample(self, row: Row, device: str, cells: dict[str, str]) -> None:
        numbers = {name: float(cell.replace(",", ".")) for name, cell in cells.items()}
        waits = [numbers[name] for name in self._WAITS if name in numbers]
        if not waits or "%util" not in numbers:
            return
        self.seen[device] += 1
        own = self.seen[device] > 1 or bool(re.match(r"iostat\b.* -\w*y", row.command))
        queue = next((numbers[name] for name in self._QUEUE if name in numbers), None)
        who = Identity(host=row.who.host or self.host)
        self.add(
            row,
            "io_sample",
            who=who,
            device=device,
            util=numbers["%util"],
            await_ms=max(waits),
            queue=queue,
            interval=own or None,
        )


class NfsIoStat(Tool):
    """`nfsiostat`: a mount, then for each operation a line of names and a line of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.mount: str | None = None
        self.way: str | None = None
        self.columns: list[str] = []
        self.seen: Counter[str] = Counter()

    def read(self, row: Row) -> bool:
        if match := re.match(r"\S+:\S* mounted on (?P<mount>/\S*?):?\s*$", row.text):
            self.mount, self.way = match["mount"], None
            self.seen[self.mount] += 1
            return True
        if self.mount is None:
            return False
        if match := re.match(
            r"\s*(?P<way>read|write|open|close|getattr|lookup|access|readdir\w*):\s+(?P<names>ops/s.*)", row.text
        ):
            self.way = match["way"]
            # two blanks part the columns, one stands within a name
            self.columns = [name.strip() for name in re.split(r"\s{2,}", match["names"].strip())]
            return True
        numbers = re.findall(r"(\d+(?:\.\d+)?)(?: \(\d+(?:\.\d+)?%\))?", row.text)
        if (
            self.way
            and len(numbers) == len(self.columns) > 4
            and re.match(r"\s*(?:\d+(?:\.\d+)?(?: \(\d+(?:\.\d+)?%\))?\s*)+$", row.text)
        ):
            cells = dict(zip(self.columns, map(float, numbers), strict=True))
            self.add(
                row,
                "io_sample",
                mount=self.mount,
                op=self.way,
                ops=cells.get("ops/s"),
                rtt_ms=cells.get("avg RTT (ms)"),
                await_ms=cells.get("avg exe (ms)"),
                retrans=int(cells.get("retrans", 0)),
                interval=self.seen[self.mount] > 1 or None,
            )
            self.way = None
            return True
        return False


class MountStats(Tool):
    """/proc/self/mountstats of an NFS mount: for each operation counts since the mount (ops, sends, major timeouts, …)."""

    _MOUNT = re.compile(r"^device (?P<server>\S+) mounted on (?P<mount>/\S*) with fstype nfs4? ")
    _OP = re.compile(r"^\s+(?P<op>READ|WRITE|GETATTR|LOOKUP|OPEN|ACCESS|COMMIT): (?P<numbers>\d+(?: \d+){7,8})\s*$")

    def __init__(self) -> None:
        super().__init__()
        self.mount: str | None = None

    def read(self, row: Row) -> bool:
        if row.text.startswith("device ") and " mounted on " in row.text:
            match = self._MOUNT.match(row.text)
            self.mount = match["mount"] if match else None
            return True
        if self.mount is None or not (match := self._OP.match(row.text)):
            return self.mount is not None and row.text.startswith("\t")
        ops, sends, timeouts = (int(number) for number in match["numbers"].split()[:3])
        op = match["op"].lower()
        for name, value in ((f"nfs_{op}_retransmits", max(0, sends - ops)), (f"nfs_{op}_major_timeouts", timeouts)):
            self.add(row, "counter", name=name, value=value, device=self.mount, snapshot=1)
        return True


READER = Reader(
    "disk_tools",
    lines=(
        Line(
            "disk",
            "% /",
            rf"(?:^|\s)(?:(?P<filesystem>\S+) +(?:(?P<type>[a-z][\w.]*) +)?)?(?P<size>{_AMOUNT}) +(?:{_AMOUNT}) +(?:{_AMOUNT}) +(?P<used_percent>\d+)% (?P<mount>/\S*)\s*$",
        ),
        Line(
            "disk",
            " type ",
            rf"^(?P<filesystem>\S+) on (?P<mount>/\S*) type (?P<type>(?:{_NETWORK})) \((?P<options>[^)]*?(?:\bsize=(?P<size>\d+[kmg%]?)[^)]*)?)\)",
        ),
        Line(
            "disk",
            ("TARGET ", " rw,", " ro,"),
            rf"^[\s│├└─|`-]*(?P<mount>/\S*) +(?P<filesystem>\S+) +(?P<type>{_NETWORK}) +(?P<options>r[wo],\S*?(?:\bsize=(?P<size>\d+[kmg%]?)\S*)?)\s*$",
        ),
    ),
    blocks=(
        Tools(IoStat, "%util", '"disk_device": "', '"nodename": "', "_x86_64_", "_aarch64_"),
        Tools(MountStats, " with fstype nfs"),
        Tools(NfsIoStat, " mounted on /"),
    ),
    title="disks and file systems: how full, how mounted, how slow",
    versions="coreutils, util-linux, sysstat 10 to 12 (`iostat -x`, also JSON), nfs-utils 2, /proc/self/mountstats",
    collect=("df -h", "mount", "iostat -x 5 3", "nfsiostat 5 3"),
)
