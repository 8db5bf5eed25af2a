"""The limit itself: not in force, or too short for work that went on."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import LAYOUTS, SURE, Incident, named, told

every_layout = pytest.mark.parametrize("layout", LAYOUTS)
generations = pytest.mark.parametrize("torch", ["2.1", "2.3", "2.5", "2.7"])


def evaluating(layout: str, torch: str = "2.7", *, limit_s: int = 600, setting: str = "") -> Incident:
    """Rank 0 evaluates, steadily, while all others wait for it."""
    job = Incident(layout=layout, torch=torch, limit_s=limit_s)
    if setting:
        job.say(0.5, 0, setting)
    job.init()
    end = job.steps(100, 130)
    for number in range(1, 41):
        job.say(end + 20 * number, 0, f"evaluating dev set: {number * 25}/4000 documents")
    job.time_out(end + limit_s + 3, seq=131, but=[0])
    return job


@every_layout
@generations
@pytest.mark.parametrize(
    "setting",
    [
        "init_process_group(backend=nccl, timeout=timedelta(hours=2))",
        "config: ddp_timeout=7200, seed=17",
        "process group timeout 2:00:00",
    ],
)
def test_a_setting_that_is_not_in_force(setting: str, layout: str, torch: str, tmp_path: Path) -> None:
    verdict = evaluating(layout, torch, setting=setting).verdict(tmp_path)

    assert verdict.cause == "timeout_not_applied", told(verdict)
    assert verdict.action.do == "raise_timeout" or verdict.grade not in SURE, told(verdict)


@every_layout
def test_nobody_reads_nccl_timeout(layout: str, tmp_path: Path) -> None:
    job = evaluating(layout)
    job.raw(
        -5,
        "run.sbatch",
        "#!/bin/bash\n#SBATCH --nodes=2\nexport NCCL_TIMEOUT=7200\nsrun torchrun --nnodes 2 --nproc-per-node 4 train.py",
    )

    verdict = job.verdict(tmp_path)

    assert verdict.cause == "timeout_not_applied", told(verdict)
    assert any("NCCL_TIMEOUT" in proof.excerpt for proof in verdict.because), told(verdict)


@every_layout
def test_a_subgroup_does_not_inherit_the_limit(layout: str, tmp_path: Path) -> None:
    job = Incident(layout=layout)
    job.say(0.5, 0, "init_process_group(backend=nccl, timeout=timedelta(hours=2))")
    job.init()
    end = job.steps(100, 130)
    for number in range(1, 41):
        job.say(end + 20 * number, 0, f"evaluating dev set: {number * 25}/4000 documents")
    job.time_out(end + 603, seq=131, but=[0], group="eval_group", group_id=4, members=job.ranks)

    verdict = job.verdict(tmp_path)

    assert verdict.cause == "timeout_not_applied", told(verdict)
    assert "eval_group" in " ".join([verdict.says, *(proof.says for proof in verdict.because)]), told(verdict)


@every_layout
@pytest.mark.parametrize(
    "setting",
    [
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800",
        "DataLoader(num_workers=8, timeout=1800)",
        "rendezvous join_timeout=1800",
        "s3 client: read_timeout=3600 connect_timeout=60",
        "init_process_group(backend=nccl, timeout=timedelta(minutes=10))",
    ],
)
def test_other_limits_are_not_the_collectives(setting: str, layout: str, tmp_path: Path) -> None:
    verdict = evaluating(layout, setting=setting).verdict(tmp_path)

    assert verdict.cause != "timeout_not_applied", told(verdict)
    assert verdict.action.do != "raise_timeout" or verdict.cause == "timeout_too_short"


@every_layout
@generations
def test_work_that_ends_just_after_the_limit(layout: str, torch: str, tmp_path: Path) -> None:
    """Rank 0 writes ten shards; the watchdogs fire during the ninth, and it goes on to the end."""
    job = Incident(layout=layout, torch=torch, limit_s=120)
    job.init()
    end = job.steps(100, 130)
    for number in range(1, 11):
        job.say(end + 1 + 14 * number, 0, f"consolidating checkpoint: shard {number}/10 written")
    job.time_out(end + 123, seq=131, but=[0])
    job.say(end + 145, 0, "consolidating checkpoint: done, all 10 shards written")

    verdict = job.verdict(tmp_path)

    assert verdict.cause in ("timeout_too_short", "slow_checkpoint"), told(verdict)
    assert verdict.cause == "timeout_too_short", told(verdict)
    assert set(named(verdict)) <= {0}, told(verdict)
    assert verdict.action.do == "raise_timeout" or verdict.grade not in SURE, told(verdict)


@every_layout
def test_work_that_was_far_from_its_end_is_no_short_limit(layout: str, tmp_path: Path) -> None:
    """A quarter of the evaluation in ten minutes: a longer limit hides it, the fix is another."""
    verdict = evaluating(layout).verdict(tmp_path)

    assert verdict.cause == "rank0_only_work", told(verdict)
    assert named(verdict) == [0], told(verdict)
    assert verdict.action.do != "raise_timeout", told(verdict)


@every_layout
def test_a_dead_rank_is_no_question_of_the_limit(layout: str, tmp_path: Path) -> None:
    """A setting of two hours beside a limit of ten minutes, and a rank that raised: it would not have come in two hours either."""
    job = Incident(layout=layout)
    job.say(0.5, 0, "init_process_group(backend=nccl, timeout=timedelta(hours=2))")
    job.init()
    end = job.steps(100, 130)
    job.crash(end + 1, 5)
    job.time_out(end + 602, seq=131, but=[5])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("exception", [5]), told(verdict)
    assert verdict.action.do == "fix_code", told(verdict)


@pytest.mark.parametrize("layout", ["merged", "per-rank"])
def test_a_wait_does_not_begin_before_the_ranks_own_last_step(layout: str, tmp_path: Path) -> None:
    """gloo's errors have no stamp: the one before them is that of the last step, 60 s of waiting after which they came."""
    job = Incident(ranks=4, hosts=1, layout=layout)
    end = job.steps(1, 60, until={2: 40})
    for rank in (0, 1, 3):
        job.stderr(
            end + 60,
            rank,
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 60000ms for recv operation to complete",
        )

    report = job.report(tmp_path)

    since = {row.rank: row.since for row in report.ranks}
    last = f"{job.when(end):%Y-%m-%dT%H:%M:%S}"
    assert all((since[rank] or last) >= last for rank in (0, 1, 3)), since
