"""Runs and attempts: each has its own sequence numbers, its own failure, and none borrows from the next."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import Incident, named, surely_named, told

from whichrank.diagnosis import diagnose
from whichrank.model import Report


def two_attempts(layout: str, *, second_seq: int = 21, second_silent: int = 5, recovered: bool = False) -> Incident:
    """Attempt 0 hangs in operation 5131 because rank 5 is gone quiet, attempt 1 in its operation 21."""
    job = Incident(layout=layout, torch="2.7", hosts=2 if layout != "attempt-dir" else 1)
    job.init()
    end = job.steps(100, 130)
    job.time_out(end + 602, seq=5131, but=[5])
    job.restarts(end + 640)
    if layout == "attempt-dir":
        job.prefix = "attempt_1"
    job.init(end + 660)
    again = job.steps(100, 120, at=end + 670)
    if recovered:
        job.finishes(again + 5)
    else:
        job.time_out(again + 602, seq=second_seq, but=[second_silent])
    return job


@pytest.mark.parametrize("layout", ["merged", "per-node"])
def test_sequence_numbers_begin_anew_with_an_attempt(layout: str, tmp_path: Path) -> None:
    report = two_attempts(layout).report(tmp_path)
    verdict = report.verdicts[0]

    assert len(report.incidents) == 2, [told(part.verdicts[0]) for part in report.incidents]
    assert not verdict.cause.startswith("desync"), told(verdict)
    assert [part.verdicts[0].seq for part in report.incidents] == [5131, 21]
    assert named(verdict) == [5], told(verdict)


def test_attempt_folders_are_attempts(tmp_path: Path) -> None:
    report = two_attempts("attempt-dir").report(tmp_path)

    assert len(report.incidents) == 2, [told(part.verdicts[0]) for part in report.incidents]
    assert [part.verdicts[0].seq for part in report.incidents] == [5131, 21]
    assert all(named(part.verdicts[0]) == [5] for part in report.incidents), [
        told(part.verdicts[0]) for part in report.incidents
    ]


@pytest.mark.parametrize("layout", ["merged", "per-node", "attempt-dir"])
def test_another_rank_in_the_second_attempt(layout: str, tmp_path: Path) -> None:
    report = two_attempts(layout, second_silent=2).report(tmp_path)

    assert [named(part.verdicts[0]) for part in report.incidents] == [[5], [2]], [
        told(part.verdicts[0]) for part in report.incidents
    ]


@pytest.mark.parametrize("layout", ["merged", "per-node"])
def test_a_run_that_recovered_and_ended_well_is_none(layout: str, tmp_path: Path) -> None:
    report = two_attempts(layout, recovered=True).report(tmp_path)

    assert report.verdicts[0].cause == "none", told(report.verdicts[0])
    assert report.exit_code == 0
    assert [named(part.verdicts[0]) for part in report.incidents if part.verdicts[0].cause != "none"] == [[5]], [
        told(part.verdicts[0]) for part in report.incidents
    ]


@pytest.mark.parametrize("layout", ["merged", "per-node"])
def test_the_attempt_that_failed_first_answers(layout: str, tmp_path: Path) -> None:
    """Twice the same exception: the first attempt's is the answer."""
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 130)
    job.crash(end + 1, 5)
    job.exits(end + 4, 5, 1, hosts=["node-02"])
    job.restarts(end + 20)
    job.init(end + 40)
    again = job.steps(120, 130, at=end + 50)
    job.crash(again + 1, 5)
    job.exits(again + 4, 5, 1)

    report = job.report(tmp_path)

    assert len(report.incidents) == 2, [told(part.verdicts[0]) for part in report.incidents]
    assert (report.verdicts[0].cause, named(report.verdicts[0])) == ("exception", [5]), told(report.verdicts[0])
    assert report.verdicts[0].because[0].line == report.incidents[0].verdicts[0].because[0].line


def test_an_oom_of_the_first_attempt_is_not_the_seconds(tmp_path: Path) -> None:
    job = Incident(layout="merged")
    job.init()
    end = job.steps(100, 130)
    job.oom(end + 1, "node-02", job.pid(5))
    job.killed(end + 2, 5)
    job.restarts(end + 20)
    job.first_pid = 51200
    job.init(end + 40)
    again = job.steps(120, 150, at=end + 50)
    job.time_out(again + 602, seq=31, but=[2])

    report = job.report(tmp_path)

    assert [part.verdicts[0].cause for part in report.incidents] == ["host_oom", "undecided"], [
        told(part.verdicts[0]) for part in report.incidents
    ]
    assert named(report.incidents[1].verdicts[0]) == [2], told(report.incidents[1].verdicts[0])


# --- several jobs in one folder ---


def beside(tmp_path: Path, *jobs: Incident) -> Report:
    for job in jobs:
        job.write(tmp_path)
    return diagnose([str(tmp_path / "job")])


def numbered(number: int, **more: object) -> Incident:
    job = Incident(4, 1, layout="per-rank", **more)  # type: ignore[arg-type]
    job.prefix = f"{number}_"
    return job


def test_two_jobs_in_one_folder_are_told_apart(tmp_path: Path) -> None:
    """The same ranks under two job numbers, at the same time: one lost rank 1, the other rank 3."""
    first, second = numbered(30771), numbered(30802, start="2026-11-30 05:01:00", host_name="gn-{:02d}")
    for job, silent in ((first, 1), (second, 3)):
        job.init()
        end = job.steps(100, 130)
        job.crash(end + 1, silent)
        job.time_out(end + 602, seq=131 if silent == 1 else 77, but=[silent])

    report = beside(tmp_path, first, second)

    assert len(report.incidents) == 2, [told(part.verdicts[0]) for part in report.incidents]
    assert sorted(named(part.verdicts[0]) for part in report.incidents) == [[1], [3]], [
        told(part.verdicts[0]) for part in report.incidents
    ]
    assert all(part.verdicts[0].cause == "exception" for part in report.incidents)


@pytest.mark.parametrize(("well", "ill"), [(30771, 30802), (30802, 30771)])
def test_a_healthy_job_beside_a_failed_one(well: int, ill: int, tmp_path: Path) -> None:
    good, bad = numbered(well), numbered(ill)
    for job in (good, bad):
        job.init()
    end = good.steps(100, 130)
    for rank in good.ranks:
        good.say(end + 2, rank, "training finished, 130 steps")
    end = bad.steps(100, 130)
    bad.time_out(end + 602, seq=131, but=[1])

    report = beside(tmp_path, good, bad)
    verdict = report.verdicts[0]

    assert verdict.cause != "none", told(verdict)
    assert named(verdict) == [1], told(verdict)
    assert report.exit_code == 1
    assert sum(part.verdicts[0].cause == "none" for part in report.incidents) == 1, [
        told(part.verdicts[0]) for part in report.incidents
    ]


def test_a_healthy_job_does_not_speak_for_the_other(tmp_path: Path) -> None:
    """Both are merged logs in folders of their own: the success of one is no success of the other."""
    good = Incident(4, 1, layout="merged", folder="job/good")
    bad = Incident(4, 1, layout="merged", folder="job/bad", host_name="gn-{:02d}")
    for job in (good, bad):
        job.init()
    end = good.steps(100, 130)
    good.finishes(end + 5)
    end = bad.steps(100, 130)
    bad.crash(end + 1, 2)
    bad.exits(end + 5, 2, 1)

    report = beside(tmp_path, good, bad)

    assert (report.verdicts[0].cause, named(report.verdicts[0])) == ("exception", [2]), told(report.verdicts[0])
    assert report.exit_code == 1


def test_ranks_of_two_jobs_are_not_one_world(tmp_path: Path) -> None:
    """Job 30771 has 4 ranks, job 30802 has 8: neither lacks the other's."""
    small, large = numbered(30771), Incident(8, 2, layout="per-rank", host_name="gn-{:02d}")
    large.prefix = "30802_"
    for job in (small, large):
        job.init()
        end = job.steps(100, 130)
        job.time_out(end + 602, seq=131)

    report = beside(tmp_path, small, large)

    assert len(report.incidents) == 2, [told(part.verdicts[0]) for part in report.incidents]
    for part in report.incidents:
        assert surely_named(part.verdicts[0]) == [], told(part.verdicts[0])
        assert named(part.verdicts[0]) == [], told(part.verdicts[0])


def stacks_of(job: Incident, *, stuck: int, first_pid: int | None = None) -> str:
    """py-spy's dumps of all ranks, as a shell loop collects them: no stamp anywhere."""
    parts = []
    for rank in range(job.size):
        pid = job.pid(rank) if first_pid is None else first_pid + rank
        frames = (
            ["read (shards.py:88)"] if rank == stuck else ["all_reduce (torch/distributed/distributed_c10d.py:2811)"]
        )
        parts.append(
            f"# {job.host(rank)} RANK={rank}\nProcess {pid}: python train.py\nPython v3.12.7 (/usr/bin/python3.12)\n"
        )
        parts.append(f'Thread {pid} (idle): "MainThread"')
        parts += [f"    {frame}" for frame in (*frames, "train (train.py:210)", "<module> (train.py:301)")]
        parts.append("")
    return "\n".join(parts)


def hang(prefix: str = "") -> Incident:
    job = Incident(layout="per-rank", folder="")
    job.prefix = prefix
    job.init()
    end = job.steps(100, 130)
    job.time_out(end + 602, seq=131, but=[5])
    return job


@pytest.mark.parametrize("name", ["pyspy_0047.txt", "pyspy/20261130_0512.txt", "stacks-1130/all.txt"])
def test_stacks_without_a_stamp_are_no_run_of_their_own(name: str, tmp_path: Path) -> None:
    """Beside the log of a job with its number the number in their name is a time of day."""
    job = hang("job-661902-")
    job.write(tmp_path)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(stacks_of(job, stuck=5))

    report = diagnose([str(tmp_path)])

    assert len(report.incidents) < 2, [told(part.verdicts[0]) for part in report.incidents]
    assert named(report.verdicts[0]) == [5], told(report.verdicts[0])
    assert report.verdicts[0].seq == 131, told(report.verdicts[0])


def test_stacks_alone_still_tell(tmp_path: Path) -> None:
    (tmp_path / "pyspy_0047.txt").write_text(stacks_of(hang(), stuck=5))

    report = diagnose([str(tmp_path)])

    assert named(report.verdicts[0]) == [5], told(report.verdicts[0])


@pytest.mark.parametrize("own", [0, 1])
def test_stacks_beside_two_runs_are_of_the_run_whose_processes_they_name(own: int, tmp_path: Path) -> None:
    """Each run has a folder, the stacks have one too: their pids say whose they are."""
    jobs = []
    for number, start in enumerate(("2026-11-28 05:00:00", "2026-11-30 05:00:00")):
        job = Incident(layout="merged", start=start, first_pid=41200 + 5000 * number, folder=f"run{number}")
        job.init()
        job.time_out(job.steps(100, 130) + 602, seq=131 + number, but=[])
        job.write(tmp_path)
        jobs.append(job)
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "all.txt").write_text(stacks_of(jobs[own], stuck=5))

    report = diagnose([str(tmp_path)])

    assert len(report.incidents) == 2
    assert [named(part.verdicts[0]) == [5] for part in report.incidents] == [own == 0, own == 1], [
        told(part.verdicts[0]) for part in report.incidents
    ]
