"""The lint corpus and its truth agree: each file has its truth, each line is there, the mix is what it has to be."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CORPUS = Path(__file__).parent / "corpus"
TRUTH: dict[str, Any] = tomllib.loads((CORPUS / "truth.toml").read_text(encoding="utf-8"))
FILES: list[dict[str, Any]] = TRUTH["file"]
GUILTY = [entry for entry in FILES if entry["verdict"] == "guilty"]
INNOCENT = [entry for entry in FILES if entry["verdict"] == "innocent"]


def kind_of(entry: dict[str, Any]) -> str:
    return str(entry["finding"][0]["kind"] if "finding" in entry else entry["looks_like"])


def judged_lines(entry: dict[str, Any]) -> list[int]:
    lines = list(entry.get("tolerated_lines", []))
    for finding in entry.get("finding", []):
        lines += [finding["line"], *finding.get("also_lines", [])]
    return lines


def code_lines(tree: ast.Module) -> set[int]:
    """Lines on which a statement, an expression or an except begins."""
    return {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt | ast.expr | ast.excepthandler | ast.keyword)
    }


def test_each_file_has_its_truth_once() -> None:
    on_disk = sorted(path.relative_to(CORPUS).as_posix() for path in CORPUS.rglob("*.py"))

    assert sorted(entry["path"] for entry in FILES) == on_disk


@pytest.mark.parametrize("entry", FILES, ids=lambda entry: entry["path"])
def test_truth_fits_its_file(entry: dict[str, Any]) -> None:
    text = (CORPUS / entry["path"]).read_text(encoding="utf-8")
    tree = ast.parse(text)
    judged = judged_lines(entry)

    assert 15 <= len(text.splitlines()) <= 80
    assert ast.get_docstring(tree), "says what the program does"
    assert set(judged) <= code_lines(tree), "a line of the truth has no code on it"
    assert len(judged) == len(set(judged)), "a line is judged once"
    assert entry["held_back"] is entry["path"].startswith("held_back/")
    assert bool(entry.get("source")) == bool(entry.get("source_says"))
    assert entry.get("source", "https://github.com/").startswith("https://github.com/")
    if entry["verdict"] == "guilty":
        for finding in entry["finding"]:
            assert {finding["kind"], *finding.get("also_kinds", [])} <= TRUTH["kinds"].keys()
            assert finding["why"]
    else:
        assert entry["verdict"] == "innocent"
        assert "finding" not in entry and entry["looks_like"] in TRUTH["kinds"] and entry["why"]


def test_half_of_the_files_are_innocent() -> None:
    assert len(FILES) >= 70
    assert abs(len(GUILTY) - len(INNOCENT)) <= len(FILES) // 20


def test_half_of_the_guilty_files_are_bugs_of_public_issues() -> None:
    cited = [entry["source"] for entry in GUILTY if "source" in entry]

    assert len(cited) >= len(GUILTY) / 2
    assert len(cited) == len(set(cited)), "one bug, one file"


def test_each_kind_has_both_sorts_and_some_are_held_back() -> None:
    for entries in (GUILTY, INNOCENT):
        seen = Counter(kind_of(entry) for entry in entries)
        held_back = Counter(kind_of(entry) for entry in entries if entry["held_back"])
        for kind in TRUTH["kinds"]:
            assert seen[kind] >= 2, kind
            assert 1 <= held_back[kind] <= seen[kind] / 2, kind


def test_pytest_and_ruff_pass_by_the_corpus() -> None:
    root = Path(__file__).parents[2]
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/lint"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    excluded = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["extend-exclude"]

    assert "tests/lint/test_lint_corpus_truth.py" in collected
    assert "tests/lint/corpus/" not in collected
    assert "tests/lint/corpus" in excluded
