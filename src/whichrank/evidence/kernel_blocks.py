"""Kernel reports of several lines: a hung task with its call trace, the kernel stack of one task.

>>> from whichrank.evidence.sample import facts
>>> from whichrank.evidence.scan import Reader
>>> hung, = facts(Reader("x", (), (HungTask(),)), '''[  480.1] INFO: task python:932 blocked for more than 120 seconds.
... [  480.1] task:python          state:D stack:    0 pid:  932 tgid:  930 ppid:   900 flags:0x00004002
... [  480.1]  folio_wait_bit_common+0x138/0x310
... [  480.1]  nfs_file_read+0x6d/0xb0 [nfs]''')
>>> hung.who.pid, hung["seconds"], hung["tgid"], hung["frames"]
(932, 120, 930, ['folio_wait_bit_common', 'nfs_file_read (nfs)'])
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from whichrank.evidence import stamps
from whichrank.evidence.scan import Row, State
from whichrank.facts import Fact, Identity

FRAME = re.compile(r"(?:^|[\s\]])(?P<func>[A-Za-z_][\w.]*)\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[(?P<module>\w+)\])?\s*$")
PROC_FRAME = re.compile(
    r"^\s*\[<[0-9a-f]+>\] (?P<func>[A-Za-z_][\w.]*)(?:\+0x[0-9a-f]+/0x[0-9a-f]+)?(?: \[(?P<module>\w+)\])?"
)
_TASK = re.compile(
    r"task:(?P<comm>.+?) +state:(?P<state>\w) +stack: *\d+ +pid: *(?P<pid>\d+)(?: +tgid: *(?P<tgid>\d+))? +ppid: *(?P<ppid>\d+)"
)
_ENDS = re.compile(r"</TASK>|\bCPU: \d+ PID: |invoked oom-killer|\btask:.+ state:")
STRAY = 12  # unrelated lines in a row after which a call trace is taken to be over


def frame(match: re.Match[str]) -> str:
    return f"{match['func']} ({match['module']})" if match["module"] else match["func"]


def _logged(row: Row, reason: str, message: str) -> Fact:
    """An entry of the machine's own event log, whose date and time stand in columns of their own."""
    fact = row.fact("node_event", reason=reason, message=" ".join(message.split()))
    return stamps.dated(fact, re.sub(r" *\| *", " ", row.raw.split("|", 1)[-1]).strip())


def read_power(row: Row, match: re.Match[str]) -> Iterable[Fact]:
    return (_logged(row, "PowerLost", match["message"]),)


def read_sensor(row: Row, match: re.Match[str]) -> Iterable[Fact]:
    return (_logged(row, "SensorCritical", match["message"] + row.raw[match.end() :].replace("|", "")),)


def read_waiter(row: Row, match: re.Match[str]) -> Iterable[Fact]:
    """`mmdiag --waiters` of GPFS lists waits of all lengths: under a minute they are its ordinary work."""
    if int(match["seconds"]) >= 60:
        server: dict[str, Any] = {"server": match["server"]} if match["server"] else {}
        yield row.fact("storage_stall", fs="gpfs", state="stalled", seconds=int(match["seconds"]), **server)


class HungTask:
    """`INFO: task python:932 blocked for more than 120 seconds.` and the call trace below it."""

    anchors = ("blocked for more than", "blocked in I/O wait for more than")
    _first = re.compile(
        r"INFO: task (?P<comm>.+):(?P<pid>\d+) blocked (?:in I/O wait )?for more than (?P<seconds>\d+) seconds"
    )

    def start(self, row: Row) -> State | None:
        match = self._first.search(row.raw)
        return _Hung(row, match["comm"], int(match["pid"]), int(match["seconds"])) if match else None


class _Hung:
    def __init__(self, row: Row, comm: str, pid: int, seconds: int) -> None:
        self.row, self.comm, self.pid, self.seconds = row, comm, pid, seconds
        self.frames: list[str] = []
        self.task: dict[str, int | str] = {}
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        if match := FRAME.search(row.raw):
            self.frames.append(frame(match))
        elif (match := _TASK.search(row.raw)) and int(match["pid"]) == self.pid and not self.frames:
            self.task = {name: int(match[name]) for name in ("tgid", "ppid") if match[name]} | {"state": match["state"]}
        elif _ENDS.search(row.raw) or HungTask._first.search(row.raw):
            return False
        elif (
            "Call Trace:" in row.raw
            or "<TASK>" in row.raw
            or "Tainted:" in row.raw
            or "hung_task_timeout_secs" in row.raw
        ):
            if "Call Trace:" in row.raw and self.frames:
                return False
        else:
            self.stray += 1
            return None if self.stray < STRAY else False
        self.stray = 0
        return True

    def facts(self) -> Iterable[Fact]:
        values: dict[str, Any] = {"comm": self.comm, "seconds": self.seconds, **self.task}
        if self.frames:
            values["frames"] = self.frames
        yield self.row.fact("hung_task", who=Identity(pid=self.pid), **values)


class KernelTask:
    """`task:NAME state:D … pid:N` of SysRq-w or SysRq-t, with the call trace below it: a kernel stack."""

    anchors = ("state:",)

    def start(self, row: Row) -> State | None:
        match = _TASK.search(row.raw)
        return _KernelStack(row, match["comm"], int(match["pid"]), match["state"]) if match else None


class _KernelStack:
    def __init__(self, row: Row, comm: str, pid: int, state: str) -> None:
        self.row, self.comm, self.pid, self.state = row, comm, pid, state
        self.frames: list[str] = []
        self.stray = 0

    def take(self, row: Row) -> bool | None:
        if match := FRAME.search(row.raw):
            self.frames.append(frame(match))
        elif _ENDS.search(row.raw) or ("Call Trace:" in row.raw and self.frames):
            return False
        elif "Call Trace:" not in row.raw and "<TASK>" not in row.raw:
            self.stray += 1
            return None if self.stray < STRAY else False
        self.stray = 0
        return True

    def facts(self) -> Iterable[Fact]:
        if self.frames:
            yield self.row.fact(
                "stack",
                who=Identity(pid=self.pid),
                thread=self.comm,
                main=True,
                frames=self.frames,
                state=self.state,
                tool="kernel",
                command=self.comm,
            )
