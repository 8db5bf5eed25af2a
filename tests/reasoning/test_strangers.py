"""Lines of processes that are none of the job's, and a launcher's word against a rank that lived on."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import SURE, Incident

from whichrank.model import Report


def launcher(job: Incident, at: float, local: int, code: int = -9) -> str:
    return (
        f"[{job.stamp(at).strip()}] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', "
        f"'--local_rank={local}', '--deepspeed', 'ds.json'] exits with return code = {code}"
    )


def completion_error(host: str, pid: int, peer: str = "10.6.4.1") -> str:
    return f"{host}:{pid}:{pid + 18} [1] net_ib.cc:93 NCCL WARN NET/IB : Got completion from peer {peer}<5184> with error 12, opcode 0, len 0, vendor err 129"


def not_used(report: Report) -> list[str]:
    return [gap.why for gap in report.gaps if "not used as proof" in gap.why]


def started(layout: str = "merged", hosts: int = 1) -> tuple[Incident, float]:
    job = Incident(ranks=4 * hosts, hosts=hosts, layout=layout)
    job.init()
    return job, job.steps(1, 60)


# --- a launcher's line ---


def test_deepspeeds_word_for_a_rank_that_fell_silent_counts(tmp_path: Path) -> None:
    job = Incident(ranks=4, hosts=1, layout="merged")
    job.init()
    end = job.steps(1, 60, until={2: 40})
    job.raw(end + 1, "train.log", launcher(job, end + 1, 2))

    first = job.report(tmp_path).verdicts[0]

    assert (first.cause, [culprit.rank for culprit in first.culprits]) == ("killed", [2])
    assert first.grade in SURE and first.rank_grade in SURE


@pytest.mark.parametrize("local", [0, 1, 2, 3])
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_rank_that_went_on_was_not_killed(local: int, hosts: int, tmp_path: Path) -> None:
    job, end = started(hosts=hosts)
    job.raw(end / 2, "train.log", launcher(job, end / 2, local))
    job.time_out(end + 600, seq=61, but=[2])

    report = job.report(tmp_path)

    assert report.verdicts[0].cause != "killed"
    assert any("went on after it" in why for why in not_used(report))


def test_a_rank_that_reported_its_wait_was_not_killed(tmp_path: Path) -> None:
    job, end = started()
    job.raw(end + 1, "train.log", launcher(job, end + 1, 1))
    job.time_out(end + 600, seq=61, but=[2])

    assert job.report(tmp_path).verdicts[0].cause != "killed"


def test_a_rank_that_started_again_had_been_killed(tmp_path: Path) -> None:
    job, end = started()
    job.raw(end + 1, "train.log", launcher(job, end + 1, 1))
    job.init(end + 30)
    job.steps(1, 10, at=end + 40)

    assert not not_used(job.report(tmp_path))


def test_no_launcher_speaks_in_the_file_of_a_rank(tmp_path: Path) -> None:
    job = Incident(ranks=4, hosts=1, layout="per-rank")
    job.init()
    end = job.steps(1, 60, until={2: 40})
    job.raw(end + 1, job.file_of(1), launcher(job, end + 1, 2))
    job.time_out(end + 600, seq=61, but=[2])

    report = job.report(tmp_path)

    assert report.verdicts[0].cause != "killed"
    assert any("a launcher" in why for why in not_used(report))


# --- NCCL's lines ---


@pytest.mark.parametrize("layout", ["merged", "per-rank"])
def test_nccls_word_of_the_ranks_own_process_counts(layout: str, tmp_path: Path) -> None:
    job, end = started(layout, hosts=2)
    for rank in (0, 1):
        job.raw(end + 1, job.file_of(rank), completion_error(job.host(rank), job.pid(rank)))
    job.time_out(end + 600, seq=61)
    job.excusable = set(job.hosts)

    first = job.report(tmp_path).verdicts[0]

    assert first.cause == "network" and first.grade in SURE


@pytest.mark.parametrize("layout", ["merged", "per-rank"])
@pytest.mark.parametrize("host", ["node-01", "elsewhere-7"])
def test_nccls_word_of_another_process_does_not(layout: str, host: str, tmp_path: Path) -> None:
    job, end = started(layout, hosts=2)
    job.raw(end + 1, job.file_of(0), completion_error(host, 977))
    job.time_out(end + 600, seq=61, but=[5])

    report = job.report(tmp_path)

    assert report.verdicts[0].cause != "network"
    assert any("process 977" in why for why in not_used(report))


def test_where_no_line_tells_the_processes_nccls_word_counts(tmp_path: Path) -> None:
    job = Incident(ranks=4, hosts=1, layout="merged")
    end = job.steps(1, 60)
    for pid in (977, 978):
        job.raw(end + 1, "train.log", completion_error("node-01", pid))
    job.time_out(end + 600, seq=61)
    job.excusable = set(job.hosts)

    report = job.report(tmp_path)

    assert report.verdicts[0].cause == "network" and not not_used(report)


def test_a_shells_pid_is_no_ranks_process(tmp_path: Path) -> None:
    """A wrapper that echoes its own pid before it starts Python: NCCL's pid is another one of the same host."""
    job = Incident(ranks=2, hosts=2, layout="per-rank")
    for rank in job.ranks:
        job.raw(0, job.file_of(rank), f"rank {rank} of 2 on {job.host(rank)}, pid {job.pid(rank) - 3}")
    end = job.steps(1, 60)
    for rank in job.ranks:
        job.raw(end + 1, job.file_of(rank), completion_error(job.host(rank), job.pid(rank)))
    job.time_out(end + 600, seq=61)
    job.excusable = set(job.hosts)

    assert job.report(tmp_path).verdicts[0].cause == "network"
