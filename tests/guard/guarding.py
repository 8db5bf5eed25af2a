"""Starts the jobs of these tests: under torchrun, or each rank as a process of its own, with nobody to clear up."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PYTHON = os.environ.get("WHICHRANK_TORCH_PYTHON") or (sys.executable if importlib.util.find_spec("torch") else "")
SRC = Path(__file__).parents[2] / "src"
PATIENCE = 100.0  # seconds


@dataclass
class Ended:
    code: int | None  # None: still there, and killed
    out: str
    seconds: float

    def said(self, what: str) -> dict[int, Any]:
        """The last such line of each rank."""
        return {line["rank"]: line for line in self.lines() if line["what"] == what}

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line[line.index("{") :]) for line in self.out.splitlines() if '{"rank": ' in line]

    def all_said(self, what: str, rank: int) -> list[dict[str, Any]]:
        return [line for line in self.lines() if (line["what"], line["rank"]) == (what, rank)]


def environment() -> dict[str, str]:
    own = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "WHICHRANK_RUN", "MASTER_ADDR", "MASTER_PORT", "PYTHONPATH")
    plain = {name: value for name, value in os.environ.items() if name not in own}
    more = {"PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**plain, **more}


def torchrun(
    job: Path, *words: str, world: int = 3, python: str = "", wait: float = PATIENCE, until: str = ""
) -> Ended:
    """until: once this stands in the output, `wait` seconds are left."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    return _run([[python or PYTHON, *launcher, str(job), *words]], [{}], wait, until)


def alone(job: Path, *words: str, world: int = 3, python: str = "", wait: float = PATIENCE) -> Ended:
    """As srun does without --kill-on-bad-exit. Rank 0 keeps the store."""
    port = str(_free_port())
    common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    told = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]
    return _run([[python or PYTHON, str(job), *words]] * world, told, wait, "")


def _free_port() -> int:
    """Below those that the system gives to connections: none of them takes it in the meantime."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as free:
            try:
                free.bind(("", port))
            except OSError:
                continue
        return port


def _run(commands: list[list[str]], told: list[dict[str, str]], wait: float, until: str) -> Ended:
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        begun = time.monotonic()
        running = [
            subprocess.Popen(
                command, env={**environment(), **more}, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
            for command, more in zip(commands, told, strict=True)
        ]
        pids = {one.pid for one in running}
        end = begun + (PATIENCE if until else wait)
        try:
            while any(one.poll() is None for one in running) and time.monotonic() < end:
                time.sleep(0.1)
                if until and until in _text(out):
                    until, end = "", time.monotonic() + wait
            took = time.monotonic() - begun
            codes = [one.poll() for one in running]
        finally:
            for pid in pids | _children(pids):
                _kill(pid)
            for one in running:
                one.wait()
        code = None if None in codes else max((code or 0 for code in codes), key=abs)
        return Ended(code, _text(out), took)


def _text(out: Any) -> str:
    return os.pread(out.fileno(), 1 << 24, 0).decode("utf-8", "replace")


def _children(pids: set[int]) -> set[int]:
    """torchrun gives each rank a session of its own."""
    found: set[int] = set()
    for pid in pids:
        try:
            inner = {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
        except OSError:
            continue
        found |= inner | _children(inner)
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
