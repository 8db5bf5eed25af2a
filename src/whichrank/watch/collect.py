"""What is asked of the node when a rank is stuck, all at once and each with a hard limit.

Files go to the run directory in the forms that the readers in evidence/ know: what py-spy prints, tables of ps, the
kernel's lines with their time, counters taken twice. What a mount does not answer is an event of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from whichrank.watch import limited, processes, storage
from whichrank.watch.environment import DUMPS
from whichrank.watch.rundir import RunDir

STACK = 3.0  # seconds for a stack
TOOL = 4.0
RECORDS = 4.0
WORKERS = 16  # of one rank
MANY = 4  # stacks at once


class Collector:
    """`ranks`: rank -> pid. What it collects is told as events."""

    def __init__(self, run: RunDir, launcher: int) -> None:
        self.run, self.launcher = run, launcher
        self.host = socket.gethostname()
        self.asked = 0
        self.rows: dict[int, str] = {}  # of each process, as it was last seen
        self.booted = time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else 0.0

    def stall(self, ranks: dict[int, int], held: Sequence[int]) -> None:
        """Everything that tells why `held` do not go on. Takes as long as the slowest, about `RECORDS` at most."""
        began = time.monotonic()
        table = processes.everyone()
        workers = {rank: processes.below({pid}, table)[:WORKERS] for rank, pid in ranks.items()}
        order = [*held, *(rank for rank in ranks if rank not in held)]
        stuck = {pid: rank for rank in held if rank in ranks for pid in (ranks[rank], *workers[rank])}
        limited.all_at_once(
            3 * RECORDS,
            lambda: self._records(ranks),
            lambda: self._stacks([pid for rank in order if rank in ranks for pid in (ranks[rank], *workers[rank])]),
            lambda: self._processes(ranks, workers, table),
            self._kernel,
            lambda: storage.ask_mounts(stuck, self.run, self.host),
            lambda: storage.file_waits(stuck, self.run, self.host),
            self.counters,
            self._gpus,
        )
        self.run.event("collected", seconds=round(time.monotonic() - began, 2))

    def counters(self) -> None:
        """Taken at the start and at each stall: only what grew between tells anything."""
        now = time.strftime("%a %b %e %H:%M:%S UTC %Y", time.gmtime())
        for name, command in (("network.txt", ("ip", "-s", "link")), ("tcp.txt", ("nstat", "-az"))):
            if shutil.which(command[0]):
                ran = limited.run(command, TOOL)
                if ran.code == 0:
                    self._add(name, ("date", now), (" ".join(command), ran.text))
        for path in self._memory_files():
            try:
                self._add("memory.txt", ("date", now), (f"cat {path}", path.read_text()))
            except OSError:
                continue
        for name in ("memory", "io"):
            try:
                self._add("pressure.txt", (f"cat /proc/pressure/{name}", Path(f"/proc/pressure/{name}").read_text()))
            except OSError:
                continue

    def _memory_files(self) -> list[Path]:
        """memory.events of the job's cgroup: version 2, or memory.oom_control of version 1."""
        found = []
        for line in processes.read(self.launcher or os.getpid(), "cgroup").splitlines():
            number, names, path = (line.split(":", 2) + ["", ""])[:3]
            if number == "0" and not names:
                found.append(Path(f"/sys/fs/cgroup{path}/memory.events"))
            elif "memory" in names.split(","):
                found.append(Path(f"/sys/fs/cgroup/memory{path}/memory.oom_control"))
        return [path for path in found if path.is_file()]

    def _add(self, name: str, *parts: tuple[str, str]) -> None:
        text = "".join(f"{self.host}$ {command}\n{out.rstrip()}\n" for command, out in parts)
        self.run.append(f"host/{name}", text.encode())

    # What each rank does

    def _records(self, ranks: dict[int, int]) -> None:
        """Asks all recorders of the node for their Flight Recorder records, and waits for them."""
        self.asked += 1
        asked_at = time.time()
        if not self.run.write("ask", str(self.asked).encode()):
            return
        wanted = {
            rank: self.run.path / "dumps" / f"{DUMPS}{rank}"
            for rank, pid in ranks.items()
            if (there := processes.process(pid)) is not None and there.state not in "TtZX"  # those cannot answer
        }
        until = time.monotonic() + RECORDS
        while time.monotonic() < until and wanted:
            for rank, path in list(wanted.items()):
                try:
                    if not processes.alive(ranks[rank]) or path.stat().st_mtime >= asked_at - 0.05:
                        del wanted[rank]
                except OSError:
                    continue
            time.sleep(0.05)
        self.run.event("records", ask=self.asked, missing=sorted(wanted), asked=len(ranks))

    def _stacks(self, pids: list[int]) -> None:
        """py-spy, which a stopped or an uninterruptible process cannot hold up: --nonblocking, under a limit."""
        pids = [pid for pid in pids if processes.alive(pid)]
        if not pids:
            return  # what was taken of them while they lived stays
        tool = pyspy(pids[:4])
        if tool is None:
            self.run.event("stacks", tool=None, why="py-spy is not installed: the ranks' own samples have to do")
            return
        lock = threading.Lock()
        left = list(pids)
        failed: list[str] = []

        def work() -> None:
            while True:
                with lock:
                    if not left or len(failed) > 3:
                        return
                    pid = left.pop(0)
                ran = limited.run((tool, "dump", "--nonblocking", "--pid", str(pid)), STACK, quiet=False)
                if ran.code == 0 and ran.out.startswith(b"Process"):
                    self.run.write(f"stacks/pid-{pid}.txt", ran.out)
                elif processes.alive(pid):
                    said = next(iter(ran.text.strip().splitlines()), "")[:160]
                    failed.append(f"pid {pid}: {said or ran.error or 'no answer in time'}")

        limited.all_at_once(3 * RECORDS, *[work] * MANY)
        self.run.event("stacks", tool=tool, failed=failed, of=len(pids))

    def _processes(
        self, ranks: dict[int, int], workers: dict[int, list[int]], table: dict[int, processes.Process]
    ) -> None:
        """A table as ps prints it, and the kernel's side of each rank: state, wait channel, stack."""
        pids = [pid for rank in ranks for pid in (ranks[rank], *workers[rank])]
        head = (
            f"{self.host}$ ps -o pid,ppid,stat,wchan:24,pcpu,rss,cmd",
            "    PID    PPID STAT WCHAN                    %CPU     RSS CMD",
        )
        kernel: list[str] = []
        for pid in pids:
            if (one := processes.process(pid)) is None:
                continue
            before = table.get(pid)
            busy = (
                f"{100 * max(0.0, one.cpu - before.cpu) / 0.5:.1f}"
                if before is not None and before is not one
                else "0.0"
            )
            channel = processes.read(pid, "wchan") or "-"
            self.rows[pid] = (
                f"{pid:>7} {one.ppid:>7} {one.state:<4} {channel if channel != '0' else '-':<24} {busy:>4} {one.rss_kb:>7} {processes.command(pid)[:400] or '[' + one.name + ']'}"
            )
            if stack := processes.read(pid, "stack"):
                kernel += [f"{self.host}$ cat /proc/{pid}/stack", stack.rstrip()]
        # Also those that have ended since: their stacks are here, and only this says whose they were.
        self.run.write("host/ps.txt", ("\n".join((*head, *self.rows.values())) + "\n").encode())
        if kernel:
            self.run.write("host/kernel-stacks.txt", ("\n".join(kernel) + "\n").encode())

    # The machine

    def _kernel(self) -> None:
        """The kernel's lines since the job began, with their time."""
        ran = limited.run(("dmesg",), TOOL)
        if ran.code != 0:
            self.run.event(
                "kernel", why="the kernel's log may not be read here" if ran.code else ran.error or "no answer"
            )
            return
        offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        lines = list(kernel_lines(ran.text.splitlines()[-20_000:], self.booted, offset, self.host))
        if lines:
            self.run.write("host/kernel.log", "".join(line + "\n" for line in lines).encode())

    def _gpus(self) -> None:
        if not shutil.which("nvidia-smi"):
            return
        query = "index,utilization.gpu,power.draw,memory.used,temperature.gpu,clocks_throttle_reasons.active,pci.bus_id"
        command = ("nvidia-smi", f"--query-gpu={query}", "--format=csv")
        ran = limited.run(command, TOOL)
        if ran.code == 0:
            self._add("nvidia-smi.txt", (" ".join(command), ran.text))
        else:
            self.run.event("nvidia_smi", why=ran.text.strip()[-300:] or "no answer in time")


def pyspy(pids: Sequence[int]) -> str | None:
    """py-spy in the path, beside our own interpreter or beside the job's."""
    if found := shutil.which("py-spy"):
        return found
    beside = [Path(sys.executable).parent]
    for pid in pids:
        first = processes.read(pid, "cmdline", 4096).split("\0")[0]
        beside += [Path(first).parent] if first.startswith("/") else []
        virtual = re.search(r"(?:^|\0)VIRTUAL_ENV=([^\0]+)", processes.read(pid, "environ", 1 << 18))
        beside += [Path(virtual[1]) / "bin"] if virtual else []
    return next((str(folder / "py-spy") for folder in beside if os.access(folder / "py-spy", os.X_OK)), None)


def kernel_lines(lines: Iterable[str], since: float, offset: float, host: str) -> Iterable[str]:
    """dmesg's lines from `since` (seconds after boot) on, as `journalctl -k -o short-iso-precise` would print them.

    >>> list(kernel_lines(["[   10.5] old", "[  625.867793] Out of memory"], 600.0, 1764480000.0, "n1"))
    ['2025-11-30T05:30:25.867793+0000 n1 kernel: Out of memory']
    """
    for line in lines:
        match = re.match(r"\[ *(\d+\.\d+)\](?:\[[^\]]*\])? ?(.*)", line)
        if match and float(match[1]) >= since:
            at = offset + float(match[1])
            when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
            yield f"{when}.{round(at % 1 * 1e6) % 1_000_000:06d}+0000 {host} kernel: {match[2]}"
