"""Runs `whichrank run` as a user does, in a session of its own, and looks at what it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STANDIN = Path(__file__).with_name("standin.py")
PYTHON = sys.executable


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "WHICHRANK_DEBUG": "1", **more}


def command(run: Path, job: Sequence[str], *options: str) -> list[str]:
    return [PYTHON, "-m", "whichrank", "run", "--dir", str(run), *options, "--", *job]


def standin(world: int, seconds: float, *faults: str) -> list[str]:
    return [PYTHON, str(STANDIN), str(world), str(seconds), *faults]


def start(run: Path, job: Sequence[str], *options: str, **more: Any) -> subprocess.Popen[bytes]:
    env = environment(**more.pop("env", {}))
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True, **more}
    return subprocess.Popen(command(run, job, *options), env=env, **more)


def events(run: Path, kind: str | None = None) -> list[dict[str, Any]]:
    path = run / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [event for line in lines if (event := json.loads(line)) and kind in (None, event["kind"])]


def wait_for(run: Path, kind: str, seconds: float = 60) -> dict[str, Any]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := events(run, kind):
            return found[0]
        time.sleep(0.1)
    raise AssertionError(f"no {kind} within {seconds} s: {events(run)}")


def session(pid: int) -> list[int]:
    """The processes of a session that still run."""
    found = []
    for path in Path("/proc").iterdir():
        name = path.name
        if name.isdecimal():
            try:
                cells = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(cells[3]) == pid and cells[0] not in "ZX":
                found.append(int(name))
    return found


def gone(pid: int, seconds: float = 20) -> bool:
    """Is nothing left of this session?"""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not session(pid):
            return True
        time.sleep(0.1)
    return False


def clear(pid: int) -> None:
    for one in session(pid):
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            continue
