"""What is read is never overwritten: whoever writes refuses, with exit 2 and a word that names the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whichrank.__main__ import run

LINE = (
    "[rank1]:[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, "
    "OpType=ALLREDUCE, NumelIn=7, NumelOut=7, Timeout(ms)=1800000) ran for 1800518 milliseconds before timing out.\n"
)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    for rank in range(2):
        (folder / f"rank{rank}.log").write_text(LINE)
    (tmp_path / "link.log").symlink_to(folder / "rank1.log")
    (folder / "twin.log").hardlink_to(folder / "rank0.log")
    return folder


@pytest.mark.parametrize("command", [["-o"], ["--html"], ["--perfetto"], ["--json", "-o"], ["--markdown", "-o"]])
@pytest.mark.parametrize("target", ["logs/rank1.log", "link.log", "logs/twin.log"])
@pytest.mark.parametrize("inputs", ["logs", "logs/*.log", "logs/rank1.log logs/rank0.log"])
def test_diagnose(
    logs: Path, command: list[str], target: str, inputs: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(logs.parent)
    assert run([*inputs.split(), *command, target]) == 2
    said = capsys.readouterr()
    assert target in said.err and "overwritten" in said.err and not said.out
    assert {path.read_text() for path in logs.iterdir()} == {LINE}


def test_digest_and_placement(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    placement = logs.parent / "hosts.txt"
    placement.write_text("0 node-1\n1 node-2\n")
    assert run(["digest", str(logs), "-o", str(logs / "rank0.log")]) == 2
    assert run([str(logs), "--placement", str(placement), "-o", str(placement)]) == 2
    assert capsys.readouterr().err.count("overwritten") == 2
    assert placement.read_text().startswith("0 node-1")


def test_a_digest_is_not_written_over_itself(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = str(logs.parent / "a.digest")
    assert run(["digest", str(logs), "-o", made]) == 0
    assert run(["digest", made, "-o", made]) == 2
    assert run(["digest", str(logs), "-o", made]) == 0  # it is not read: made anew


def test_two_targets_of_one_name(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = str(logs.parent / "page.html")
    assert run([str(logs), "--html", page, "--perfetto", page]) == 2
    assert "--html and --perfetto" in capsys.readouterr().err
    assert run([str(logs), "--html", page]) == run([str(logs), "--html", page]) == 1


def test_a_history_is_not_overwritten_by_its_table(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = logs.parent / "kept.db"
    assert run([str(logs), "--history", str(kept)]) == 1
    before = kept.read_bytes()
    assert run(["history", "export", str(kept), "--history", str(kept)]) == 2
    assert "overwritten" in capsys.readouterr().err
    assert kept.read_bytes() == before


def test_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "config.json"
    model.write_text(json.dumps({"hidden_size": 64}))
    assert run(["plan", "memory", "--model", str(model), "--gpu", "a100", "-o", str(model)]) == 2
    assert "overwritten" in capsys.readouterr().err
    assert json.loads(model.read_text()) == {"hidden_size": 64}
