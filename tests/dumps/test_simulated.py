"""A small suite of simulated incidents: how often dumps alone are answered right must not fall.

Four incidents of each kind of fault, of 8 to 16 ranks, drawn from a fixed seed: the same bytes each time. The limits
stand a little below what it scores; `python -m bench.dumps` measures with thousands of incidents of up to 256 ranks.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench.dumps_judge import Answer, Row, judge
from incident import named
from lab.simulate import faults, incident
from lab.simulate.draw import Wishes

from whichrank.diagnosis import diagnose

SEED = 40_417
KINDS = tuple(faults.KINDS)
SOUND = ("healthy", "straggler")
CLEAR = Wishes(
    worlds=(8,), kinds=SOUND, backend="nccl", version="2.10", missing=0.0, ring=2000, by_hand=True, skew="ntp"
)


def answered(number: int, wishes: Wishes, folder: Path) -> Row:
    made = incident.make(SEED, number, wishes)
    made.write(folder / str(number))
    verdict = diagnose([str(folder / str(number))]).verdicts[0]
    answer = Answer(
        named(verdict), verdict.mechanism, verdict.rank_grade, verdict.cause, verdict.grade, [*verdict.group_ranks]
    )
    return judge(str(number), made.truth, answer)


def shown(rows: Sequence[Row]) -> str:
    return "; ".join(
        f"{row.incident} {row.truth['kind']} {row.truth['mechanism']} {row.truth['culprits']} -> "
        f"{row.answer.mechanism} {row.answer.named} ({row.answer.rank_grade}), {row.answer.cause} ({row.answer.grade})"
        for row in rows
    )


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return [answered(number, Wishes(worlds=(8, 12, 16)), Path(folder)) for number in range(4 * len(KINDS))]


def test_where_the_files_identify_the_culprits_exactly_they_are_named(rows: list[Row]) -> None:
    told = [row for row in rows if row.truth["identifiable"] and row.exact is not None]
    wrong = [row for row in told if not row.exact]
    assert len(told) >= 45
    assert len(wrong) <= 4, shown(wrong)


def test_the_mechanism_is_right(rows: list[Row]) -> None:
    wrong = [row for row in rows if not row.mechanism]
    assert len(wrong) <= 7, shown(wrong)


def test_hardly_ever_sure_of_what_is_wrong(rows: list[Row]) -> None:
    wrong = [row for row in rows if row.falsely_sure]
    assert len(wrong) <= 1, shown(wrong)


def test_no_innocent_is_named_for_sure(rows: list[Row]) -> None:
    wrong = [row for row in rows if row.names_innocent]
    assert not wrong, shown(wrong)


@pytest.mark.parametrize("number", range(12))
def test_no_hang_is_claimed_of_a_job_that_runs(number: int, tmp_path: Path) -> None:
    """Dumps asked for by hand, all there, rings whole, clocks synchronised."""
    row = answered(number, CLEAR, tmp_path)
    assert not row.claims_hang, shown([row])
    assert row.answer.mechanism in ("no_hang", "undecided"), shown([row])
