r"""The text report of NCCL RAS: a table of groups of communicators, then who stands apart in which of them.

Format: NCCL 2.24 to 2.30, src/ras/client_support.cc. 2.24 and 2.25 count all operations together ("collective"), newer
ones each function by itself, and name the missing ranks one a line. Only outliers are listed, ahead or behind: at most a
quarter of the ranks and no more than ten.

>>> from whichrank.evidence.nccl_ras import READER
>>> from whichrank.evidence.sample import facts
>>> *_, count = facts(READER, '''#0-0 (27a079b828ff1a75) MISMATCH
...   Communicator ranks have different AllReduce operation counts
...   26 ranks have launched up to operation 6650
...   Rank 3 has launched up to operation 6649 -- GPU 3 managed by process 483072 on node 172.16.64.210''')
>>> count.kind, count["rank_in_comm"], count["counts"], count["sets"], count.who.host, count.who.pid
('ras_counts', 3, {'AllReduce': 6649}, {6650: 26, 6649: 1}, '172.16.64.210', 483072)
"""

from __future__ import annotations

import re
from typing import Any

from whichrank.evidence.scan import Row
from whichrank.evidence.tool import Tool
from whichrank.facts import Identity


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
