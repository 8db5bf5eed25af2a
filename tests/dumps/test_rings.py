"""What a ring holds and what it lost, which dumps belong together, whose each is."""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path

import pytest
from incident import SURE, named, surely_named, told
from recorded import Job, report_on

from whichrank.diagnosis import diagnose


def hang(world: int = 4, culprit: int = 2, **how: object) -> Job:
    job = Job(world, **how)  # type: ignore[arg-type]
    job.steps(6)
    job.call("all_reduce", but=[culprit], ended=False)
    return job


# ---- evicted is not missing


@pytest.mark.parametrize("version", ["list", "1.4", "2.4", "2.10"])
def test_what_a_ring_lost_was_not_left_out(version: str, tmp_path: Path) -> None:
    job = Job(4, version=version)
    job.steps(200)
    job.call("all_reduce", but=[2], ended=False)

    verdict = job.verdict(tmp_path, ring=5)

    assert (verdict.mechanism, named(verdict)) == ("host_stuck", [2]), told(verdict)


def test_a_group_that_left_the_ring_long_ago_is_no_absence(tmp_path: Path) -> None:
    """Rank 3 used the data group before its many calls in the tensor group pushed that out of its ring."""
    job = Job(4)
    job.parallel(tensor=2)
    job.steps(3)
    for _ in range(40):
        job.call("all_reduce", "tp1", at="layers.py:41")
    job.call("all_reduce", "dp1", only=[1], ended=False)
    job.call("all_reduce", "dp0", only=[0], ended=False)
    job.call("all_reduce", "tp1", only=[2], ended=False, at="layers.py:41")

    verdict = job.verdict(tmp_path, ring=10)

    assert named(verdict) == [3], told(verdict)


# ---- only what is unfinished


@pytest.mark.parametrize("as_json", [False, True])
def test_dumps_of_active_calls_only(as_json: bool, tmp_path: Path) -> None:
    """The culprit's holds no call at all; its group's counters say how far it came."""
    verdict = hang(as_json=as_json).verdict(tmp_path, only_active=True)

    assert (verdict.mechanism, named(verdict)) == ("host_stuck", [2]), told(verdict)


def test_leftovers_of_batches_in_active_dumps_are_no_waits(tmp_path: Path) -> None:
    job = Job(4)
    for _ in range(3):
        for rank in range(4):
            job.batch(rank, [("send", (rank + 1) % 4), ("recv", (rank - 1) % 4)])
        job.call("all_reduce")
    job.call("all_reduce", but=[2], ended=False)

    verdict = job.verdict(tmp_path, only_active=True)

    assert surely_named(verdict) in ([], [2]), told(verdict)


# ---- names of groups


@pytest.mark.parametrize("version", ["list", "1.4"])
def test_groups_without_names_are_not_mistaken_for_each_other(version: str, tmp_path: Path) -> None:
    """Numbers of groups are a process's own: group 1 of ranks 0 and 1 is not group 1 of ranks 2 and 3."""
    job = Job(4, version=version)
    job.parallel(tensor=2)
    job.steps(5)
    job.call("all_reduce", "tp0", at="layers.py:41")
    job.call("all_reduce", "tp1", only=[3], ended=False, at="layers.py:41")
    job.call("all_reduce", "dp0", only=[0], ended=False)
    job.call("all_reduce", "dp1", only=[1], ended=False)

    verdict = job.verdict(tmp_path)

    assert surely_named(verdict) in ([], [2]), told(verdict)


# ---- which dumps


def test_a_dump_left_over_from_an_earlier_run_is_none_of_this_one(tmp_path: Path) -> None:
    """Rank 1 died and wrote nothing, but an hour ago it had."""
    earlier = Job(4)
    earlier.steps(3)
    job = Job(4)
    job.wait(3600)
    job.steps(6)
    job.call("all_reduce", but=[1], ended=False)
    paths = job.write(tmp_path, but=[1])
    old = Path(paths[0]).with_name("nccl_trace_rank_1")
    old.write_bytes(earlier.dump(1))

    report = report_on(tmp_path)

    verdict = report.verdicts[0]
    assert (verdict.mechanism, named(verdict)) == ("dead", [1]), told(verdict)
    assert any(gap.what.endswith("nccl_trace_rank_1") and "earlier run" in gap.why for gap in report.gaps)


def test_a_whole_earlier_attempt_beside_this_one(tmp_path: Path) -> None:
    earlier = hang(culprit=1)
    earlier.write(tmp_path, names="attempt_0/nccl_trace_rank_{rank}")
    job = Job(4)
    job.wait(3600)
    job.steps(6)
    job.call("all_reduce", but=[3], ended=False)
    job.write(tmp_path, names="attempt_1/nccl_trace_rank_{rank}")

    report = report_on(tmp_path)

    mechanisms = {verdict.mechanism for part in (report, *report.incidents) for verdict in part.verdicts[:1]}
    assert mechanisms == {"host_stuck"}
    last = report.incidents[-1] if report.incidents else report
    assert named(last.verdicts[0]) == [3], told(last.verdicts[0])


def test_one_rank_twice(tmp_path: Path) -> None:
    job = hang()
    paths = job.write(tmp_path)
    copy = Path(paths[1]).parent / "copy" / Path(paths[1]).name
    copy.parent.mkdir()
    shutil.copy(paths[1], copy)

    report = report_on(tmp_path)

    assert surely_named(report.verdicts[0]) == [2]
    assert any("copy" in gap.why and "rank 1" in gap.why for gap in report.gaps), report.gaps


def test_of_two_dumps_of_a_rank_the_later_counts(tmp_path: Path) -> None:
    """Asked for while it still ran, then written by the watchdog."""
    job = Job(4)
    job.steps(6)
    before = job.dump(2)
    job.call("all_reduce")
    job.call("all_reduce", but=[1], ended=False)
    paths = job.write(tmp_path)
    first = Path(paths[0]).parent / "by-hand" / "nccl_trace_rank_2"
    first.parent.mkdir()
    first.write_bytes(before)

    assert surely_named(report_on(tmp_path).verdicts[0]) == [1]


# ---- whose


@pytest.mark.parametrize(
    "names",
    [
        "nccl_trace_rank_{rank}",
        "node-7/comm_lib_trace_rank_{rank}",
        "fr_{rank}.pickle",
        "run-0042_fr_rank{rank:05d}.pkl",
        "rank_{rank}/dump.pickle",
    ],
)
def test_the_rank_stands_in_the_name(names: str, tmp_path: Path) -> None:
    assert surely_named(hang().verdict(tmp_path, names=names)) == [2]


def test_a_dump_without_a_rank_in_its_name_is_told_by_its_groups(tmp_path: Path) -> None:
    job = Job(4)
    job.parallel(tensor=2)
    job.call("all_reduce")
    job.steps(5)
    job.call("all_reduce", "tp0", at="layers.py:41")
    job.call("all_reduce", "tp1", only=[3], ended=False, at="layers.py:41")
    job.call("all_reduce", "dp0", only=[0], ended=False)
    job.call("all_reduce", "dp1", only=[1], ended=False)
    letters = "abcd"
    for rank, path in enumerate(map(Path, job.write(tmp_path))):
        path.rename(path.with_name(f"dump-{letters[rank]}"))

    verdict = report_on(tmp_path).verdicts[0]

    assert named(verdict) == [2], told(verdict)


def test_a_name_that_the_groups_contradict_is_not_believed(tmp_path: Path) -> None:
    job = Job(4)
    job.parallel(tensor=2)
    job.steps(5)
    job.call("all_reduce", "tp0", at="layers.py:41")
    job.call("all_reduce", "tp1", only=[3], ended=False, at="layers.py:41")
    job.call("all_reduce", "dp0", only=[0], ended=False)
    job.call("all_reduce", "dp1", only=[1], ended=False)
    path = Path(job.write(tmp_path, but=[2])[0])
    path.with_name("nccl_trace_rank_0_copy_1").write_bytes(job.dump(2))

    report = report_on(tmp_path)

    assert named(report.verdicts[0]) == [2], told(report.verdicts[0])
    assert any("only rank 2 is in all of its groups" in gap.why for gap in report.gaps), report.gaps


def test_nothing_tells_whose_a_dump_is(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(3)
    path = tmp_path / "dump"
    path.write_bytes(job.dump(1))

    report = diagnose([str(path)])

    assert any("does not say of which rank" in gap.why for gap in report.gaps), report.gaps
    assert named(report.verdicts[0]) == []


# ---- broken


@pytest.mark.parametrize("damage", ["empty", "cut", "other"])
def test_a_broken_dump_is_a_gap_and_the_others_are_still_diagnosed(damage: str, tmp_path: Path) -> None:
    job = hang(world=8)
    path = Path(job.write(tmp_path)[6])
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "other": b"\x80\x02}q\x00."}[damage])

    report = report_on(tmp_path)

    assert named(report.verdicts[0]) == [2], told(report.verdicts[0])
    assert any("rank_6" in gap.what for gap in report.gaps), report.gaps


def test_two_versions_in_one_job(tmp_path: Path) -> None:
    """One node has an older image."""
    old, new = hang(version="2.4"), hang(version="2.10")
    for rank, path in enumerate(map(Path, new.write(tmp_path))):
        if rank in (0, 1):
            path.write_bytes(old.dump(rank))

    assert surely_named(report_on(tmp_path).verdicts[0]) == [2]


def test_fewer_ranks_told_than_there_are(tmp_path: Path) -> None:
    paths = hang().write(tmp_path)

    verdict = diagnose(paths, world_size=2).verdicts[0]

    assert named(verdict) == [2], told(verdict)


def test_one_dump_alone_names_nobody_for_certain(tmp_path: Path) -> None:
    """It waits; for whom, the other three dumps would say."""
    paths = hang().write(tmp_path)

    verdict = diagnose(paths[:1]).verdicts[0]

    assert verdict.rank_grade not in SURE, told(verdict)
    assert verdict.mechanism != "no_hang", told(verdict)


@pytest.mark.parametrize(("backend", "page"), [("gloo", "fr_trace_json"), ("nccl", "dump_nccl_trace_json")])
def test_a_page_of_the_debug_server_holds_all_ranks(backend: str, page: str, tmp_path: Path) -> None:
    """After torch/distributed/debug/_frontend.py (2.13): indented JSON, escaped, below a heading for each rank."""
    job = hang(backend=backend, as_json=True)
    answers = []
    for rank in range(4):
        shown = html.escape(json.dumps(json.loads(job.dump(rank, only_active=backend == "nccl")), indent=2))
        heading = f"        <h2>Rank {rank}: http://node-{rank // 2}:4{rank}985/handler/{page}?</h2>"
        answers.append(f"{heading}\n        \n            <pre>{shown}</pre>\n        \n")
    head = (
        "<!doctype html>\n<head>\n    <title>FlightRecorder - PyTorch Distributed</title>\n</head>\n"
        "<body>\n<nav>\n    <h1>Torch Distributed Debug Server</h1>\n</nav>\n"
    )
    path = tmp_path / "job" / "fr_trace.html"
    path.parent.mkdir()
    path.write_text(head + "\n".join(answers) + "\n</body>\n")

    verdict = report_on(tmp_path).verdicts[0]

    assert (verdict.mechanism, named(verdict), verdict.hosts) == ("host_stuck", [2], ("node-1",)), told(verdict)
