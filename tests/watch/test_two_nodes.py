"""`whichrank run` on two nodes that share a folder, with real rings written by a stand-in: one of them speaks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from running import clear, events, gone, standin, start, wait_for

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")


def both(tmp_path: Path, seconds: float, *faults: tuple[str, ...]) -> list[subprocess.Popen[bytes]]:
    return [
        start(
            tmp_path / name,
            standin(2, seconds, *faults[at]),
            "--share",
            str(tmp_path / "shared"),
            env={"STANDIN_FIRST": str(2 * at), "STANDIN_WORLD": "4", "SLURMD_NODENAME": name},
        )
        for at, name in enumerate(("n1", "n2"))
    ]


def test_the_node_of_the_first_rank_speaks_for_the_other(tmp_path: Path) -> None:
    runs = both(tmp_path, 55, (), ("0:30:data:32",))
    told = [run.communicate(timeout=120)[1].decode() for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    heads = [line for line in told[0].splitlines() if not line.startswith("whichrank:   ")]
    assert "rank 2 (n2) has kept rank 3 waiting" in heads[0] and "rank 2 went on after" in heads[-1]
    assert told[1] == ""
    stall = events(tmp_path / "n1", "stall")[0]
    assert (stall["ranks"], stall["hosts"], stall["nodes"]) == ([2], ["n2"], 2)
    verdict = events(tmp_path / "n1", "verdict")[0]
    assert (verdict["cause"], verdict["ranks"]) == ("slow_data", [2])
    assert [event["host"] for event in events(tmp_path / "n2", "told_by")] == ["n1"]
    assert not list((tmp_path / "n1" / "nodes").iterdir())  # of a stall that passed nothing is kept
    assert all(gone(run.pid) for run in runs)


def test_a_folder_that_does_not_answer_leaves_each_to_itself(tmp_path: Path) -> None:
    """Nothing can be made below a file: it stands for storage that fails."""
    (tmp_path / "shared").write_text("")
    runs = both(tmp_path, 90, (), ("0:30:data:1e6",))
    try:
        verdict = wait_for(tmp_path / "n2", "verdict", 60)
        assert (verdict["cause"], verdict["ranks"]) == ("slow_data", [2])
        assert events(tmp_path / "n2", "nobody_heard")
    finally:
        for run in runs:
            clear(run.pid)
    assert b"rank 2 has kept rank 3 waiting" in runs[1].communicate(timeout=30)[1]
