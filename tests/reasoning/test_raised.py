"""gloo's errors tell by their tracebacks who stood in which call. As PyTorch 2.13 printed them for such jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import SURE, Incident, named, surely_named, told

LATE = "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete"
GONE = "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:9637. This is typically caused by a remote worker crashing. Check the logs of the remote workers for details."
LOOP, END = 16, 26
every_layout = pytest.mark.parametrize("layout", ["merged", "per-rank"])


def error(job: Incident, at: float, rank: int, line: int, text: str) -> None:
    inner = (
        '  File "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py", line 623, in backward\n    torch.autograd.backward('
        if line == LOOP
        else '  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 5356, in barrier\n    work.wait()'
    )
    job.stderr(
        at,
        rank,
        f'Traceback (most recent call last):\n  File "/work/train.py", line {line}, in <module>\n    step()\n{inner}\n{text}',
    )


def out_of_batches(layout: str, *, says: bool = True) -> Incident:
    """Rank 2 has 33 batches, the others 37; it goes on to an evaluation of its own and to the last barrier."""
    job = Incident(ranks=4, hosts=1, layout=layout)
    end = job.steps(1, 34, every=0.2, until={2: 33})
    if says:
        job.say(end + 0.2, 2, "epoch 0 done")
        job.say(end + 0.3, 2, "running evaluation")
        job.say(end + 1.3, 2, "eval loss 0.2320")
    error(job, end + 8.1, 0, LOOP, GONE)
    error(job, end + 8.1, 2, END, GONE)
    error(job, end + 8.2, 1, LOOP, LATE)
    error(job, end + 8.3, 3, LOOP, GONE)
    return job


@every_layout
def test_who_left_the_loop_and_stands_in_a_later_call_had_fewer_batches(layout: str, tmp_path: Path) -> None:
    verdict = out_of_batches(layout).verdict(tmp_path)

    assert verdict.cause == "desync_uneven_data" and verdict.mechanism == "desync", told(verdict)
    assert named(verdict) == [2] and set(verdict.victims) == {0, 1, 3}, told(verdict)


@every_layout
def test_without_a_word_of_it_the_cause_stays_open_and_the_rank_does_not(layout: str, tmp_path: Path) -> None:
    verdict = out_of_batches(layout, says=False).verdict(tmp_path)

    assert verdict.grade not in SURE and named(verdict) == [2], told(verdict)


@every_layout
def test_a_rank_at_work_of_its_own_comes_to_the_same_call(layout: str, tmp_path: Path) -> None:
    """The control: rank 0 evaluates, and reaches the barrier in which the others waited when they are gone."""
    job = Incident(ranks=4, hosts=1, layout=layout)
    end = job.steps(1, 34, every=0.2)
    for number in range(12):
        job.say(end + 1 + number, 0, f"evaluating: batch {number}/12")
    for rank in (1, 2, 3):
        error(job, end + 8 + 0.1 * rank, rank, END, LATE if rank == 1 else GONE)
    error(job, end + 13, 0, END, GONE)

    verdict = job.verdict(tmp_path)

    assert verdict.cause == "rank0_only_work" and named(verdict) == [0], told(verdict)


def test_two_equal_sides_name_nobody(tmp_path: Path) -> None:
    job = Incident(ranks=4, hosts=1, layout="merged")
    end = job.steps(1, 34, every=0.2)
    for rank in job.ranks:
        error(job, end + 8, rank, LOOP if rank < 2 else END, LATE)

    assert not surely_named(job.verdict(tmp_path))
