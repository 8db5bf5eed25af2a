"""What a command costs: time, and the memory of all its processes together."""

from __future__ import annotations

import math
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from speed import ENVIRONMENT

WHICHRANK = "from whichrank.__main__ import main; main()"  # for `python -c`


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one command, median over its runs; memory is the greatest of them. Seconds, bytes."""

    wall: float
    cpu: float
    memory: int
    status: int
    out: str

    def cells(self) -> str:
        return f"{self.wall:.2f} s | {self.cpu:.2f} s | {self.memory / 1e6:.0f} MB"


def measured(
    command: Sequence[str | os.PathLike[str]],
    runs: int,
    limit: float = math.inf,
    environment: Mapping[str, str] = ENVIRONMENT,
) -> Cost:
    """limit: bytes; a command that wants more is stopped, so that it takes no machine down with it."""
    walls, cpus, most = [], [], 0
    for _ in range(runs):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            begin = time.perf_counter()
            process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, start_new_session=True)
            over, seen = threading.Event(), [0]
            watcher = threading.Thread(target=_watch, args=(process.pid, over, seen, limit))
            watcher.start()
            _, status, usage = os.wait4(process.pid, 0)
            walls.append(time.perf_counter() - begin)
            process.returncode = os.waitstatus_to_exitcode(status)
            over.set()
            watcher.join()
            cpus.append(usage.ru_utime + usage.ru_stime)
            most = max(most, seen[0])
            out.seek(0)
            err.seek(0)
            text = out.read().decode(errors="replace") or err.read().decode(errors="replace")
    return Cost(statistics.median(walls), statistics.median(cpus), most, process.returncode, text)


def _watch(pid: int, over: threading.Event, seen: list[int], limit: float) -> None:
    while not over.wait(0.05):
        seen[0] = max(seen[0], tree_memory(pid))
        if seen[0] > limit:
            os.killpg(pid, signal.SIGKILL)
            return


def tree_memory(root: int) -> int:
    """Proportional set size of a process and all below it, in bytes; 0 where the system does not tell."""
    total, todo = 0, [root]
    while todo:
        pid = todo.pop()
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) * 1024
            for task in Path(f"/proc/{pid}/task").iterdir():
                todo += map(int, (task / "children").read_text().split())
        except (OSError, ValueError):
            continue
    return total
