"""Healthy jobs, finished jobs, and nothing to read."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import LAYOUTS, Incident, named, told

from whichrank.diagnosis import diagnose

every_layout = pytest.mark.parametrize("layout", LAYOUTS)
ALARMING = (
    "watchdog thread started, collective timeout 600 s",
    "WARNING: NCCL timeout is set to 600 s; a deadlock would abort the job",
    "retrying after error: Connection reset by peer (attempt 1/5), succeeded",
    "skipped a batch: out of memory risk, 41032 tokens",
    "no exceptions, 0 failures, 0 killed workers since the last report",
    "UserWarning: failed to load image Python extension, hang on",
)


@every_layout
@pytest.mark.parametrize("torch", ["2.1", "2.7"])
def test_a_job_that_ended_well_with_alarming_words(layout: str, torch: str, tmp_path: Path) -> None:
    job = Incident(layout=layout, torch=torch)
    job.init()
    for number, text in enumerate(ALARMING):
        job.say(11.5 + 4 * number, number, text)
    end = job.steps(100, 130)
    job.finishes(end + 5)

    report = job.report(tmp_path)

    assert report.verdicts[0].cause == "none", told(report.verdicts[0])
    assert report.exit_code == 0
    assert named(report.verdicts[0]) == []
    assert report.verdicts[0].mechanism == "no_hang"


@every_layout
def test_a_caught_gpu_oom_in_a_job_that_ended_well(layout: str, tmp_path: Path) -> None:
    job = Incident(layout=layout)
    job.init()
    middle = job.steps(100, 110)
    job.crash(middle + 0.5, 2, "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.")
    for rank in job.ranks:
        job.say(middle + 0.8, rank, "one rank ran out of memory: all skip this step")
    end = job.steps(111, 140, at=middle + 2)
    job.finishes(end + 5)

    report = job.report(tmp_path)

    assert report.verdicts[0].cause == "none", told(report.verdicts[0])
    assert report.exit_code == 0


@every_layout
def test_a_neighbours_oom_beside_a_job_that_ended_well(layout: str, tmp_path: Path) -> None:
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 130)
    job.oom(40, "node-02", 77123, comm="vector", memcg="/system.slice/vector.service")
    job.kernel(
        41,
        "node-01",
        "NVRM: Xid (PCI:0000:2b:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping",
    )
    job.finishes(end + 5)

    report = job.report(tmp_path)

    assert report.verdicts[0].cause == "none", told(report.verdicts[0])
    assert report.exit_code == 0


@every_layout
def test_a_job_that_goes_on(layout: str, tmp_path: Path) -> None:
    """No end in the log, and steps to its last line."""
    job = Incident(layout=layout)
    job.init()
    job.steps(100, 160)

    report = job.report(tmp_path)

    assert report.verdicts[0].cause == "none", told(report.verdicts[0])
    assert report.exit_code == 0


@every_layout
def test_success_before_a_failure_is_no_success(layout: str, tmp_path: Path) -> None:
    """The fine-tuning finished, the export after it lost rank 5."""
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 130)
    job.say(end + 3, 0, "training finished, 130 steps")
    for rank in job.ranks:
        job.say(end + 4, rank, "exporting weights, all ranks take part")
    job.crash(end + 10, 5, "KeyError", "'lm_head.weight'", "/work/export.py")
    job.time_out(end + 613, seq=131, but=[5])

    report = job.report(tmp_path)

    assert (report.verdicts[0].cause, named(report.verdicts[0])) == ("exception", [5]), told(report.verdicts[0])
    assert report.exit_code == 1


@every_layout
def test_checkpoints_are_no_success(layout: str, tmp_path: Path) -> None:
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 130)
    job.checkpoint(end + 1, 130)
    job.say(end + 2, 0, "epoch 3 done")
    job.time_out(end + 602, seq=131, but=[5])

    report = job.report(tmp_path)

    assert report.verdicts[0].cause != "none", told(report.verdicts[0])
    assert report.exit_code == 1


@every_layout
def test_a_hang_without_any_error(layout: str, tmp_path: Path) -> None:
    """The last step is an hour old when the logs were taken: somebody's heartbeat goes on, the training does not."""
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 160)
    for minute in range(1, 60):
        job.say(end + 60 * minute, 0, f"gpu monitor: util 100 100 100 100, temp 4{minute % 10} C")

    report = job.report(tmp_path)

    assert report.verdicts[0].cause != "none", told(report.verdicts[0])
    assert named(report.verdicts[0]) == [], told(report.verdicts[0])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert diagnose([str(tmp_path / "nothing")]).exit_code == 2


def test_an_empty_folder(tmp_path: Path) -> None:
    assert diagnose([str(tmp_path)]).exit_code == 2


def test_only_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_bytes(b"")

    assert diagnose([str(tmp_path)]).exit_code == 2


def test_only_binary(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(bytes(range(256)) * 64)

    report = diagnose([str(tmp_path)])

    assert report.exit_code == 2
    assert named(report.verdicts[0]) == []


@pytest.mark.parametrize(
    "text",
    ["", "\n\n\n", "hello\n", "# Notes\n\nWatchdog caught collective operation timeout is what we saw last week.\n"],
)
def test_texts_that_say_nothing_name_nobody(text: str, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(text)

    verdict = diagnose([str(tmp_path)]).verdicts[0]

    assert named(verdict) == []
    assert verdict.cause in ("none", "undecided") and verdict.grade not in ("likely", "proven"), told(verdict)
