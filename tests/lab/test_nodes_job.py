"""`whichrank run` on two nodes of one real job: torchrun on gloo, over loopback, its own store between them.

Needs torch; WHICHRANK_TORCH names another interpreter that has it.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from running import clear, events, gone, session, start, wait_for

PYTHON = os.environ.get("WHICHRANK_TORCH") or sys.executable
TORCH = importlib.util.find_spec("torch") is not None or "WHICHRANK_TORCH" in os.environ
pytestmark = pytest.mark.skipif(not (TORCH and sys.platform.startswith("linux")), reason="needs torch")
JOB = Path(__file__).with_name("watched_job.py")
NAMES = ("n1", "n2")


@dataclass
class Pair:
    """`run`: each node's run directory."""

    base: Path
    processes: list[subprocess.Popen[bytes]]

    def run(self, node: int) -> Path:
        return self.base / NAMES[node]

    def launcher(self, node: int) -> int:
        """The process of torchrun."""
        front = self.processes[node].pid
        words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in session(front)}
        return next(pid for pid, said in words.items() if b"torch.distributed.run" in said and b"whichrank" not in said)

    def end(self, number: int = signal.SIGTERM) -> list[list[str]]:
        """Ends all: of each node the lines that it said and that are no details."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)
        said = [process.communicate(timeout=120)[1].decode() for process in self.processes]
        return [
            [
                line
                for line in text.splitlines()
                if line.startswith("whichrank: ") and not line.startswith("whichrank:   ")
            ]
            for text in said
        ]


@contextmanager
def pair(base: Path, *words: str, each: int = 2, pace: float = 0.1) -> Iterator[Pair]:
    os.mkfifo(base / "pipe")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    processes = []
    for node, name in enumerate(NAMES):
        command = [
            *(PYTHON, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={node}", f"--nproc-per-node={each}"),
            *("--master-addr=127.0.0.1", f"--master-port={port}", str(JOB), "100000", *words),
        ]
        env = {
            **{"PIPE": str(base / "pipe"), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PACE": str(pace)},
            "SLURMD_NODENAME": name,
        }
        out = (base / f"{name}.out").open("wb")
        processes.append(start(base / name, command, env=env, stdout=out))
        out.close()
    try:
        yield Pair(base, processes)
    finally:
        for process in processes:
            clear(process.pid)
    assert all(gone(process.pid) for process in processes)


def test_a_stuck_rank_of_the_other_node_is_named_once_and_taken_back(tmp_path: Path) -> None:
    with pair(tmp_path, "2:60:worker") as job:
        verdict = wait_for(job.run(0), "verdict", 180)
        assert (verdict["cause"], verdict["ranks"], verdict["rank_grade"]) == ("slow_data", [2], "proven")
        stall = events(job.run(0), "stall")[-1]
        # On a busy machine one that waits in the backward pass may be counted with it; the verdict names one.
        assert 2 in stall["ranks"] and "n2" in stall["hosts"] and {*stall["ranks"], *stall["waiting"]} == {0, 1, 2, 3}
        noticed = wait_for(job.run(1), "stall")
        assert noticed["seconds"] < 15 and verdict["wall_ns"] - noticed["wall_ns"] < 15e9
        assert wait_for(job.run(1), "told_by", 20)["host"] == "n1"
        (tmp_path / "pipe").write_text("x")
        wait_for(job.run(0), "passed", 30)
        time.sleep(3)
        first, second = job.end()
    assert "waiting for" in first[0] and "went on after" in first[1]
    assert len(first) == 2 and second == []


@pytest.mark.parametrize(("what", "cause"), [("raise", "exception"), ("kill", "killed")])
def test_the_only_rank_of_the_other_node_dies(tmp_path: Path, what: str, cause: str) -> None:
    """The nodes' launchers end, and the store with the first of them: what was told until then has to do."""
    with pair(tmp_path, f"1:60:{what}", each=1) as job:
        for process in job.processes:
            process.wait(180)
        first, second = job.end()
        verdict = events(job.run(0), "verdict")[-1]
    assert (verdict["cause"], verdict["ranks"], verdict["rank_grade"]) == (cause, [1], "proven")
    assert (len(first), second) == (1, [])


def test_a_rank_of_the_first_node_dies(tmp_path: Path) -> None:
    with pair(tmp_path, "0:60:kill") as job:
        for process in job.processes:
            process.wait(180)
        first, second = job.end()
        verdict = events(job.run(0), "verdict")[-1]
    assert (verdict["cause"], verdict["ranks"]) == ("killed", [0])
    assert (len(first), second) == (1, [])


def test_where_the_speaker_is_gone_the_other_node_speaks(tmp_path: Path) -> None:
    """Of the first node everything that watches is killed; its ranks and the store go on."""
    with pair(tmp_path, "3:150:think") as job:
        for node in (0, 1):
            wait_for(job.run(node), "nodes", 120)
        launcher = job.launcher(0)
        watching = [
            pid for pid in session(job.processes[0].pid) if b"whichrank" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        watching = [pid for pid in watching if pid not in (launcher, job.processes[0].pid)]
        for pid in watching:
            os.kill(pid, signal.SIGKILL)
        verdict = wait_for(job.run(1), "verdict", 180)
        assert verdict["ranks"] == [3] and events(job.run(1), "stall")[-1]["nodes"] == 2
        _, second = job.end()
    assert "rank 3 (n2) has kept rank 2 waiting" in second[0]


def test_where_the_store_gives_no_answer_each_node_answers_for_itself(tmp_path: Path) -> None:
    with pair(tmp_path, "3:150:think") as job:
        for node in (0, 1):
            wait_for(job.run(node), "nodes", 120)
        launcher = job.launcher(0)
        os.kill(launcher, signal.SIGSTOP)
        try:
            verdict = wait_for(job.run(1), "verdict", 180)
            assert verdict["ranks"] == [3]
            assert wait_for(job.run(0), "verdict", 60)
            assert events(job.run(1), "nobody_heard")
        finally:
            os.kill(launcher, signal.SIGCONT)
        first, second = job.end()
    assert "ranks 0, 1 have all been waiting" in first[0]
    assert "rank 3 has kept rank 2 waiting" in second[0]


def test_launchers_that_are_killed_leave_no_rank_behind(tmp_path: Path) -> None:
    with pair(tmp_path, each=1) as job:
        for node in (0, 1):
            wait_for(job.run(node), "nodes", 120)
        ranks = [event["pid"] for node in (0, 1) for event in events(job.run(node), "rank")]
        for node in (0, 1):
            os.kill(job.launcher(node), signal.SIGKILL)
        for process in job.processes:
            assert process.wait(60) == 137
        until = time.monotonic() + 60
        while any(Path(f"/proc/{pid}").exists() for pid in ranks) and time.monotonic() < until:
            time.sleep(0.2)
        assert not [pid for pid in ranks if Path(f"/proc/{pid}").exists()]
