"""Dumps alone: who did not come, who is gone, whose GPU stopped; and where they cannot tell, that they say so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from incident import SURE, named, surely_named, told
from recorded import SECOND, START_NS, VERSIONS, Job

from whichrank.diagnosis import diagnose

every_version = pytest.mark.parametrize("version", VERSIONS)


@every_version
def test_a_rank_that_never_makes_the_next_call(version: str, tmp_path: Path) -> None:
    job = Job(4, version=version)
    job.steps(6)
    job.call("all_reduce", but=[2], ended=False)

    verdict = job.verdict(tmp_path)

    assert verdict.mechanism == "host_stuck", told(verdict)
    assert surely_named(verdict) == [2], told(verdict)
    assert verdict.cause == "undecided", "dumps alone do not say why"
    assert verdict.seq == 7 and verdict.op == "all_reduce", told(verdict)
    assert set(verdict.victims) == {0, 1, 3}


@pytest.mark.parametrize("version", ["2.4", "2.10", "2.17"])
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_the_same_as_json(version: str, backend: str, tmp_path: Path) -> None:
    job = Job(4, version=version, backend=backend, as_json=True)
    job.steps(6)
    job.call("all_reduce", but=[2], ended=False)

    verdict = job.verdict(tmp_path, names="fr_rank_{rank}.json")

    assert (verdict.mechanism, surely_named(verdict)) == ("host_stuck", [2]), told(verdict)


def test_it_is_found_behind_the_groups_that_wait_for_each_other(tmp_path: Path) -> None:
    """Rank 5 is missing in its tensor group; rank 4 therefore in its data group; all others wait there."""
    job = Job(8)
    job.parallel()
    job.steps(4)
    for key in ("tp0", "tp1", "tp2", "tp3"):
        job.call("all_reduce", key, but=[5], ended=key != "tp2", at="layers.py:41")
    job.call("all_reduce", "dp0", but=[4, 5], ended=False)
    job.call("all_reduce", "dp1", but=[4, 5], ended=False)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, surely_named(verdict)) == ("host_stuck", [5]), told(verdict)


def test_the_first_rank_is_not_taken_for_innocent(tmp_path: Path) -> None:
    job = Job(8)
    job.steps(6)
    job.call("all_reduce", but=[0], ended=False)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, named(verdict)) == ("host_stuck", [0]), told(verdict)
    assert verdict.rank_grade == "possible", "so it is at each checkpoint of a sound job, for a while"


def test_all_wait_for_the_first_rank_and_a_watchdog_says_that_it_was_for_long(tmp_path: Path) -> None:
    job = Job(8)
    job.steps(6)
    job.call("all_reduce", but=[0], ended=False)
    paths = job.write(tmp_path)
    log = tmp_path / "rank3.log"
    log.write_text(
        "[rank3]:[E1130 05:10:01.000000000 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 "
        "milliseconds before timing out.\n",
        encoding="utf-8",
    )

    assert surely_named(diagnose([*paths, str(log)]).verdicts[0]) == [0]


def test_all_wait_for_the_first_rank_in_dumps_that_the_watchdog_wrote(tmp_path: Path) -> None:
    """Files as old as the timeout after the call, not copied since."""
    job = Job(8)
    job.steps(6)
    job.call("all_reduce", but=[0], ended=False)
    paths = job.write(tmp_path)
    for path in paths:
        os.utime(path, ns=(0, START_NS + (600 + 8) * SECOND))

    assert surely_named(diagnose(paths).verdicts[0]) == [0]


def test_who_took_part_in_what_came_later_has_left_out_a_receive(tmp_path: Path) -> None:
    job = Job(2)
    for _ in range(6):
        job.transfer(1, 0)
        job.steps(1)
    job.transfer(1, 0, ended=False, only="send")
    job.steps(1)

    verdict = job.verdict(tmp_path, ring=3)  # too short for what was called before

    assert (verdict.mechanism, surely_named(verdict)) == ("desync", [0]), told(verdict)


def test_two_ranks_that_do_not_come(tmp_path: Path) -> None:
    job = Job(8)
    job.steps(6)
    job.call("all_reduce", but=[2, 5], ended=False)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, surely_named(verdict)) == ("host_stuck", [2, 5]), told(verdict)


def test_two_groups_each_with_a_culprit_of_its_own(tmp_path: Path) -> None:
    job = Job(8)
    job.parallel(tensor=4)
    job.steps(4)
    job.call("all_reduce", "tp0", but=[1], ended=False, at="layers.py:41")
    job.call("all_reduce", "tp1", but=[6], ended=False, at="layers.py:41")

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, named(verdict)) == ("host_stuck", [1, 6]), told(verdict)


def test_most_ranks_away_is_no_accusation(tmp_path: Path) -> None:
    """One waits, three do other things: who of them should have come is not on record."""
    job = Job(4)
    job.steps(6)
    job.call("all_reduce", only=[1], ended=False)

    verdict = job.verdict(tmp_path)

    assert surely_named(verdict) == [], told(verdict)


@every_version
def test_a_dead_rank_leaves_no_dump(version: str, tmp_path: Path) -> None:
    job = Job(4, version=version)
    job.steps(6)
    job.call("all_reduce", but=[1], ended=False)

    report = job.report(tmp_path, but=[1])

    verdict = report.verdicts[0]
    assert (verdict.mechanism, named(verdict)) == ("dead", [1]), told(verdict)
    assert verdict.rank_grade not in SURE, "a dump that was not collected looks the same"
    assert any("rank 1" in gap.what and "dump" in gap.what for gap in report.gaps), report.gaps


def test_a_format_without_members_does_not_know_of_a_last_rank(tmp_path: Path) -> None:
    job = Job(4, version="list")
    job.steps(6)
    job.call("all_reduce", but=[3], ended=False)
    paths = job.write(tmp_path, but=[3])

    assert named(diagnose(paths).verdicts[0]) == []
    assert named(diagnose(paths, world_size=4).verdicts[0]) == [3]


def test_a_missing_dump_beside_a_culprit_is_not_the_culprit(tmp_path: Path) -> None:
    job = Job(8)
    job.steps(6)
    job.call("all_reduce", but=[2], ended=False)

    verdict = job.verdict(tmp_path, but=[6])

    assert named(verdict) == [2] and verdict.mechanism == "host_stuck", told(verdict)


def test_a_gpu_that_no_longer_ends_what_its_peers_have_ended(tmp_path: Path) -> None:
    job = Job(8)
    job.steps(6)
    job.call("all_reduce", ended=[rank for rank in range(8) if rank != 4])
    job.call("all_reduce", ended=False)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, surely_named(verdict)) == ("gpu_hang", [4]), told(verdict)


@pytest.mark.parametrize("version", ["1.4", "2.4", "2.10"])
def test_all_came_and_none_finished_names_nobody(version: str, tmp_path: Path) -> None:
    """Without start events a GPU that never began and a network that carries nothing look the same."""
    job = Job(4, version=version)
    job.steps(6)
    job.call("all_reduce", ended=False)

    verdict = job.verdict(tmp_path)

    assert verdict.mechanism == "undecided" and named(verdict) == [], told(verdict)
    assert verdict.cause == "undecided"
    assert set(verdict.group_ranks) == {0, 1, 2, 3}
    assert "GPU side" in verdict.says or any("GPU side" in proof.says for proof in verdict.because), told(verdict)


def test_only_the_group_that_does_not_finish_is_named(tmp_path: Path) -> None:
    job = Job(8)
    job.parallel(tensor=4)
    job.steps(4)
    job.call("all_reduce", "tp0", ended=True, at="layers.py:41")
    job.call("all_reduce", "tp1", ended=False, at="layers.py:41")
    for pair in range(4):
        job.call("all_reduce", f"dp{pair}", ended=False)

    verdict = job.verdict(tmp_path)

    assert named(verdict) == [] and set(verdict.group_ranks) == {4, 5, 6, 7}, told(verdict)


def test_with_start_events_all_started_is_the_network(tmp_path: Path) -> None:
    job = Job(4, events=True)
    job.steps(6)
    job.call("all_reduce", ended=False, started=True)

    verdict = job.verdict(tmp_path)

    assert verdict.mechanism == "network" and named(verdict) == [], told(verdict)
    assert set(verdict.group_ranks) == {0, 1, 2, 3}


def test_with_start_events_the_one_that_never_started(tmp_path: Path) -> None:
    job = Job(4, events=True)
    job.steps(6)
    job.call("all_reduce", ended=False, started=[0, 1, 3], seen=job.now + 605)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, surely_named(verdict)) == ("gpu_hang", [2]), told(verdict)


def test_a_call_of_a_moment_ago_may_yet_begin(tmp_path: Path) -> None:
    job = Job(4, events=True)
    job.steps(6)
    job.call("all_reduce", ended=False, started=[0, 1, 3], seen=job.now + 3)

    verdict = job.verdict(tmp_path)

    assert surely_named(verdict) == [] and verdict.mechanism in ("undecided", "no_hang"), told(verdict)


def test_a_limit_that_transfers_in_a_queue_outlast(tmp_path: Path) -> None:
    """Each took 200 s; the last was called at once with the others and waited for them: 600 s were over."""
    job = Job(4, timeout_s=600)
    job.steps(6)
    start = job.now
    for number in range(1, 5):
        ended = number < 4
        job.call("broadcast", sizes=[[1 << 30]], at="load.py:12", ended=ended, seen=start + 190.0 * number)

    verdict = job.verdict(tmp_path)

    assert verdict.mechanism == "timeout_short", told(verdict)
    assert named(verdict) == [], told(verdict)
    assert verdict.cause == "timeout_too_short" or verdict.cause == "undecided", told(verdict)


def test_who_left_no_dump_took_part_in_a_queue_that_went_on(tmp_path: Path) -> None:
    job = Job(8, timeout_s=600)
    job.steps(6)
    start = job.now
    for number in range(1, 5):
        job.call("broadcast", sizes=[[1 << 30]], ended=number < 4, seen=start + 190.0 * number)

    verdict = job.verdict(tmp_path, but=[5])

    assert verdict.mechanism == "timeout_short", told(verdict)
    assert named(verdict) == [], told(verdict)


def test_a_job_that_has_ended_hangs_nowhere(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(30)
    job.call("barrier", at="train.py:99")

    verdict = job.verdict(tmp_path)

    assert verdict.mechanism == "no_hang" and verdict.cause == "none", told(verdict)
    assert named(verdict) == []


def test_a_job_that_goes_on_while_it_is_looked_at(tmp_path: Path) -> None:
    """Dumps taken one after the other: on rank 3, the last, calls have ended that rank 0 had not yet made."""
    job = Job(4)
    job.steps(30)
    job.call("all_reduce", ended=[1, 2, 3])
    job.call("all_reduce", but=[0], ended=[2, 3])
    job.call("all_reduce", but=[0, 1], ended=[3])
    job.call("all_reduce", only=[3], ended=False)

    verdict = job.verdict(tmp_path)

    assert verdict.mechanism == "no_hang", told(verdict)
    assert named(verdict) == []


def test_who_reads_the_answer_sees_the_entry_that_proves_it(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(6)
    job.call("all_reduce", but=[2], ended=False, at="train.py:120")

    verdict = job.verdict(tmp_path)

    sources = {Path(proof.source).name for proof in verdict.because}
    assert "nccl_trace_rank_2" in sources, verdict.because
    assert any("train.py:120" in proof.excerpt for proof in verdict.because), verdict.because
    assert verdict.rank_grade in SURE
