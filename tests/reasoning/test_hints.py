"""What frameworks say of slow and sick ranks: a clue, never a proof."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import LAYOUTS, SURE, Incident, named, told

every_layout = pytest.mark.parametrize("layout", LAYOUTS)
WARNING = "STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: {{StragglerId(rank={rank}, node='node-01')}}"


@every_layout
@pytest.mark.parametrize("rank", [2, 5])
def test_a_straggler_report_proves_nothing(rank: int, layout: str, tmp_path: Path) -> None:
    """Rank 5 did not arrive; the detector named it, or an innocent one, some steps before."""
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 120)
    job.say(end + 0.1, 0, WARNING.format(rank=rank))
    end = job.steps(121, 140, at=end + 1)
    job.time_out(end + 603, seq=141, but=[5])
    verdict = job.verdict(tmp_path)

    assert verdict.grade not in SURE, told(verdict)
    assert set(named(verdict)) <= {5}, told(verdict)


def monitored(section: str, layout: str) -> Incident:
    """No collective timeout: rank monitors see the hang first and end all ranks."""
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 140)
    for rank in range(8):
        where = section if rank == 6 else "step"
        text = f"[2026-11-30 05:20:0{rank},123] [WARNING] [RankMonServer33{rank}@{job.host(rank)}:{rank}] Section '{where}' has been open for 901.20 seconds. Timeout is 900.00 seconds."
        job.raw(end + 901 + 0.1 * rank, "monitors.log", text)
    for rank in range(8):
        job.raw(
            end + 903 + 0.1 * rank,
            "monitors.log",
            f"[2026-11-30 05:20:1{rank},000] [ERROR] failed (exitcode: -9) local_rank: {rank % 4} (pid: {41200 + rank}) of binary: /usr/bin/python",
        )
    return job


@every_layout
def test_the_section_of_a_rank_monitor_tells_where_it_stood(layout: str, tmp_path: Path) -> None:
    verdict = monitored("checkpointing", layout).verdict(tmp_path)

    assert verdict.cause == "slow_checkpoint", told(verdict)
    assert verdict.grade not in SURE, told(verdict)
    assert named(verdict) == [6], told(verdict)


@every_layout
def test_what_a_rank_monitor_ends_was_not_killed_for_memory(layout: str, tmp_path: Path) -> None:
    verdict = monitored("step", layout).verdict(tmp_path)

    assert verdict.cause not in ("host_oom", "killed") or verdict.grade not in SURE, told(verdict)


@every_layout
def test_a_bar_without_a_name_belongs_to_the_evaluation_above_it(layout: str, tmp_path: Path) -> None:
    """Hugging Face prints the evaluation's bar bare: it counts to another end than the training's."""
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 130)
    job.say(end + 1, 0, "***** Running Evaluation *****")
    for number in range(1, 12):
        bar = f" {number * 3:2d}%|{'#' * number}          | {number * 150}/5150 [{number:02d}:00<30:00,  2.42it/s]"
        job.say(end + 1 + 60 * number, 0, bar)
    job.time_out(end + 603, seq=131, but=[0])
    verdict = job.verdict(tmp_path)

    assert verdict.cause == "rank0_only_work", told(verdict)
    assert named(verdict) == [0], told(verdict)
