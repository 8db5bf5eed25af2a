"""Processes as /proc shows them. Nothing here waits for a process; what cannot be read is left out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


@dataclass(frozen=True, slots=True)
class Process:
    """`started`: clock ticks since boot, which tells a pid from its reuse. cpu and age in seconds."""

    pid: int
    ppid: int
    state: str
    started: int
    cpu: float
    rss_kb: int
    name: str


def process(pid: int) -> Process | None:
    """proc(5), /proc/PID/stat."""
    try:
        text = (PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    cells = rest.split()
    try:
        return Process(
            pid,
            int(cells[1]),
            cells[0],
            int(cells[19]),
            (int(cells[11]) + int(cells[12])) / TICKS,
            int(cells[21]) * PAGE_KB,
            name,
        )
    except (IndexError, ValueError):
        return None


def everyone() -> dict[int, Process]:
    return {found.pid: found for path in PROC.iterdir() if path.name.isdecimal() and (found := process(int(path.name)))}


def below(roots: set[int], table: dict[int, Process]) -> list[int]:
    """The processes started by `roots`, and theirs; not the roots."""
    children: dict[int, list[int]] = {}
    for one in table.values():
        children.setdefault(one.ppid, []).append(one.pid)
    found: list[int] = []
    waiting = sorted(roots)
    while waiting:
        for child in sorted(children.get(waiting.pop(), ())):
            if child not in roots and child not in found:
                found.append(child)
                waiting.append(child)
    return found


def alive(pid: int, started: int | None = None) -> bool:
    """Is it there, and no zombie? With `started`: the same one."""
    found = process(pid)
    return found is not None and found.state not in "ZX" and (started is None or found.started == started)


def killed_by(pid: int, started: int | None) -> int | None:
    """The signal that ended it, as long as its parent has not asked for it: proc(5), the last number of /proc/PID/stat,
    which the kernel shows to whom it lets trace the process."""
    cells = read(pid, "stat").rpartition(")")[2].split()
    if len(cells) < 50 or cells[0] != "Z" or started is None or cells[19] != str(started):
        return None
    return int(cells[49]) & 0x7F or None


def read(pid: int, name: str, most: int = 65536) -> str:
    """A file of /proc/PID; nothing where it may not be read."""
    try:
        with (PROC / str(pid) / name).open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def command(pid: int) -> str:
    return read(pid, "cmdline", 4096).replace("\0", " ").strip()
