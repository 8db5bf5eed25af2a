"""What to do next: no node is shut out without proof, no step is promised that was not saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import LAYOUTS, Incident, named, told

every_layout = pytest.mark.parametrize("layout", LAYOUTS)


def begun(layout: str) -> tuple[Incident, float]:
    job = Incident(layout=layout)
    job.init()
    return job, job.steps(100, 130)


@every_layout
def test_a_lost_gpu_shuts_its_node_out(layout: str, tmp_path: Path) -> None:
    job, end = begun(layout)
    job.excusable = {"node-02"}
    job.kernel(
        end + 1,
        "node-02",
        "NVRM: Xid (PCI:0000:2b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    )
    job.crash(end + 2, 5, "RuntimeError", "CUDA error: unspecified launch failure")
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("gpu_fault", [5]), told(verdict)
    assert (verdict.action.do, verdict.action.exclude_hosts) == ("restart_excluding", ("node-02",)), told(verdict)
    assert any("node-02" in command for command in verdict.action.commands)


@every_layout
@pytest.mark.parametrize("how", ["silent", "exception", "killed", "oom", "everyone"])
def test_software_and_guesses_shut_no_node_out(how: str, layout: str, tmp_path: Path) -> None:
    job, end = begun(layout)
    if how == "exception":
        job.crash(end + 1, 5)
    elif how == "killed":
        job.killed(end + 1, 5)
    elif how == "oom":
        job.oom(end + 1, "node-02", job.pid(5))
    job.time_out(end + 602, seq=131, but=[] if how == "everyone" else [5] if how != "killed" else [4, 5, 6, 7])

    verdict = job.verdict(tmp_path)

    assert verdict.action.exclude_hosts == (), told(verdict)
    assert verdict.action.do != "restart_excluding", told(verdict)


@every_layout
def test_resume_from_the_last_finished_checkpoint(layout: str, tmp_path: Path) -> None:
    job = Incident(layout=layout)
    job.init()
    first = job.steps(100, 110)
    job.checkpoint(first + 1, 110)
    second = job.steps(111, 120, at=first + 3)
    job.checkpoint(second + 1, 120)
    end = job.steps(121, 127, at=second + 3)
    job.crash(end + 1, 5)
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert verdict.action.resume_from_step == 120, told(verdict)
    assert "120" in verdict.action.says


@every_layout
def test_a_checkpoint_that_was_only_begun_is_none(layout: str, tmp_path: Path) -> None:
    job = Incident(layout=layout)
    job.init()
    first = job.steps(100, 110)
    job.checkpoint(first + 1, 110)
    end = job.steps(111, 120, at=first + 3)
    job.say(end + 0.5, 0, "saving checkpoint of step 120 to /ckpt/run/step_120")
    job.crash(end + 1, 5)
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert verdict.action.resume_from_step == 110, told(verdict)


@every_layout
def test_no_checkpoint_no_step(layout: str, tmp_path: Path) -> None:
    job, end = begun(layout)
    job.say(5, 0, "checkpoints will be saved every 500 steps to /ckpt/run")
    job.crash(end + 1, 5)
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert verdict.action.resume_from_step is None, told(verdict)


@every_layout
def test_every_rank_reports_the_same_checkpoint(layout: str, tmp_path: Path) -> None:
    """Seven shards of step 120 are written, rank 5's is not: 110 is the last that is whole."""
    job = Incident(layout=layout)
    job.init()
    first = job.steps(100, 110)
    for rank in job.ranks:
        job.say(first + 1 + 0.01 * rank, rank, f"checkpoint step 110 saved, shard {rank}")
    job.saved.append((first, 110))
    end = job.steps(111, 120, at=first + 3)
    for rank in job.others(5):
        job.say(end + 1 + 0.01 * rank, rank, f"checkpoint step 120 saved, shard {rank}")
    job.crash(
        end + 1.5, 5, "OSError", "[Errno 28] No space left on device: '/ckpt/run/step_120/shard_5'", "/work/save.py"
    )
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert verdict.action.resume_from_step == 110, told(verdict)


@every_layout
def test_a_checkpoint_of_the_attempt_before_counts(layout: str, tmp_path: Path) -> None:
    """What was restored is the last that is known to be whole."""
    job = Incident(layout=layout)
    job.say(1, 0, "resumed from checkpoint step 99")
    job.saved.append((0, 99))
    job.init()
    end = job.steps(100, 130)
    job.crash(end + 1, 5)
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert verdict.action.resume_from_step == 99, told(verdict)


@every_layout
@pytest.mark.parametrize("how", ["silent", "killed", "everyone"])
def test_nothing_known_raises_no_timeout(how: str, layout: str, tmp_path: Path) -> None:
    job, end = begun(layout)
    if how == "killed":
        job.killed(end + 1, 5)
    job.time_out(end + 602, seq=131, but=[] if how == "everyone" else [5] if how == "silent" else [4, 5, 6, 7])

    report = job.report(tmp_path)

    for verdict in report.verdicts:
        assert verdict.action.do != "raise_timeout", told(verdict)
        assert "raise the timeout" not in verdict.action.says.lower()


@every_layout
def test_a_live_job_is_left_alone(layout: str, tmp_path: Path) -> None:
    job = Incident(layout=layout)
    job.init()
    job.steps(100, 160)

    verdict = job.verdict(tmp_path)

    assert verdict.action.do in ("none", "wait"), told(verdict)
    assert verdict.action.exclude_hosts == () and verdict.action.resume_from_step is None


@every_layout
def test_a_grade_of_the_action_is_no_better_than_the_causes(layout: str, tmp_path: Path) -> None:
    order = ("undecided", "possible", "likely", "proven")
    job, end = begun(layout)
    job.killed(end + 1, 5)
    job.time_out(end + 602, seq=131, ranks=[0, 1, 2, 3])

    for verdict in job.report(tmp_path).verdicts:
        assert order.index(verdict.action.grade) <= order.index(verdict.grade), told(verdict)
