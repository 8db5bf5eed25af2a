"""A job whose rank stands still, dies or comes back, with real rings written by a stand-in: what is said, and when."""

from __future__ import annotations

import json
import signal
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from running import clear, events, gone, standin, start, wait_for

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
SOON = 15.0  # seconds from the stall's begin to its notice
ANSWER = 20.0  # seconds more to the verdict, on a busy machine


def report(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "report.json").read_text())["verdicts"][0]
    return found


def culprits(verdict: dict[str, Any]) -> list[int]:
    return [one["rank"] for one in verdict["culprits"]]


def test_a_rank_that_waits_for_data_is_named_while_the_job_hangs(tmp_path: Path) -> None:
    here, kept = tmp_path / "run", tmp_path / "kept"
    run = start(
        here, standin(4, 120, "2:30:data:1e6"), "--keep", str(kept), "--on-hang", f"echo >> {tmp_path / 'told'}"
    )
    try:
        stall = wait_for(here, "stall")
        assert (stall["ranks"], stall["waiting"], stall["phase"]) == ([2], [0, 1, 3], "data")
        assert stall["seconds"] < SOON
        verdict = wait_for(here, "verdict", ANSWER)
        assert (verdict["cause"], verdict["ranks"], verdict["rank_grade"]) == ("slow_data", [2], "proven")
        assert run.poll() is None  # observes, never kills
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=60)
    finally:
        clear(run.pid)
    text = err.decode()
    assert "rank 2 has kept ranks 0, 1, 3 waiting for" in text and str(here) in text
    assert (tmp_path / "told").exists()
    assert run.returncode == 1 and culprits(report(here)) == [2]
    names = {file.name.rsplit("-", 1)[1] for file in kept.iterdir()}
    assert names == {"stall.tar.gz", "signal15.tar.gz", "end.tar.gz"}
    with tarfile.open(next(kept.glob("*-end.tar.gz"))) as archive:
        members = archive.getnames()
    assert {"run/report.md", "run/run.json", "run/events.jsonl", "run/output.log"} <= set(members)
    assert (here.stat().st_mode & 0o077) == 0 and not list(tmp_path.glob("*.tar.gz"))


def test_a_stall_that_passes_is_taken_back(tmp_path: Path) -> None:
    here = tmp_path / "run"
    run = start(here, standin(3, 30, "1:30:compute:18"))
    _, err = run.communicate(timeout=90)
    assert run.returncode == 0
    assert [event["ranks"] for event in events(here, "stall")] == [[1]]
    assert [event["ranks"] for event in events(here, "passed")] == [[1]]
    lines = [line for line in err.decode().splitlines() if line.startswith("whichrank: ")]
    assert "went on after" in lines[-1]
    assert report(here)["cause"] in ("none", "undecided")


def test_a_healthy_job_with_pauses_is_left_in_peace(tmp_path: Path) -> None:
    here = tmp_path / "run"
    run = start(here, standin(3, 32, "0:20:evaluation:9", "0:40:checkpoint:8", "2:60:evaluation:12"))
    out, err = run.communicate(timeout=90)
    assert (run.returncode, err) == (0, b"") and out
    assert not events(here, "stall")
    assert {event["in_order"] for event in events(here, "rank_ended")} == {True}


@pytest.mark.parametrize(("what", "cause"), [("raise", "exception"), ("kill", "killed")])
def test_a_rank_that_dies_is_named_at_the_end(tmp_path: Path, what: str, cause: str) -> None:
    here = tmp_path / "run"
    run = start(here, standin(3, 60, f"1:20:compute:{what}"))
    _, err = run.communicate(timeout=90)
    assert run.returncode == 1
    verdict = report(here)
    assert (verdict["cause"], culprits(verdict)) == (cause, [1])
    assert "the job ended with exit code 1" in err.decode()
    assert gone(run.pid)


def test_a_stopped_rank(tmp_path: Path) -> None:
    here = tmp_path / "run"
    run = start(here, standin(3, 120, "1:20:compute:stop"))
    try:
        stall = wait_for(here, "stall")
        assert (stall["ranks"], stall["phase"]) == ([1], "stopped") and stall["seconds"] < SOON
        verdict = wait_for(here, "verdict", ANSWER)
        assert (verdict["cause"], verdict["ranks"]) == ("stopped", [1])
    finally:
        clear(run.pid)


def test_everything_is_killed_at_once(tmp_path: Path) -> None:
    """As by the kernel, a scheduler, a node that goes: what was kept until then can be read."""
    here = tmp_path / "run"
    run = start(here, standin(3, 120, "1:20:data:1e6"))
    wait_for(here, "stall")
    clear(run.pid)
    assert gone(run.pid)
    from whichrank import diagnose

    verdict = diagnose([str(here)]).verdicts[0]
    assert verdict.culprit_ranks == (1,)


def test_a_full_disk(tmp_path: Path) -> None:
    """/dev/full takes nothing: the output of the job is not held up by it."""
    here = tmp_path / "run"
    here.mkdir(mode=0o700)
    (here / "output.log").symlink_to("/dev/full")
    (here / "events.jsonl").symlink_to("/dev/full")
    began = time.monotonic()
    run = start(here, standin(2, 4))
    assert run.communicate(timeout=60)[1] == b"" and run.returncode == 0
    assert time.monotonic() - began < 30


def test_a_place_to_keep_it_that_does_not_answer(tmp_path: Path) -> None:
    """A directory that cannot be made stands for storage that fails: the evidence is where the job ran."""
    (tmp_path / "file").write_text("")
    here = tmp_path / "run"
    run = start(here, standin(2, 60, "1:10:compute:exit3"), "--keep", str(tmp_path / "file" / "kept"))
    _, err = run.communicate(timeout=90)
    assert "could not be copied" in err.decode() and run.returncode == 1
    assert [event["done"] for event in events(here, "kept")][-1] is False
    assert (here / "report.json").exists()
