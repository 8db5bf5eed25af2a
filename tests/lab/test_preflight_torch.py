"""Preflight under torchrun, and its sweep of collectives: needs an interpreter with torch and what whichrank needs.

WHICHRANK_TORCH names another one than that which runs the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lab import preflights, switched

PYTHON = os.environ.get("WHICHRANK_TORCH") or sys.executable


@cache
def missing() -> str | None:
    done = subprocess.run([PYTHON, "-c", "import torch, click, msgspec, rich"], capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else None


@pytest.fixture(autouse=True)
def needs_torch() -> None:
    if why := missing():
        pytest.skip(f"{PYTHON}: {why}")


def torchrun(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "whichrank.preflight", *words],
        env={**os.environ, "PYTHONPATH": str(preflights.SOURCES), **env}, capture_output=True, text=True, timeout=150,
    )  # fmt: skip


def answered(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


def test_under_torchrun(tmp_path: Path) -> None:
    """The agent holds MASTER_PORT: its own store is used."""
    done = torchrun("--json", "--path", str(tmp_path))
    assert done.returncode == 0, done.stderr
    answer = answered(done)
    assert (answer["answer"], answer["launcher"]) == ("go", "torchrun")
    assert [row["bytes"] for row in answer["collective"]] == [1 << 10, 1 << 20, 16 << 20]
    assert all(row["us"] > 0 for row in answer["collective"])


def test_a_no_go_under_torchrun(tmp_path: Path) -> None:
    done = torchrun("--json", "--path", str(tmp_path / "nowhere"), "--skip", "collective")
    assert done.returncode == 1
    assert [one["id"] for one in answered(done)["findings"]] == ["storage_error"]


def test_the_answer_comes_before_torchrun_ends_the_ranks() -> None:
    """Two agents: when one rank ends with an error its agent ends rank 0."""
    if why := switched.usable() or preflights.possible(BLOCKED):
        pytest.skip(why)
    with preflights.prepared(2, 2) as made, BLOCKED.plant(made, 1):
        words = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2", "--master-addr", "node-a"]
        env = {**os.environ, "PYTHONPATH": str(preflights.SOURCES), "OMP_NUM_THREADS": "1"}
        agents = [
            subprocess.Popen(
                made.nodes.inside(node, PYTHON, *words, "--node-rank", str(node), "-m", "whichrank.preflight", "--json"),
                env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )
            for node in range(2)
        ]  # fmt: skip
        said = [agent.communicate(timeout=120)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [1, 1]
    (found,) = json.loads(said[0])["findings"]
    assert (found["id"], found["nodes"]) == ("blocked_in", ["node-b"])


def test_collectives_that_are_too_slow() -> None:
    done = torchrun("--json", "--busbw", "1e6")
    assert done.returncode == 1
    (found,) = answered(done)["findings"]
    assert found["id"] == "collective_slow" and "all on one node" in found["says"]


def test_halving_over_namespaces() -> None:
    """The links are not looked at: the sweep is slow, and halving finds out why."""
    if why := switched.usable() or preflights.possible(FAULT):
        pytest.skip(why)
    with preflights.prepared(4, 1) as made, FAULT.plant(made, 2):
        ended = preflights.run(made, (PYTHON,), ("--skip", "bandwidth", "--busbw", "0.08", "--seconds", "110"))
    (found,) = ended.findings()
    assert (found["id"], found["nodes"], found["ranks"]) == ("collective_slow", ["node-c"], [2])


BLOCKED = next(fault for fault in preflights.FAULTS if fault.name == "blocked ports")
FAULT = next(fault for fault in preflights.FAULTS if fault.name == "rate-limited link")
