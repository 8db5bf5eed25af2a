"""Do the stuck processes wait for storage? Their mounts are asked, and what they read and wrote in a while is counted."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from whichrank.evidence.stack_class import classify
from whichrank.watch import limited, processes
from whichrank.watch.rundir import RunDir

ANSWER = 2.0  # seconds for a mount to say how full it is
APART = 1.5  # seconds between two looks at a process
_NO_DISK = {
    "proc", "sysfs", "devpts", "devtmpfs", "cgroup", "cgroup2", "mqueue", "debugfs", "tracefs", "securityfs", "pstore",
    "bpf",
}  # fmt: skip
_ASK = "import os, sys; os.statvfs(sys.argv[1]); os.stat(sys.argv[1])"
# Waits of the kernel for a server in user space or elsewhere that are no uninterruptible ones (fs/fuse/dev.c, net/sunrpc).
_SERVER = {"request_wait_answer", "rpc_wait_bit_killable", "ptlrpc_set_wait"}


def ask_mounts(rank_of: Mapping[int, int], run: RunDir, host: str) -> None:
    """Every mount that these processes have open, by a process that may hang. rank_of: pid -> rank."""
    asked: dict[str, tuple[str, str, int]] = {}
    for pid in rank_of:
        table = mounts(processes.read(pid, "mountinfo", 1 << 20))
        for path in open_paths(pid):
            where = mount_of(path, table)
            if where is not None and table[where][0] not in _NO_DISK:
                asked.setdefault(where, (*table[where], pid))

    def ask(where: str, kind: str, source: str, pid: int) -> None:
        ran = limited.run((sys.executable, "-S", "-c", _ASK, where), ANSWER)
        if ran.code is None and not ran.error:
            said = {"mount": where, "type": kind, "source": source, "seconds": ANSWER}
            run.event("mount_silent", **said, pid=pid, rank=rank_of[pid], host=host)

    limited.all_at_once(3 * ANSWER, *[partial(ask, where, *said) for where, said in asked.items()])


def file_waits(rank_of: Mapping[int, int], run: RunDir, host: str) -> None:
    """Processes that the kernel holds in a read or write at both of two looks, and how much went through meanwhile."""
    before = {pid: (where, count) for pid in rank_of if (where := file_wait(pid)) and (count := moved(pid)) is not None}
    if not before:
        return
    time.sleep(APART)
    for pid, (_, count) in before.items():
        where, later = file_wait(pid), moved(pid)
        if where and later is not None:
            there = mount_of_open_file(pid)
            run.event(
                "file_wait",
                where=where,
                bytes=later - count,
                seconds=APART,
                pid=pid,
                rank=rank_of[pid],
                host=host,
                **there,
            )


def file_wait(pid: int) -> str | None:
    """The kernel's function in which a process waits for a file, by its stack, else by its wait channel or state D."""
    stack = [match[1] for match in re.finditer(r"^\[<\w+>\] (\w+)", processes.read(pid, "stack"), re.M)]
    if stack:
        return stack[0] if classify(stack) == "file_io" else None
    channel = processes.read(pid, "wchan")
    if channel in _SERVER or (channel and classify([channel]) == "file_io"):
        return channel
    there = processes.process(pid)
    return "state D" if there is not None and there.state == "D" else None


def moved(pid: int) -> int | None:
    """Bytes that a process has read and written so far: proc(5), /proc/PID/io."""
    counts = dict(re.findall(r"^(\w+): (\d+)$", processes.read(pid, "io"), re.M))
    names = ("rchar", "wchar", "read_bytes", "write_bytes")
    return sum(int(counts[name]) for name in names) if set(names) <= set(counts) else None


def mount_of_open_file(pid: int) -> dict[str, str]:
    """The network or user-space file system that a process has a file open on, if there is just one."""
    table = mounts(processes.read(pid, "mountinfo", 1 << 20))
    found = {where for path in open_paths(pid) if (where := mount_of(path, table)) and _remote(table[where][0])}
    if len(found) != 1:
        return {}
    where = found.pop()
    return {"mount": where, "type": table[where][0], "source": table[where][1]}


def _remote(kind: str) -> bool:
    return kind.startswith(("nfs", "fuse", "cifs", "smb", "ceph", "9p", "virtiofs")) or kind in (
        "lustre", "beegfs", "gpfs", "wekafs", "afs",
    )  # fmt: skip


def mount_of(path: str, table: Mapping[str, tuple[str, str]]) -> str | None:
    fits = (point for point in table if path == point or path.startswith(point.rstrip("/") + "/"))
    return max(fits, key=len, default=None)


def mounts(text: str) -> dict[str, tuple[str, str]]:
    """Of proc(5), /proc/PID/mountinfo: where -> (type, source).

    >>> mounts("36 35 98:0 / /mnt/a\\\\040b rw,noatime master:1 - nfs4 srv:/data rw")
    {'/mnt/a b': ('nfs4', 'srv:/data')}
    """
    found = {}
    for line in text.splitlines():
        cells = line.split()
        if "-" in cells and len(cells) > cells.index("-") + 2:
            kind, source = cells[cells.index("-") + 1 : cells.index("-") + 3]
            found[re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), cells[4])] = (kind, source)
    return found


def open_paths(pid: int) -> list[str]:
    """What a process has open, and where it stands. Reading the links asks no file system."""
    base = Path(f"/proc/{pid}")
    links = [base / "cwd"]
    try:
        links += list((base / "fd").iterdir())[:512]
    except OSError:
        pass
    found = []
    for link in links:
        try:
            path = str(link.readlink())
        except OSError:
            continue
        if path.startswith("/") and not path.startswith(("/dev/", "/proc/", "/memfd:")):
            found.append(path.removesuffix(" (deleted)"))
    return found
