"""Logs that simply stop, before any watchdog has fired: one rank behind is no healthy job; figures are no activity."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.diagnosis import diagnose


def logs(folder: Path, last: dict[int, int], extra: str = "") -> str:
    for rank, end in last.items():
        lines = [
            f"2026-03-02 09:{step // 60:02d}:{step % 60:02d},{rank:03d} INFO train.py:88 step {step} loss {3 - step / 1000:.3f}{extra}"
            for step in range(1, end + 1)
        ]
        (folder / f"rank{rank}.log").write_text("\n".join(lines) + "\n")
    return str(folder)


def test_a_rank_that_ends_behind_the_others_is_told(tmp_path: Path) -> None:
    first = diagnose([logs(tmp_path, {0: 300, 1: 300, 2: 298, 3: 300})]).verdicts[0]

    assert first.cause == "undecided" and "rank 2 came to 298" in first.says.lower()


@pytest.mark.parametrize("last", [{0: 300, 1: 300, 2: 299, 3: 300}, {0: 300, 1: 290, 2: 280, 3: 300}])
def test_snapshots_taken_in_turn_are_no_lag(last: dict[int, int], tmp_path: Path) -> None:
    assert diagnose([logs(tmp_path, last)]).verdicts[0].cause == "none"


@pytest.mark.parametrize("extra", [" dataloader_time 0.007", " data_time=0.01s fwd=0.20s", " data_load: 12ms"])
def test_a_figure_in_a_step_line_is_no_activity(extra: str, tmp_path: Path) -> None:
    folder = logs(tmp_path, {0: 300, 1: 300, 2: 300, 3: 300}, extra)
    for rank in (0, 1, 3):
        with (tmp_path / f"rank{rank}.log").open("a") as file:
            file.write(
                f"[rank{rank}]:[E302 09:15:00.000000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=301, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
            )

    first = diagnose([folder]).verdicts[0]

    assert first.cause == "undecided" and [culprit.rank for culprit in first.culprits] == [2]
