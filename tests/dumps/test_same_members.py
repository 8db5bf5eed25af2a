"""Several groups of the same ranks and without a purpose of their own: told apart, and called in another order."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import named, told
from recorded import Job, report_on

backends = pytest.mark.parametrize("backend", ["nccl", "gloo"])


def begun(backend: str, *, frames: bool = True, lines: tuple[str, str] = ("net.py:70", "net.py:70")) -> Job:
    """Each step reduces in the one group, then in the other."""
    job = Job(6, backend=backend, frames=frames)
    job.group("vision", range(6))
    job.group("audio", range(6))
    for _ in range(12):
        turn(job, lines)
    return job


def turn(job: Job, lines: tuple[str, str]) -> None:
    job.call("all_reduce", "vision", sizes=[[512]], at=lines[0])
    job.call("all_reduce", "audio", sizes=[[512]], at=lines[1])
    job.call("all_reduce", at="net.py:90")


@backends
def test_one_line_that_comes_to_them_in_another_order(backend: str, tmp_path: Path) -> None:
    job = begun(backend)
    job.call("all_reduce", "vision", sizes=[[512]], at="net.py:70", but=[4], ended=False)
    job.call("all_reduce", "audio", sizes=[[512]], at="net.py:70", only=[4], ended=False)

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, verdict.mechanism, named(verdict)) == ("desync_order", "deadlock", [4]), told(verdict)


@backends
def test_from_another_line_it_may_have_left_one_out(backend: str, tmp_path: Path) -> None:
    lines = ("net.py:70", "net.py:74")
    job = begun(backend, lines=lines)
    job.call("all_reduce", "vision", sizes=[[512]], at=lines[0], but=[4], ended=False)
    job.call("all_reduce", "audio", sizes=[[512]], at=lines[1], only=[4], ended=False)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, named(verdict)) == ("desync", [4]), told(verdict)


@backends
def test_a_late_rank_is_no_other_order(backend: str, tmp_path: Path) -> None:
    job = begun(backend)
    job.call("all_reduce", "vision", sizes=[[512]], at="net.py:70", but=[4], ended=False)

    verdict = job.verdict(tmp_path)

    assert (verdict.mechanism, named(verdict)) == ("host_stuck", [4]), told(verdict)


@backends
def test_one_against_one_in_calls_that_were_never_exchanged(backend: str, tmp_path: Path) -> None:
    """Of two ranks one is past the loop: the other never made that call, so that it is no exchange of two."""
    job = Job(2, backend=backend, frames=False)
    job.group("vision", range(2))
    for _ in range(12):
        job.call("all_reduce", "vision", sizes=[[512]])
        job.call("all_reduce", sizes=[[64]])
    job.call("all_reduce", "vision", sizes=[[512]], only=[0], ended=False)
    job.call("all_reduce", sizes=[[1]], only=[1], ended=False)

    verdict = job.verdict(tmp_path)

    assert verdict.mechanism != "deadlock" and verdict.cause != "desync_order", told(verdict)


def stacks(folder: Path, lines: list[int]) -> None:
    """A py-spy dump of each rank: in which line of its own it called."""
    for rank, line in enumerate(lines):
        pid = 5100 + rank
        text = f'Process {pid}: python3 net.py\nPython v3.12.3 (/usr/bin/python3.12)\n\nThread {pid} (idle): "MainThread"\n'
        text += f"    all_reduce (torch/distributed/distributed_c10d.py:2810)\n    reduce (/work/net.py:{line})\n    main (/work/net.py:90)\n"
        (folder / "job" / f"pyspy_rank_{rank}.txt").write_text(text)


@backends
@pytest.mark.parametrize(("odd_line", "mechanism"), [(70, "deadlock"), (74, "desync")])
def test_dumps_without_lines_beside_stacks(backend: str, odd_line: int, mechanism: str, tmp_path: Path) -> None:
    job = begun(backend, frames=False)
    job.call("all_reduce", "vision", sizes=[[512]], but=[4], ended=False)
    job.call("all_reduce", "audio", sizes=[[512]], only=[4], ended=False)
    job.write(tmp_path)
    stacks(tmp_path, [odd_line if rank == 4 else 70 for rank in range(6)])

    verdict = report_on(tmp_path).verdicts[0]

    assert (verdict.mechanism, named(verdict)) == (mechanism, [4]), told(verdict)
    assert (verdict.cause == "desync_order") == (mechanism == "deadlock"), told(verdict)
