"""All cases with a known answer, judged as bench/score.py judges them, in one process.

A case is copied without its truth to a folder of neutral name, so that neither is evidence.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest

from whichrank.diagnosis import diagnose
from whichrank.report import json_report

ROOT = Path(__file__).parents[1]
SETS = ("public", "extra", "round1", "round2", "round3", "round4", "round5", "round6")
VALIDATOR = jsonschema.Draft202012Validator(json_report.schema())

# What a set must reach: shares of its cases. `host` counts where the truth names one.
AT_LEAST = {"cause_right": 0.90, "culprit_right": 0.90, "host_right": 0.90, "mechanism_right": 0.85, "cited": 0.85}
DECISIVE, FALSE_CERTAINTY, BRIER = 0.70, 0.02, 0.10


@lru_cache(maxsize=1)
def score() -> ModuleType:
    spec = importlib.util.spec_from_file_location("score", ROOT / "bench" / "score.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cases(name: str) -> list[Path]:
    return sorted(path.parent for path in (ROOT / "tests" / "cases" / name).rglob("truth.json"))


def judged(case: Path, folder: Path) -> dict[str, Any]:
    """One row of the score: the judge's answer beside what the truth says."""
    truth = json.loads((case / "truth.json").read_text(encoding="utf-8"))
    evidence = folder / "job"
    shutil.copytree(case, evidence, ignore=shutil.ignore_patterns("truth.json", "gen.py"))
    report = json.loads(json_report.render(diagnose([str(path) for path in sorted(evidence.iterdir())])))
    row = {
        "case": case.name,
        "truth": truth["cause"],
        "guilty": truth.get("culprit_ranks"),
        "difficulty": truth.get("difficulty"),
        "invalid": [error.message for error in VALIDATOR.iter_errors(report)],
    }
    try:
        return {**row, **score().judge(truth, report, evidence)}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as problem:
        return {**row, **score().BROKEN, "error": f"{type(problem).__name__}: {problem}"}


def share(rows: list[dict[str, Any]], key: str) -> float:
    return sum(bool(row[key]) for row in rows) / len(rows)


def missed(rows: list[dict[str, Any]], key: str, *, wanted: bool = True) -> str:
    return "".join(
        f"\n  {row['case']}: {row['truth']} {row['guilty']}, answered {row['cause']} ({row['grade']}) {row['named']} ({row['rank_grade']})"
        for row in rows
        if bool(row[key]) is not wanted
    )


@pytest.mark.parametrize("name", SETS)
def test_set(name: str, tmp_path: Path) -> None:
    """One test a set, not one a figure: the answers are made once, whichever process runs it."""
    rows = [judged(case, tmp_path / str(number)) for number, case in enumerate(cases(name))]
    assert rows, f"no cases in {name}"

    broken = [(row["case"], row["error"]) for row in rows if "error" in row]
    assert not broken
    invalid = [(row["case"], row["invalid"][:3]) for row in rows if row["invalid"]]
    assert not invalid

    short = [
        f"{key} {share(rows, key):.1%} < {least:.0%}{missed(rows, key)}"
        for key, least in AT_LEAST.items()
        if share(rows, key) < least
    ]
    right = [
        row
        for row in rows
        if row["cause_right"]
        and row["culprit_right"]
        and row["difficulty"] in ("easy", "medium")
        and row["truth"] != "undecided"
    ]
    firm = [row for row in right if row["grade"] in score().SURE]
    if len(firm) < DECISIVE * len(right):
        short.append(
            f"decisive {len(firm)} of {len(right)} < {DECISIVE:.0%}"
            + "".join(f"\n  {row['case']}: {row['cause']} ({row['grade']})" for row in right if row not in firm)
        )
    if share(rows, "false_certainty") > FALSE_CERTAINTY:
        short.append(
            f"false certainty {share(rows, 'false_certainty'):.1%} > {FALSE_CERTAINTY:.0%}{missed(rows, 'false_certainty', wanted=False)}"
        )
    squares = {
        row["case"]: (row["confidence"] - row["cause_right"]) ** 2
        for row in rows
        if isinstance(row["confidence"], (int, float))
    }
    assert len(squares) == len(rows)
    if sum(squares.values()) / len(squares) > BRIER:
        short.append(
            f"Brier {sum(squares.values()) / len(squares):.3f} > {BRIER}"
            + "".join(f"\n  {case}: {square:.2f}" for case, square in squares.items() if square > 0.25)
        )
    assert not short, "\n".join(short)


@pytest.mark.parametrize("case", ["mlx5-link-flap-slow-allreduce", "roce-mtu-mismatch"])
def test_the_same_evidence_gives_the_same_report(case: str) -> None:
    """Whatever order Python's sets have in this process: a file here is named after two hosts."""
    command = [
        sys.executable,
        "-m",
        "whichrank",
        "--json",
        *sorted(map(str, cases("public")[0].parent.glob(f"{case}/[!t]*"))),
    ]
    reports = {
        subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2", "3")
    }

    assert len(reports) == 1 and json.loads(reports.pop())["verdicts"]
