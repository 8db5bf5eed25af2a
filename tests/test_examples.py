"""The shipped incidents get the answer that examples/README.md promises, firmly, whichever way they are given."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from whichrank.diagnosis import diagnose
from whichrank.model import Verdict

EXAMPLES = Path(__file__).parents[1] / "examples"
ANSWERS = {
    "oom-two-nodes": ("host_oom", [6], "cedar12", "dead"),
    "tokenising": ("rank0_only_work", [0], "tern", "host_stuck"),
    "desync": ("desync_uneven_data", [2], "wren03", "desync"),
}
SURE = {"proven", "likely"}


def expect(name: str, verdict: Verdict) -> None:
    cause, ranks, host, mechanism = ANSWERS[name]
    assert (verdict.cause, [culprit.rank for culprit in verdict.culprits]) == (cause, ranks)
    assert {culprit.host for culprit in verdict.culprits} == {host}
    assert verdict.mechanism == mechanism
    assert verdict.grade in SURE
    assert verdict.rank_grade in SURE


def test_all_are_here() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir()} == set(ANSWERS)


@pytest.mark.parametrize("name", ANSWERS)
def test_answer(name: str) -> None:
    report = diagnose([str(EXAMPLES / name)])
    expect(name, report.verdicts[0])
    assert report.exit_code == 1
    assert not report.incidents
    assert not report.summary.unread


@pytest.mark.parametrize("name", ANSWERS)
def test_proof_is_in_the_files(name: str) -> None:
    proofs = diagnose([str(EXAMPLES / name)]).verdicts[0].because
    assert proofs
    for proof in proofs:
        lines = (EXAMPLES / proof.source).read_bytes().split(b"\n")
        assert proof.line is not None
        text = lines[proof.line - 1].decode()
        words = [word for word in proof.excerpt.strip("…").split() if word.isascii()]
        assert sum(word in text for word in words) >= 0.8 * len(words)


@pytest.mark.parametrize("name", ANSWERS)
def test_folder_of_another_name_and_packed(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    shutil.copytree(EXAMPLES / name, folder)
    expect(name, diagnose([str(folder)]).verdicts[0])
    for file in sorted(folder.iterdir()):
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
        file.unlink()
    expect(name, diagnose([str(folder)]).verdicts[0])


@pytest.mark.parametrize("name", ANSWERS)
def test_small_and_evidence_only(name: str) -> None:
    files = [path for path in (EXAMPLES / name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 150_000
    assert not any(path.name in ("README.md", "truth.json") for path in files)
    assert f"`{name}`" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
