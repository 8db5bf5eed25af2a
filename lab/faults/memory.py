"""A memory cgroup for one job, as a container or a Slurm job has one. Needs root; either version of cgroups."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
ENTERED = 'echo $$ > "$0" && exec "$@"'
_numbers = itertools.count()  # incidents of one process may run at the same time


def limits() -> tuple[Path, str] | None:
    """Where groups are made, and the name of the file with the limit; None where the machine lets nobody make one."""
    if (ROOT / "memory" / "memory.limit_in_bytes").exists():
        return ROOT / "memory", "memory.limit_in_bytes"
    if "memory" in _words(ROOT / "cgroup.subtree_control"):
        return ROOT, "memory.max"
    return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


@contextmanager
def limited(size: int) -> Iterator[list[str]]:
    """What comes before a command for it, and what it starts, to have no more than so many bytes together."""
    found = limits()
    if found is None:
        raise OSError("no memory cgroup to be had")
    root, limit = found
    group = root / f"job-{os.getpid()}-{next(_numbers)}"
    group.mkdir()
    try:
        (group / limit).write_text(str(size))
        with suppress(OSError):  # without swap accounting the file is missing
            (group / "memory.swap.max").write_text("0")
        yield ["sh", "-c", ENTERED, str(group / "cgroup.procs")]
    finally:
        for _ in range(50):  # its processes have ended, but may not be gone yet
            with suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.1)
