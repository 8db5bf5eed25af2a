"""The command: its own launcher on one node, its forms, its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import whichrank
from whichrank.preflight import meeting
from whichrank.preflight.answer import Answer, Check, Finding
from whichrank.preflight.terminal import lines

SOURCES = Path(whichrank.__file__).parents[1]
SCHEMA = json.loads((SOURCES / "whichrank" / "preflight" / "schema.json").read_text())
LAUNCHERS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in LAUNCHERS and not name.startswith(("SLURM_", "NCCL_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "whichrank", "preflight", *words],
        env={**kept, "PYTHONPATH": str(SOURCES), **env},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_one_node_alone(tmp_path: Path) -> None:
    done = run("--ranks", "3", "--json", "--skip", "collective", "--path", str(tmp_path), "--script", __file__)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["answer"]) == (0, "go"), done.stdout + done.stderr
    jsonschema.validate(answer, SCHEMA)
    assert [one["rank"] for one in answer["ranks"]] == [0, 1, 2]
    assert {one["path"] for one in answer["storage"]} == {str(tmp_path)}
    assert all(
        set(one["took"]) >= {"create", "write", "fsync", "read", "metadata", "remove"} for one in answer["storage"]
    )
    assert len(answer["nodes"][0]["script"]) == 16


def test_no_go_first_then_the_rest(tmp_path: Path) -> None:
    done = run("--skip", "collective", "--path", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    first, second = done.stdout.splitlines()[:2]
    assert first.split()[0] == "NO-GO" and "nowhere" in done.stdout
    assert " do " in "".join(done.stdout.splitlines()[1:4]) and second
    assert "\x1b" not in done.stdout


def test_go_in_words_and_to_a_file(tmp_path: Path) -> None:
    done = run("--skip", "collective", "-o", str(tmp_path / "answer.json"))
    assert (done.returncode, done.stdout) == (0, "")
    jsonschema.validate(json.loads((tmp_path / "answer.json").read_text()), SCHEMA)
    assert run("--skip", "collective").stdout.split()[0] == "GO"


def test_what_there_was_no_time_for_is_said(tmp_path: Path) -> None:
    """Somebody never comes, and the time is over."""
    with meeting.listening(0) as one:
        port = str(one.getsockname()[1])
    done = run(
        "--json", "--seconds", "5", "--wait", "3", "--path", str(tmp_path),
        RANK="0", WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, SCHEMA)
    found = {one["id"]: one for one in answer["findings"]}
    assert done.returncode == 1 and found["missing"]["ranks"] == [1]
    assert found["no_time"]["grade"] == "warn" and "--seconds 10" in found["no_time"]["do"]


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (("--workers", "many"), {}),
        (("--skip", "everything"), {}),
        ((), {"RANK": "0"}),
        ((), {"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}),
        ((), {"RANK": "x", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}),
        ((), {"RANK": "0", "WORLD_SIZE": "2"}),
        (("--ranks", "2"), {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}),
    ],
)
def test_wrong_usage(words: tuple[str, ...], env: dict[str, str]) -> None:
    done = run(*words, **env)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and done.stderr


def test_a_rank_that_finds_nobody_says_so() -> None:
    done = run("--wait", "1", RANK="1", WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="1")
    assert done.returncode == 1
    assert "Rank 1" in done.stderr and "localhost port 1" in done.stderr and "do " in done.stderr


def test_variables_without_effect_are_no_no_go() -> None:
    done = run("--json", "--skip", "collective", NCCL_TIMEOUT="30", NCCL_SOCKET_IFNAMES="eth0")
    answer = json.loads(done.stdout)
    assert done.returncode == 0
    assert [one["id"] for one in answer["findings"]] == ["variable_without_effect"] * 2


def test_hostile_names_reach_no_terminal() -> None:
    answer = Answer(1, "environment", "x:1", "gloo")
    answer.findings = [Finding("ranks", "stop", "x", "node \x1b[31mred\x1b[0m\x07", "do \x1b]0;title\x07this")]
    answer.checks = [Check("ranks", "failed", "\x1b[2J", 0.1)]
    assert "\x1b" not in "".join(line.plain for line in lines(answer, 80))


def test_many_findings_are_cut_in_words() -> None:
    answer = Answer(1, "environment", "x:1", "gloo")
    answer.findings = [Finding("ranks", "stop", "x", f"finding {number}.", "this") for number in range(50)]
    text = "\n".join(line.plain for line in lines(answer, 80))
    assert "finding 0." in text and "and 42 more" in text
