"""The event simulator: what a schedule may never do, and what theory says of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from asking import figures, plan
from hypothesis import given, settings
from hypothesis import strategies as st

from whichrank.errors import UsageProblem
from whichrank.plan import pipeline
from whichrank.plan.passes import Times
from whichrank.plan.quantities import Range
from whichrank.plan.schedules import SCHEDULES, Run, closed_form, simulate

EVEN = Times(1.0, 1.0, 1.0, 0.0)


def check(run: Run, stages: int, microbatches: int, chunks: int) -> None:
    """Each pass once, none before its input, none at the same time as another on its stage."""
    v = chunks if run.schedule == "interleaved" else 1
    kinds = ("F", "BW") if run.schedule in ("1f1b", "interleaved") else ("F", "B", "W")
    ends = {(p.kind, p.microbatch, p.chunk * stages + p.stage): p.end for p in run.passes}
    assert len(ends) == len(run.passes) == stages * microbatches * v * len(kinds)
    last = stages * v - 1
    for each in run.passes:
        at = each.chunk * stages + each.stage
        before = []
        if each.kind == "F" and at > 0:
            before.append(("F", each.microbatch, at - 1))
        if each.kind in ("B", "BW"):
            before.append(("F", each.microbatch, at))
            before += [(each.kind, each.microbatch, at + 1)] if at < last else []
        if each.kind == "W":
            before.append(("B", each.microbatch, at))
        for other in before:
            assert ends[other] <= each.start + 1e-9, (each, other)
    for stage in range(stages):
        own = sorted((p.start, p.end) for p in run.passes if p.stage == stage)
        assert all(first[1] <= second[0] + 1e-9 for first, second in pairwise(own))


durations = st.floats(0.2, 3.0)


@settings(max_examples=60)
@given(
    st.sampled_from(SCHEDULES), st.integers(1, 6), st.integers(1, 5), st.integers(1, 4),
    durations, durations, durations, st.floats(0, 0.5),
)  # fmt: skip
def test_no_schedule_breaks_a_rule(
    schedule: str, stages: int, rounds: int, chunks: int, f: float, b: float, w: float, transfer: float
) -> None:
    microbatches = stages * rounds
    for overlap in (False, True):
        run = simulate(schedule, stages, microbatches, Times(f, b, w, transfer, overlap=overlap), chunks)
        check(run, stages, microbatches, chunks)
        assert -1e-9 <= run.bubble < 1


@given(st.integers(2, 6), st.integers(1, 4), st.integers(2, 4), st.floats(0.01, 0.5))
def test_overlapped_transfers_cost_less(stages: int, rounds: int, chunks: int, transfer: float) -> None:
    times = Times(1.0, 1.0, 1.0, transfer, launch=0.01)
    waited, beside = (
        simulate("interleaved", stages, stages * rounds, replace(times, overlap=overlap), chunks).seconds
        for overlap in (False, True)
    )
    assert beside < waited


@given(st.integers(1, 8), st.integers(1, 24))
def test_1f1b_without_transfers_is_the_closed_form(stages: int, microbatches: int) -> None:
    run = simulate("1f1b", stages, microbatches, EVEN)
    ideal = closed_form("1f1b", stages, microbatches, EVEN)
    if microbatches >= stages:
        assert run.bubble == pytest.approx((stages - 1) / (microbatches + stages - 1))
    assert ideal == pytest.approx((stages - 1) / microbatches)


def test_1f1b_keeps_one_microbatch_less_on_each_later_stage() -> None:
    assert simulate("1f1b", 4, 16, EVEN).held == (4, 3, 2, 1)


@pytest.mark.parametrize(("stages", "microbatches"), [(4, 16), (8, 32), (8, 64)])
def test_better_schedules_are_better(stages: int, microbatches: int) -> None:
    times = Times(1.0, 1.0, 1.0, 0.01)
    bubbles = [simulate(each, stages, microbatches, times, 4).bubble for each in ("1f1b", "interleaved", "zb-2p")]
    assert bubbles == sorted(bubbles, reverse=True)
    third = simulate("zb-1p", stages, microbatches, times).bubble
    assert 0.25 < third / bubbles[0] < 0.6  # a third by the closed form, rather half in practice


def test_zero_bubble_keeps_to_its_memory() -> None:
    assert max(simulate("zb-1p", 8, 64, EVEN).held) <= 9
    assert 9 < max(simulate("zb-2p", 8, 64, EVEN).held) <= 17


def test_closed_forms_are_optimistic() -> None:
    times = Times(10.0, 10.0, 10.0, 0.3)
    for schedule in ("1f1b", "interleaved"):
        ideal = closed_form(schedule, 8, 32, times, 3)
        assert simulate(schedule, 8, 32, times, 3).bubble > ideal / (1 + ideal)


def test_microbatches_needed_reach_the_target_and_one_round_less_does_not() -> None:
    times = Times(1.0, 1.0, 1.0, 0.01)
    for schedule in ("1f1b", "zb-1p"):
        count = pipeline.needed(schedule, 4, times, 0.08)
        assert count
        assert simulate(schedule, 4, count, times).bubble <= 0.08
        assert simulate(schedule, 4, count - 4, times).bubble > 0.08


def test_a_target_below_the_transfers_is_never_reached() -> None:
    assert pipeline.needed("1f1b", 4, Times(1.0, 1.0, 1.0, 0.5), 0.05) is None


def test_more_stages_without_more_microbatches_cost() -> None:
    more = plan("pipeline", {"stages": "8", "microbatches": "16"}).more
    assert [each.stages for each in more] == [4, 8, 16, 32]
    assert [each.bubble for each in more] == sorted(each.bubble for each in more)
    assert [each.gpu_seconds for each in more] == sorted(each.gpu_seconds for each in more)


def test_interleaving_needs_whole_rounds() -> None:
    found = plan("pipeline", {"stages": "4", "microbatches": "6"})
    assert "interleaved" not in [row.schedule for row in found.rows]
    assert any("no multiple" in warning for warning in found.warnings)
    with pytest.raises(UsageProblem, match="no multiple"):
        simulate("interleaved", 4, 6, EVEN, 2)


def test_limits() -> None:
    with pytest.raises(UsageProblem, match="too many"):
        plan("pipeline", {"stages": "1k", "microbatches": "1k"})
    with pytest.raises(UsageProblem, match="above zero"):
        pipeline.plan(pipeline.Inputs(forward=Range.exactly(0.0)), figures())
