"""Dumps alone: ranks that made other calls than their peers, explained at the line that made them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from incident import named, surely_named, told, words
from recorded import Job

from whichrank.report import html

HELD = ["nccl", "gloo"]


def proofs(verdict) -> str:  # type: ignore[no-untyped-def]
    return " ".join(proof.excerpt for proof in verdict.because)


# ---- left out, added


def test_a_collective_left_out_shows_in_another_call_in_its_place(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(6)
    job.call("broadcast", but=[2], ended=False, at="train.py:95")
    job.call("all_reduce", only=[2], ended=False, at="train.py:88")

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, surely_named(verdict)) == ("desync", [2]), told(verdict)
    assert "train.py:95" in proofs(verdict) and "train.py:88" in proofs(verdict), proofs(verdict)


def shifted(frames: bool = True, as_json: bool = False) -> Job:
    """Rank 1 leaves one of two equal calls out: all later ones meet silently, until it is one call short."""
    job = Job(4, frames=frames, as_json=as_json)
    for _ in range(4):
        job.call("all_reduce", at="train.py:88")
        job.call("all_reduce", at="train.py:90")
    job.call("all_reduce", but=[1], at="train.py:88")
    for _ in range(3):
        job.call("all_reduce", at="train.py:90")
        job.call("all_reduce", at="train.py:88")
    job.call("all_reduce", only=[1], at="train.py:90")
    job.call("all_reduce", only=[0, 2, 3], at="train.py:90", ended=False)
    return job


def test_a_silent_skip_is_seen_by_the_lines_that_called(tmp_path: Path) -> None:
    verdict = shifted().verdict(tmp_path)

    assert (verdict.mechanism, surely_named(verdict)) == ("desync", [1]), told(verdict)
    assert "train.py:88" in words(verdict) + proofs(verdict)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_silent_skip_without_stacks_looks_like_a_rank_that_is_behind(as_json: bool, tmp_path: Path) -> None:
    verdict = shifted(frames=False, as_json=as_json).verdict(tmp_path)

    assert named(verdict) == [1], told(verdict)


def test_a_collective_too_many(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(6)
    job.call("all_gather", only=[3], ended=False, at="debug.py:5")
    job.call("all_reduce", but=[3], ended=False)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, surely_named(verdict)) == ("desync", [3]), told(verdict)
    assert "debug.py:5" in proofs(verdict)


# ---- other arguments


@pytest.mark.parametrize("backend", HELD)
@pytest.mark.parametrize(
    "otherwise", [{"sizes": [[1000]]}, {"dtype": "Half"}, {"sizes": [[32, 32]], "dtype": "BFloat16"}], ids=str
)
def test_another_size_or_type(otherwise: dict[str, object], backend: str, tmp_path: Path) -> None:
    job = Job(4, backend=backend)
    job.steps(6)
    job.call("all_reduce", but=[2], ended=False)
    job.call("all_reduce", only=[2], ended=False, **otherwise)  # type: ignore[arg-type]

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, surely_named(verdict)) == ("mismatch", [2]), told(verdict)
    assert verdict.cause == "desync_mismatch", told(verdict)


def test_another_operation(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(6)
    job.call("all_reduce", but=[1], ended=False)
    job.call("reduce", only=[1], ended=False)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, surely_named(verdict)) == ("mismatch", [1]), told(verdict)


def test_one_against_one_names_nobody(tmp_path: Path) -> None:
    job = Job(2)
    job.steps(6)
    job.call("all_reduce", only=[0], ended=False)
    job.call("all_reduce", only=[1], sizes=[[999]], ended=False)

    verdict = job.verdict(tmp_path)

    assert verdict.mechanism == "mismatch", told(verdict)
    assert surely_named(verdict) in ([], [1]), told(verdict)


@pytest.mark.parametrize("as_json", [True, False])
def test_one_against_one_is_settled_by_how_the_call_is_made_elsewhere(as_json: bool, tmp_path: Path) -> None:
    """Of unfinished calls alone: those of other tensor groups, and this group's own that queue behind."""
    job = Job(8, as_json=as_json)
    job.parallel()
    job.steps(4)
    for key in ("tp0", "tp1", "tp2", "tp3"):
        for turn in range(4):
            if (key, turn) == ("tp1", 0):
                job.call("reduce_scatter", key, only=[2], sizes=[[2048]], ended=False)
                job.call("reduce_scatter", key, only=[3], sizes=[[2048]], dtype="Half", ended=False)
            else:
                job.call("reduce_scatter", key, sizes=[[2048]], ended=False)

    verdict = job.verdict(tmp_path, only_active=True)

    assert (verdict.mechanism, surely_named(verdict)) == ("mismatch", [3]), told(verdict)


def test_what_differs_by_right_is_no_mismatch(tmp_path: Path) -> None:
    """Only the root of a gather has an output; an uneven all-to-all has splits of its own on each rank."""
    job = Job(4)
    for _ in range(3):
        job.call("gather", only=[0], outputs=[[4, 1024]])
        job.call("gather", but=[0], outputs=[[0]])
        for rank in range(4):
            job.call("all_to_all", only=[rank], sizes=[[10 + rank, 8]], outputs=[[10 + (rank + 1) % 4, 8]])
    job.call("all_reduce", but=[2], ended=False)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, surely_named(verdict)) == ("host_stuck", [2]), told(verdict)


def test_an_all_to_all_that_gives_out_more_than_it_takes_in(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(4)
    for rank, rows in enumerate([10, 10, 14, 10]):
        job.call("all_to_all", only=[rank], sizes=[[rows, 8]], outputs=[[10, 8]], ended=False, at="moe.py:61")

    verdict = job.verdict(tmp_path)

    assert verdict.mechanism == "mismatch" and surely_named(verdict) == [], told(verdict)
    assert set(verdict.group_ranks) == {0, 1, 2, 3}


# ---- order


def order(swapped: list[int]) -> Job:
    """Each rank is in two groups of four; some call the second first."""
    job = Job(8)
    job.parallel(tensor=4)
    for _ in range(4):
        job.call("all_reduce", "tp0", at="layers.py:41")
        job.call("all_reduce", "tp1", at="layers.py:41")
        for pair in range(4):
            job.call("all_gather", f"dp{pair}", at="optim.py:17")
    for key in ("tp0", "tp1"):
        mine = [rank for rank in job.groups[key].ranks if rank not in swapped]
        job.call("all_reduce", key, only=mine, ended=False, at="layers.py:41")
    for pair in range(4):
        for rank in job.groups[f"dp{pair}"].ranks:
            if rank in swapped:
                job.call("all_gather", f"dp{pair}", only=[rank], ended=False, at="optim.py:17")
    return job


def test_one_rank_that_calls_two_groups_the_other_way_round(tmp_path: Path) -> None:
    job = order([5])
    job.call("all_reduce", "tp1", only=[5], ended=False, at="layers.py:41")

    verdict = job.verdict(tmp_path)

    assert named(verdict) == [5], told(verdict)
    assert verdict.mechanism in ("deadlock", "desync"), told(verdict)


def test_two_ranks_and_two_groups_in_a_circle_name_nobody(tmp_path: Path) -> None:
    """Half of them one way, half the other: neither order is the right one."""
    job = Job(2)
    job.group("a", [0, 1], "first")
    job.group("b", [0, 1], "second")
    for _ in range(4):
        job.call("all_reduce", "a", at="train.py:10")
        job.call("all_reduce", "b", at="train.py:11")
    job.call("all_reduce", "a", only=[0], ended=False, at="train.py:10")
    job.call("all_reduce", "b", only=[1], ended=False, at="train.py:11")
    job.call("all_reduce", "b", only=[0], ended=False, at="train.py:11")
    job.call("all_reduce", "a", only=[1], ended=False, at="train.py:10")

    verdict = job.verdict(tmp_path)

    assert verdict.mechanism == "deadlock", told(verdict)
    assert surely_named(verdict) in ([], [1]), told(verdict)
    assert verdict.cause == "desync_order", told(verdict)


# ---- data


def test_a_rank_out_of_batches_waits_at_the_end(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(6)
    job.call("all_reduce", but=[3], ended=False)
    job.call("barrier", only=[3], sizes=[[1]], ended=False, at="train.py:140")

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, surely_named(verdict)) == ("desync", [3]), told(verdict)
    assert verdict.cause == "desync_uneven_data", told(verdict)
    assert "train.py:140" in proofs(verdict)


def test_the_page_opens_on_the_group_in_which_a_rank_left_the_others(tmp_path: Path) -> None:
    """It keeps its peers of two other groups waiting, more of them in one; its own call is in a third."""
    job = Job(8)
    job.parallel(tensor=4)
    for _ in range(5):
        for key in ("tp0", "tp1", "dp0", "dp1", "dp2", "dp3"):
            job.call("all_reduce", key)
        job.call("barrier", sizes=[[1]], at="train.py:92")
    job.call("all_reduce", "tp0")
    job.call("all_reduce", "tp1", but=[5], ended=False)
    job.call("all_reduce", "dp1", only=[1], ended=False)
    job.call("barrier", only=[5], sizes=[[1]], ended=False, at="train.py:140")
    report = job.report(tmp_path)

    found = re.search(rb'id="data">(.*?)</script>', html.render(report))

    assert found and surely_named(report.verdicts[0]) == [5], told(report.verdicts[0])
    first, *others = json.loads(found[1])["groups"]
    assert first["name"] == "default_pg" and "5D1W" in first["patterns"], first
    assert others[0]["name"] == "tensor" and others[0]["open"]


# ---- sends and receives


def pipeline(steps: int = 5) -> Job:
    """Four stages: each step's activations go down, gradients come back up."""
    job = Job(4)
    for _ in range(steps):
        flow(job, True)
    return job


def flow(job: Job, ended: bool) -> None:
    for stage in range(3):
        job.transfer(stage, stage + 1, ended=ended)
    for stage in (2, 1, 0):
        job.transfer(stage + 1, stage, ended=ended)


def test_a_stage_that_does_not_send(tmp_path: Path) -> None:
    job = pipeline()
    job.transfer(0, 1)
    job.transfer(1, 2, only="recv", ended=False)  # rank 1 is in host code
    job.transfer(2, 3, only="recv", ended=False)
    job.transfer(1, 0, only="recv", ended=False)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, named(verdict)) == ("host_stuck", [1]), told(verdict)


def test_a_send_that_was_left_out(tmp_path: Path) -> None:
    """Rank 1 goes straight on to wait for what its peer can only send after having received."""
    job = pipeline()
    job.transfer(0, 1)
    job.transfer(1, 2, only="recv", ended=False)
    job.transfer(2, 3, only="recv", ended=False)
    job.transfer(2, 1, only="recv", ended=False)
    job.transfer(1, 0, only="recv", ended=False)

    verdict = job.verdict(tmp_path)

    assert named(verdict) in ([], [1]), told(verdict)
    assert verdict.mechanism in ("desync", "undecided", "deadlock"), told(verdict)


def test_batches_that_have_ended_are_no_waits(tmp_path: Path) -> None:
    """Their sends and receives stay scheduled for ever; what closes them carries the state."""
    job = Job(4)
    for _ in range(5):
        for rank in range(4):
            job.batch(rank, [("send", (rank + 1) % 4), ("recv", (rank - 1) % 4)])
        job.call("all_reduce")
    for rank in range(4):
        job.batch(rank, [("send", (rank + 1) % 4), ("recv", (rank - 1) % 4)])
    job.call("all_reduce", but=[1], ended=False)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, surely_named(verdict)) == ("host_stuck", [1]), told(verdict)


def test_a_batch_whose_peer_did_not_come(tmp_path: Path) -> None:
    job = Job(4)
    for _ in range(5):
        for rank in range(4):
            job.batch(rank, [("send", (rank + 1) % 4), ("recv", (rank - 1) % 4)])
    for rank in (0, 2, 3):
        job.batch(rank, [("send", (rank + 1) % 4), ("recv", (rank - 1) % 4)], ended=False)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, named(verdict)) == ("host_stuck", [1]), told(verdict)


def test_numbers_of_sends_differ_between_the_two_ends(tmp_path: Path) -> None:
    """Rank 0 sends to all others: its fourth send is the first that rank 3 receives."""
    job = Job(4)
    for _ in range(4):
        for to in (1, 2, 3):
            job.transfer(0, to)
    job.transfer(0, 1)
    job.transfer(0, 2, only="send", ended=False)
    job.call("barrier", but=[0, 2], sizes=[[1]], ended=False)

    verdict = job.verdict(tmp_path)

    assert named(verdict) == [2], told(verdict)
