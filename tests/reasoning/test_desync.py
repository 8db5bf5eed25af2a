"""Ranks that called different things: sides, and who is wrong only where the evidence says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import LAYOUTS, SURE, Incident, named, surely_named, told

every_layout = pytest.mark.parametrize("layout", LAYOUTS)
generations = pytest.mark.parametrize("torch", ["2.3", "2.5", "2.7"])


def begun(layout: str, torch: str = "2.7") -> tuple[Incident, float]:
    job = Incident(layout=layout, torch=torch)
    job.init()
    return job, job.steps(100, 130)


@every_layout
@generations
def test_one_rank_with_another_size(layout: str, torch: str, tmp_path: Path) -> None:
    job, end = begun(layout, torch)
    job.time_out(end + 602, seq=131, numel=65536, but=[5])
    job.time_out(end + 603, seq=131, numel=65408, ranks=[5])

    verdict = job.verdict(tmp_path)

    assert verdict.family == "desync" or verdict.cause == "undecided", told(verdict)
    assert verdict.mechanism in ("mismatch", "desync"), told(verdict)
    assert set(named(verdict)) <= {5}, told(verdict)
    assert verdict.rank_grade != "proven", "a majority alone proves nobody wrong"


@every_layout
@generations
def test_half_against_half_names_nobody(layout: str, torch: str, tmp_path: Path) -> None:
    job, end = begun(layout, torch)
    job.time_out(end + 602, seq=131, numel=65536, ranks=[0, 1, 2, 3])
    job.time_out(end + 603, seq=131, numel=65408, ranks=[4, 5, 6, 7])

    verdict = job.verdict(tmp_path)

    assert named(verdict) == [], told(verdict)
    assert verdict.family == "desync" or verdict.cause == "undecided", told(verdict)


@every_layout
@generations
def test_one_rank_in_another_operation(layout: str, torch: str, tmp_path: Path) -> None:
    job, end = begun(layout, torch)
    job.time_out(end + 602, seq=131, but=[5])
    job.time_out(end + 603, seq=131, op="BROADCAST", numel=1, ranks=[5])

    verdict = job.verdict(tmp_path)

    assert verdict.family == "desync" or verdict.cause == "undecided", told(verdict)
    assert verdict.mechanism == "desync", told(verdict)
    assert set(named(verdict)) <= {5}, told(verdict)


@every_layout
@generations
def test_ahead_is_not_guilty(layout: str, torch: str, tmp_path: Path) -> None:
    """Ranks 1 and 6 are one operation further: they are named ahead, not guilty."""
    job, end = begun(layout, torch)
    job.time_out(end + 602, seq=131, but=[1, 6])
    job.time_out(end + 603, seq=132, numel=1, ranks=[1, 6])

    report = job.report(tmp_path)
    verdict = report.verdicts[0]

    assert surely_named(verdict) == [], told(verdict)
    assert not {1, 6} & set(named(verdict)), told(verdict)
    rows = {row.rank: row for row in report.ranks}
    assert {row.seq for row in rows.values()} == {131, 132}, "both sides' sequence numbers are printed"


@every_layout
@generations
def test_one_behind_by_its_number(layout: str, torch: str, tmp_path: Path) -> None:
    """Rank 5 waits in 130, all others in 131: 5 is behind, and nothing says why."""
    job, end = begun(layout, torch)
    job.time_out(end + 602, seq=131, but=[5])
    job.time_out(end + 603, seq=130, ranks=[5])

    report = job.report(tmp_path)
    verdict = report.verdicts[0]

    assert set(named(verdict)) <= {5}, told(verdict)
    assert verdict.cause == "undecided" or verdict.family == "desync", told(verdict)


@every_layout
def test_branch_that_one_rank_took(layout: str, tmp_path: Path) -> None:
    """All ranks judge epoch 3 alike; in epoch 4 rank 5 alone finds it better and gathers."""
    job = Incident(layout=layout)
    job.init()
    at = 10.0
    for epoch in (1, 2, 3):
        at = job.steps(epoch * 100, epoch * 100 + 12, at=at) + 2
        for rank in job.ranks:
            job.say(
                at + 0.01 * rank,
                rank,
                f"epoch {epoch} validation loss {2.5 - 0.1 * epoch:.4f} is the best so far, saving the full state",
            )
        at += 5
    at = job.steps(400, 412, at=at) + 2
    for rank in job.ranks:
        what = "is the best so far, saving the full state" if rank == 5 else "is not better than before, next epoch"
        job.say(at + 0.01 * rank, rank, f"epoch 4 validation loss {2.1999 if rank == 5 else 2.2104:.4f} {what}")
    job.time_out(at + 602, seq=431, op="_ALLGATHER_BASE", numel=131072, but=[5])
    job.time_out(at + 603, seq=431, op="_ALLGATHER_BASE", numel=9961472, ranks=[5])

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("desync_conditional", [5]), told(verdict)
    assert verdict.mechanism == "desync", told(verdict)
    assert verdict.action.do == "fix_code", told(verdict)


@every_layout
def test_uneven_numbers_of_batches(layout: str, tmp_path: Path) -> None:
    """Rank 5 has a batch less: it leaves the loop and waits in the barrier at the epoch's end."""
    job = Incident(layout=layout)
    job.init()
    for rank in job.ranks:
        job.say(5 + 0.01 * rank, rank, f"epoch 3: sampler gives {411 if rank == 5 else 412} batches")
    end = job.steps(400, 411)
    job.steps(412, 412, at=end + 2, ranks=job.others(5))
    job.say(end + 2.5, 5, "epoch 3 done, waiting at the barrier")
    job.time_out(end + 604, seq=412, but=[5])
    job.time_out(end + 605, seq=412, op="BARRIER", numel=1, ranks=[5])

    verdict = job.verdict(tmp_path)

    assert verdict.cause == "desync_uneven_data", told(verdict)
    assert named(verdict) == [5], told(verdict)


@every_layout
def test_two_groups_in_opposite_order(layout: str, tmp_path: Path) -> None:
    """Even ranks entered tp before dp, odd ranks dp before tp; both groups span all ranks."""
    job, end = begun(layout)
    job.time_out(end + 602, seq=61, ranks=[0, 2, 4, 6], group="mesh_tp", group_id=2, members=job.ranks, numel=4096)
    job.time_out(end + 603, seq=47, ranks=[1, 3, 5, 7], group="mesh_dp", group_id=3, members=job.ranks, numel=65536)

    verdict = job.verdict(tmp_path)

    assert verdict.cause == "desync_order", told(verdict)
    assert (verdict.mechanism, named(verdict)) == ("deadlock", []), told(verdict)


@every_layout
def test_sequence_numbers_of_two_groups_are_not_compared(layout: str, tmp_path: Path) -> None:
    """Numbers of different groups differ by nature: nobody is behind."""
    job, end = begun(layout)
    job.time_out(end + 602, seq=6100, ranks=[0, 1, 2, 3], group="mesh_tp", group_id=2, members=[0, 1, 2, 3])
    job.time_out(end + 603, seq=47, ranks=[4, 5, 6, 7], group="mesh_tp", group_id=2, members=[4, 5, 6, 7])

    verdict = job.verdict(tmp_path)

    assert surely_named(verdict) == [], told(verdict)
    assert not (verdict.family == "desync" and verdict.grade in SURE), told(verdict)


@every_layout
def test_fingerprints_by_majority(layout: str, tmp_path: Path) -> None:
    job, end = begun(layout)
    job.say(end + 0.5, 2, "collate: dropped 1 sample without annotation, batch 36 of 37")
    for rank in job.others(2):
        job.stderr(
            end + 1 + 0.01 * rank,
            rank,
            'Traceback (most recent call last):\n  File "/work/train.py", line 190, in main\n    dist.all_gather(parts, x)\n'
            f"RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber=131, OpType=ALLGATHER, TensorShape=[37, 256], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda)), "
            "but Rank 2 is running collective: CollectiveFingerPrint(SequenceNumber=131, OpType=ALLGATHER, TensorShape=[36, 256], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda)).Collectives differ in the following aspects: \t Tensor Tensor shapes: 37vs 36",
        )

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("desync_mismatch", [2]), told(verdict)
    assert verdict.mechanism == "mismatch", told(verdict)
    assert verdict.grade in SURE, told(verdict)


@every_layout
def test_fingerprints_of_two_ranks_name_nobody(layout: str, tmp_path: Path) -> None:
    """Rank 0's line against rank 1's: two sides of one each."""
    job = Incident(2, 1, layout=layout)
    job.init()
    end = job.steps(100, 130)
    job.stderr(
        end + 1,
        0,
        'Traceback (most recent call last):\n  File "/work/train.py", line 190, in main\n    dist.all_reduce(x)\n'
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=131, OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda)), "
        "but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=131, OpType=ALLREDUCE, TensorShape=[5], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda)).Collectives differ in the following aspects: \t Tensor Tensor shapes: 4vs 5",
    )

    verdict = job.verdict(tmp_path)

    assert verdict.cause == "desync_mismatch", told(verdict)
    assert surely_named(verdict) == [], told(verdict)


@every_layout
def test_the_desync_report_names_the_lagging_ranks(layout: str, tmp_path: Path) -> None:
    """PyTorch's own table, printed by the victims."""
    job, end = begun(layout)
    job.time_out(end + 602, seq=131, but=[5])
    for rank in (0, 1):
        job.raw(
            end + 602.01 + rank,
            job.file_of(rank),
            f"[rank{rank}]:[E{job.glog(end + 602)}000 ProcessGroupNCCL.cpp:1937] Rank {rank}\n"
            f"\t - [{rank}] Timeout at collective: ALLREDUCE, #131\n"
            "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
            "\t     [5] finished collective #130, but didn't join collective #131 (count from 1)\n"
            "\t - Snapshot of ranks' latest states:\n"
            "\t   #130 finished ranks:\n"
            "\t     [5] finished ALLREDUCE\n"
            "\t   #131 started ranks:\n"
            "\t     [0-4, 6-7] started ALLREDUCE",
        )

    verdict = job.verdict(tmp_path)

    assert named(verdict) == [5], told(verdict)
    assert verdict.rank_grade in SURE, told(verdict)


@every_layout
def test_monitored_barrier_names_the_missing(layout: str, tmp_path: Path) -> None:
    job, end = begun(layout)
    job.stderr(
        end + 30,
        0,
        'Traceback (most recent call last):\n  File "/work/train.py", line 190, in main\n    dist.monitored_barrier(group)\nRuntimeError: [Rank 0]: Ranks 3, 5 failed to pass monitoredBarrier in 30000 ms',
    )
    for rank in job.others(0, 3, 5):
        job.stderr(
            end + 30.1,
            rank,
            'Traceback (most recent call last):\n  File "/work/train.py", line 190, in main\n    dist.monitored_barrier(group)\n'
            f"RuntimeError: Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.",
        )

    verdict = job.verdict(tmp_path)

    assert named(verdict) == [3, 5], told(verdict)
    assert verdict.cause != "exception", told(verdict)


def sites(job: Incident, at: float, ranks: list[int], *frames: str) -> None:
    """PyTorch's own stack of the collective that failed (2.7 on, Flight Recorder on)."""
    lib = "/opt/venv/lib/python3.12/site-packages/torch/distributed"
    for rank in ranks:
        title = f"[rank{rank}]:[E{job.glog(at)}000 ProcessGroupNCCL.cpp:723] Stack trace of the failed collective: "
        stack = [f"all_gather_into_tensor from {lib}/distributed_c10d.py:3951", f"wrapper from {lib}/c10d_logger.py:81"]
        lines = [f"#{number} {frame}" for number, frame in enumerate([*stack, *frames])]
        job.raw(at + 0.001 * rank, job.file_of(rank), "\n".join([title, *lines, ""]))


def other_sizes(layout: str, odd: list[int], *, one_site: bool = False) -> Incident:
    job, end = begun(layout)
    usual = [rank for rank in job.ranks if rank not in odd]
    for ranks, numel, line in ((usual, 65536, 140), (odd, 917504, 140 if one_site else 163)):
        job.time_out(end + 602, seq=131, op="_ALLGATHER_BASE", numel=numel, ranks=ranks)
        sites(
            job,
            end + 606,
            ranks,
            "gather_rows from /work/comm/rows.py:33",
            f"forward from /work/model/heads.py:{line}",
            "main from /work/train.py:71",
        )
    return job


@every_layout
def test_other_call_sites_are_another_branch(layout: str, tmp_path: Path) -> None:
    """One helper makes the call on all ranks: who called the helper tells them apart."""
    verdict = other_sizes(layout, [5]).verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("desync_conditional", [5]), told(verdict)
    assert verdict.mechanism == "desync", told(verdict)
    assert "heads.py:163" in verdict.says and "heads.py:140" in verdict.says, told(verdict)
    assert verdict.rank_grade != "proven", "a majority alone proves nobody wrong"


@every_layout
@pytest.mark.parametrize("odd", [[4, 5, 6, 7], [3, 5, 6]], ids=["half", "three"])
def test_other_call_sites_of_near_equal_sides(odd: list[int], layout: str, tmp_path: Path) -> None:
    verdict = other_sizes(layout, odd).verdict(tmp_path)

    assert verdict.cause == "desync_conditional", told(verdict)
    assert surely_named(verdict) == [], told(verdict)


@every_layout
def test_one_call_site_is_no_branch(layout: str, tmp_path: Path) -> None:
    verdict = other_sizes(layout, [5], one_site=True).verdict(tmp_path)

    assert verdict.cause == "desync_mismatch", told(verdict)
