"""gloo's recorder: a state that stays scheduled, no members of groups, calls that failed marked as if they had ended."""

from __future__ import annotations

from pathlib import Path

from incident import named, surely_named, told
from recorded import Job


def begun(world: int = 4) -> Job:
    job = Job(world, backend="gloo", version="2.10")
    job.steps(6)
    return job


def test_while_they_still_wait(tmp_path: Path) -> None:
    job = begun()
    job.call("all_reduce", but=[2], ended=False)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, surely_named(verdict)) == ("host_stuck", [2]), told(verdict)


def test_after_the_timeout_those_who_waited_look_as_if_done(tmp_path: Path) -> None:
    """The call that only they made cannot have succeeded."""
    job = begun()
    job.call("all_reduce", but=[2], ended=True)

    verdict = job.verdict(tmp_path)

    assert verdict.mechanism == "host_stuck" and named(verdict) == [2], told(verdict)


def test_after_a_mismatch_that_failed(tmp_path: Path) -> None:
    job = begun()
    job.call("all_reduce", but=[1], ended=True)
    job.call("all_reduce", only=[1], sizes=[[77]], ended=True)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, named(verdict)) == ("mismatch", [1]), told(verdict)


def test_after_another_call_in_its_place(tmp_path: Path) -> None:
    job = begun()
    job.call("broadcast", but=[3], ended=False, at="train.py:95")
    job.call("all_reduce", only=[3], ended=False)

    verdict = job.verdict(tmp_path)

    assert verdict.mechanism in ("desync", "mismatch") and named(verdict) == [3], told(verdict)


def test_a_killed_member(tmp_path: Path) -> None:
    """Its peers' calls failed at once: retired. It left no dump."""
    job = begun()
    job.call("all_reduce", but=[1], ended=True)

    verdict = job.verdict(tmp_path, but=[1])

    assert (verdict.mechanism, named(verdict)) == ("dead", [1]), told(verdict)


def test_a_job_that_has_ended(tmp_path: Path) -> None:
    job = begun()
    job.call("barrier", sizes=[], at="train.py:99")

    verdict = job.verdict(tmp_path)

    assert verdict.cause == "none" and named(verdict) == [], told(verdict)


def test_calls_made_at_once_and_not_waited_for(tmp_path: Path) -> None:
    """With async_op several calls are made in a row; rank 0 made none of them."""
    job = begun()
    for bucket in range(3):
        job.now -= 0.095
        job.call("all_reduce", but=[0], ended=bucket < 2, at="ddp.py:5")

    verdict = job.verdict(tmp_path)

    assert named(verdict) == [0], told(verdict)
