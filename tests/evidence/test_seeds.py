"""Evidence on which whichrank once stumbled, found by bench/fuzz.py and made small: a folder each."""

from __future__ import annotations

import time
import unicodedata
from pathlib import Path

import pytest
from reading import facts_of

from whichrank.diagnosis import diagnose
from whichrank.report import json_report, markdown, terminal

SEEDS = sorted((Path(__file__).parent / "seeds").iterdir())


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)
def test_what_once_broke_it_ends_in_a_report(seed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHICHRANK_DEBUG", "1")
    begun = time.process_time()

    report = diagnose([str(seed)])
    shown = terminal.plain(report, 80, all=True) + markdown.render(report, all=True)

    assert report.verdicts and json_report.render(report)
    assert not {char for char in shown if unicodedata.category(char) in ("Cc", "Cf", "Cs")} - {"\n"}
    assert time.process_time() - begun < 6, "a slow machine may take three times what mine does"


@pytest.mark.parametrize(
    "line",
    [
        "a1" * 10_000,
        "a" + "1" * 19_000 + "  UP 1",
        "timeout" + " " * 19_000 + "x",
        "nccl timeout" + " " * 19_000 + "x",
        " " * 19_000 + "caught Error",
        "SO_ERROR: " + " " * 19_000 + "x",
        "_" * 19_000 + " async fatal event: x",
        "_" * 19_000 + ".service killed by the OOM killer",
        "a" + "1" * 19_000 + " task",
        "x" + " " * 19_000 + "%|",
        "a=" * 9_000,
        "load " + " " * 19_000,
    ],
    ids=lambda line: line[:5] + line[-15:],
)
def test_long_runs_of_one_character_take_no_time(line: str, tmp_path: Path) -> None:
    """Patterns that try every split of them once took minutes; 10 lines, of two ranks."""
    (tmp_path / "train.log").write_text("".join(f"[rank{n % 2}]: {n} {line}\n{line}\n" for n in range(5)))
    begun = time.process_time()

    assert diagnose([str(tmp_path)]).verdicts

    assert time.process_time() - begun < 6


def test_thousands_of_errors_take_seconds(tmp_path: Path) -> None:
    """Each was once compared with all others of its rank."""
    (tmp_path / "rank0.log").write_text("".join(f"RuntimeError: it broke, number {n}\n" for n in range(8000)))
    begun = time.process_time()

    assert diagnose([str(tmp_path)]).verdicts

    assert time.process_time() - begun < 6


def test_tables_that_follow_each_other_are_read_once(tmp_path: Path) -> None:
    """`watch ps`: each heading once opened another table, and all of them took all the rows that followed."""
    table = "  PID  PPID STAT WCHAN COMMAND\n 4120     1 Dl   folio_wait_bit python train.py\n"

    assert sum(fact.kind == "process" for fact in facts_of(table * 1000)) == 1000


def test_blocks_that_never_end_are_not_all_kept_open() -> None:
    begun = time.process_time()

    facts_of('Thread 20106 (idle): "MainThread"\nLAST SEEN   TYPE   REASON   OBJECT   MESSAGE\n' * 4000)

    assert time.process_time() - begun < 6
