r"""Disks and file systems as tools show them: how full, how mounted, how slow.

Reads `df` (any unit, with or without types), `mount` for network file systems and tmpfs, `iostat -x` (columns by the
header's names, sysstat 11 to 12), `nfsiostat`.

>>> from whichrank.evidence.sample import facts
>>> disk, = facts(READER, "$ df -h /dev/shm\nFilesystem      Size  Used Avail Use% Mounted on\nshm              64M   63M  1.0M  99% /dev/shm")
>>> disk.kind, disk["mount"], disk["size"], disk["used_percent"]
('disk', '/dev/shm', '64M', 99)
"""

from __future__ import annotations

import re
from collections import Counter

from whichrank.evidence.scan import Line, Reader, Row
from whichrank.evidence.tool import Tool, Tools

_AMOUNT = r"\d+(?:\.\d+)?[KMGTPE]?i?B?|-"


class IoStat(Tool):
    """`iostat -x`: a block of devices each interval; a device that comes again is the next snapshot."""

    _TELLING = ("%util", "await", "r_await", "w_await", "aqu-sz", "avgqu-sz")

    def __init__(self) -> None:
        super().__init__()
        self.columns: list[str] = []
        self.seen: Counter[str] = Counter()

    def read(self, row: Row) -> bool:
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
        self.seen[words[0]] += 1
        for name, word in zip(self.columns, words, strict=True):
            if name in self._TELLING:
                self.add(
                    row,
                    "counter",
                    name=name,
                    value=float(word.replace(",", ".")),
                    device=words[0],
                    snapshot=self.seen[words[0]],
                )
        return True


class NfsIoStat(Tool):
    """`nfsiostat`: a mount, then for reads and writes a line of names and a line of numbers."""

    _NUMBERS = re.compile(
        r"^\s*(?P<ops>[\d.]+)\s+(?P<kbs>[\d.]+)\s+(?P<kbop>[\d.]+)\s+(?P<retrans>\d+) \([\d.]+%\)\s+(?P<rtt>[\d.]+)\s+(?P<exe>[\d.]+)"
    )

    def __init__(self) -> None:
        super().__init__()
        self.mount: str | None = None
        self.way: str | None = None
        self.seen: Counter[str] = Counter()

    def read(self, row: Row) -> bool:
        if match := re.match(r"\S+:\S* mounted on (?P<mount>/\S*?):?\s*$", row.text):
            self.mount, self.way = match["mount"], None
            self.seen[self.mount] += 1
            return True
        if self.mount is None:
            return False
        if match := re.match(r"\s*(?P<way>read|write):\s+ops/s", row.text):
            self.way = match["way"]
            return True
        if self.way and (match := self._NUMBERS.match(row.text)):
            for name, value in (
                ("retrans", int(match["retrans"])),
                ("rtt_ms", float(match["rtt"])),
                ("exe_ms", float(match["exe"])),
            ):
                self.add(
                    row,
                    "counter",
                    name=f"nfs_{self.way}_{name}",
                    value=value,
                    device=self.mount,
                    snapshot=self.seen[self.mount],
                )
            self.way = None
            return True
        return False


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
            r"^(?P<filesystem>\S+) on (?P<mount>/\S*) type (?P<type>(?:nfs\d?|lustre|beegfs|gpfs|ceph|cifs|fuse[\w.-]*|wekafs|tmpfs)) \((?P<options>[^)]*?(?:\bsize=(?P<size>\d+[kmg%]?)[^)]*)?)\)",
        ),
    ),
    blocks=(Tools(IoStat, "%util"), Tools(NfsIoStat, " mounted on /")),
    title="disks and file systems: how full, how mounted, how slow",
    versions="coreutils, util-linux, sysstat 11 and 12, nfs-utils 2",
    collect=("df -h", "mount", "iostat -x 5 3", "nfsiostat 5 3"),
)
