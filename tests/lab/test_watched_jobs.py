"""`whichrank run` over real jobs of torchrun on gloo, in an interpreter of their own: who is named, how soon.

Needs torch; WHICHRANK_TORCH names another interpreter that has it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import clear, events, start, wait_for

PYTHON = os.environ.get("WHICHRANK_TORCH") or sys.executable
TORCH = importlib.util.find_spec("torch") is not None or "WHICHRANK_TORCH" in os.environ
pytestmark = pytest.mark.skipif(not (TORCH and sys.platform.startswith("linux")), reason="needs torch")
JOB = Path(__file__).with_name("watched_job.py")
SOON = 15.0


def torchrun(*words: str, world: int = 3) -> list[str]:
    return [PYTHON, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}", str(JOB), *words]


def env(tmp_path: Path, **more: str) -> dict[str, str]:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    return {"PIPE": str(pipe), "OMP_NUM_THREADS": "1", **more}


def report(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "report.json").read_text())["verdicts"][0]
    return found


@pytest.mark.parametrize(("what", "cause"), [("worker", "slow_data"), ("think", "slow_compute"), ("stop", "stopped")])
def test_a_stuck_rank_is_named_in_time(tmp_path: Path, what: str, cause: str) -> None:
    here = tmp_path / "run"
    run = start(here, torchrun("100000", f"2:60:{what}"), env=env(tmp_path))
    try:
        stall = wait_for(here, "stall", 150)
        assert stall["ranks"] == [2] and stall["waiting"] == [0, 1]
        assert stall["seconds"] < SOON
        verdict = wait_for(here, "verdict", 40)
        assert (verdict["cause"], verdict["ranks"], verdict["rank_grade"]) == (cause, [2], "proven")
    finally:
        clear(run.pid)


@pytest.mark.parametrize(("what", "cause"), [("raise", "exception"), ("kill", "killed")])
def test_a_rank_that_dies(tmp_path: Path, what: str, cause: str) -> None:
    here = tmp_path / "run"
    run = start(here, torchrun("100000", f"1:40:{what}"), env=env(tmp_path))
    run.communicate(timeout=150)
    verdict = report(here)
    assert run.returncode == 1
    assert (verdict["cause"], [one["rank"] for one in verdict["culprits"]]) == (cause, [1])


def test_a_healthy_job_with_evaluations(tmp_path: Path) -> None:
    here = tmp_path / "run"
    run = start(here, torchrun("90", world=2), env=env(tmp_path, EVALUATE="30", PAUSE="5"))
    out, err = run.communicate(timeout=200)
    assert run.returncode == 0 and not events(here, "stall") and b"whichrank" not in err
    assert out.count(b"step 80") == 2
    assert {event["in_order"] for event in events(here, "rank_ended")} == {True}


def test_without_the_right_to_trace(tmp_path: Path) -> None:
    """Processes that may not be looked into, and none of root's powers: the ranks' own records have to do."""
    words = torchrun("100000", "1:40:worker", world=2)
    if os.geteuid() == 0:
        words = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *words]
    here = tmp_path / "run"
    run = start(here, words, env=env(tmp_path, UNDUMPABLE="1"))
    try:
        assert wait_for(here, "stall", 150)["ranks"] == [1]
        verdict = wait_for(here, "verdict", 40)
        assert (verdict["cause"], verdict["ranks"]) == ("slow_data", [1])
    finally:
        clear(run.pid)


def test_the_environment_of_a_rank(tmp_path: Path) -> None:
    code = "import os, sys; print(sorted(n for n in os.environ if n.startswith(('TORCH_', 'WHICHRANK'))), 'torch' in sys.modules)"
    run = start(tmp_path / "run", [PYTHON, "-c", code], env={"TORCH_NCCL_DUMP_ON_TIMEOUT": "0"})
    out, _ = run.communicate(timeout=60)
    names, loaded = out.decode().rsplit(" ", 1)
    assert loaded.strip() == "False"
    assert "TORCH_FR_DUMP_TEMP_FILE" in names and "WHICHRANK_RUN" in names
    for never in ("ENABLE_TIMING", "DETAIL", "BLOCKING_WAIT"):
        assert never not in names
    bare = subprocess.run([PYTHON, "-c", "print('same')"], capture_output=True, check=True)
    assert start(tmp_path / "other", [PYTHON, "-c", "print('same')"]).communicate(timeout=60)[0] == bare.stdout
