"""The run directory: made node-local and private, `run.json`, `events.jsonl`."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import socket
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

from whichrank import __version__
from whichrank.errors import UsageProblem
from whichrank.watch import ids

SCHEMA = 1
FOLDERS = ("ring", "dumps", "stacks", "host", "nodes")
DAYS = 14  # after which a run directory in the default place is taken away by the next run
PREFIX = "whichrank-"


def default(now: float | None = None) -> Path:
    """A new name below the system's folder for temporary files: node-local, one folder a user. Nothing is made."""
    label = os.environ.get("SLURM_JOB_ID") or os.environ.get("PBS_JOBID") or ""
    when = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    name = "-".join(part for part in (when, label, secrets.token_hex(3)) if part)
    return Path(tempfile.gettempdir()) / f"{PREFIX}{os.getuid()}" / name


class RunDir:
    """The directory of one run on this node. What is written into it may fail: then it is lost, and the job goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run: dict[str, Any] = {}

    def make(self, command: tuple[str, ...]) -> None:
        """Private folders, and run.json. Raises OSError or UsageProblem.

        An earlier run that lies there is put aside as PATH.1, PATH.2, …: its evidence is none of this one's.
        """
        parent = self.path.parent
        if not parent.exists():
            with contextlib.suppress(FileExistsError):
                parent.mkdir(0o700, parents=True)
        self._own(parent, named=not parent.name.startswith(PREFIX))
        if (self.path / "run.json").exists():
            self._own(self.path)
            self._put_aside()
        self.path.mkdir(0o700, exist_ok=True)
        self._own(self.path)
        os.chmod(self.path, 0o700)  # noqa: PTH101 - whatever the umask
        for name in FOLDERS:
            (self.path / name).mkdir(0o700, exist_ok=True)
        self.run = {
            "whichrank_run": SCHEMA,
            "id": self.path.name,
            "command": list(command),
            "host": socket.gethostname(),
            "boot_id": _text("/proc/sys/kernel/random/boot_id"),
            "user": os.getuid(),
            "whichrank": __version__,
            "started": clocks(),
            "ids": ids.told(command, os.environ),
        }
        if node := ids.node(os.environ):
            self.run["node"] = node
        self.save()

    def _put_aside(self) -> None:
        if not _over(self.path) or _of_another_node(self.path):
            raise UsageProblem(f"{self.path} is in use by a run that has not ended: choose another with --dir")
        number = next(n for n in itertools.count(1) if not self.path.with_name(f"{self.path.name}.{n}").exists())
        self.path.rename(self.path.with_name(f"{self.path.name}.{number}"))

    @staticmethod
    def _own(path: Path, named: bool = False) -> None:
        """Somebody else's folder of this name, or a link, is not written to."""
        there = path.lstat()
        if not named and (not stat.S_ISDIR(there.st_mode) or there.st_uid not in (os.getuid(), 0)):
            raise UsageProblem(f"{path} is not a folder of yours: choose another with --dir")

    def save(self, **more: Any) -> None:
        self.run.update(more)
        self.write("run.json", (json.dumps(self.run, indent=1) + "\n").encode())

    def write(self, name: str, data: bytes) -> bool:
        """A whole file, or none."""
        part = self.path / f"{name}.part"
        try:
            part.write_bytes(data)
            part.replace(self.path / name)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()
            return False
        return True

    def append(self, name: str, data: bytes) -> None:
        with contextlib.suppress(OSError), (self.path / name).open("ab", buffering=0) as file:
            file.write(data)

    def event(self, kind: str, **values: Any) -> None:
        """One thing that was seen, with both clocks."""
        line = json.dumps({"kind": kind, **clocks(), **values}, separators=(",", ":"), default=str)
        self.append("events.jsonl", line.encode() + b"\n")


def clocks() -> dict[str, int]:
    return {"wall_ns": time.time_ns(), "mono_ns": time.monotonic_ns()}


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def clear(parent: Path, now: float) -> None:
    """Old run directories of the default place; never one whose job may still run."""
    import shutil

    with contextlib.suppress(OSError):
        for old in parent.iterdir():
            if (old / "run.json").is_file() and _over(old) and now - _touched(old) > DAYS * 86400:
                shutil.rmtree(old, ignore_errors=True)


def _over(run: Path) -> bool:
    try:
        told = json.loads((run / "run.json").read_bytes())
        return "ended" in told or not Path(f"/proc/{int(told['launcher'])}").exists()
    except (OSError, ValueError, KeyError, TypeError):
        return True


def _of_another_node(run: Path) -> bool:
    """Did another machine begin it, and not say that it ended? Its processes cannot be asked for from here."""
    try:
        told = json.loads((run / "run.json").read_bytes())
        return "ended" not in told and told.get("host") not in (None, socket.gethostname())
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def _touched(run: Path) -> float:
    return max(path.lstat().st_mtime for path in (run, *run.rglob("*")))
