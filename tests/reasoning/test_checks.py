"""What the report asks for: nothing that lies among the evidence."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import Incident

from whichrank.diagnosis import diagnose
from whichrank.model import Report


def dead() -> tuple[Incident, float]:
    """Rank 5 on node-02 is killed, and nothing says by whom."""
    job = Incident(ranks=8, hosts=2)
    job.init()
    end = job.steps(1, 60, until={5: 40})
    job.time_out(end + 600, seq=61, but=[5])
    return job, end


def asked(report: Report) -> str:
    return " | ".join(f"{check.says}: {check.command}" for check in report.verdicts[0].checks)


def kernel_line(job: Incident, at: float, host: str) -> None:
    job.raw(at, f"{host}.dmesg", f"[{job.when(at):%a %b %e %H:%M:%S %Y}] eth0: renamed from veth1a2b3c4")


def test_without_a_kernel_log_it_is_asked_for(tmp_path: Path) -> None:
    job, _ = dead()

    assert "dmesg" in asked(job.report(tmp_path))


@pytest.mark.parametrize("late", [1, 700])
def test_a_kernel_log_that_is_here_is_not_asked_for(late: float, tmp_path: Path) -> None:
    job, end = dead()
    for host in job.hosts:
        kernel_line(job, 1, host)
        kernel_line(job, end + late, host)

    assert "dmesg" not in asked(job.report(tmp_path))


def test_a_kernel_log_of_another_host_answers_nothing(tmp_path: Path) -> None:
    job, end = dead()
    kernel_line(job, end + 700, job.hosts[0])

    assert "dmesg" in asked(job.report(tmp_path))


def test_a_kernel_log_that_ends_too_early_is_asked_for_again(tmp_path: Path) -> None:
    job, _ = dead()
    for host in job.hosts:
        kernel_line(job, -90000, host)

    told = asked(job.report(tmp_path))
    assert "dmesg" in told and "ends at 2026-11-29" in told


def test_stacks_that_are_here_are_not_asked_for(tmp_path: Path) -> None:
    job, end = dead()
    before = asked(job.report(tmp_path / "without"))
    pid = job.pid(5)
    job.raw(
        end + 300,
        "node-02.pyspy.txt",
        f'Process {pid}: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread {pid} (idle): "MainThread"\n'
        "    poll (multiprocessing/connection.py:257)\n    _weird (train.py:88)\n    <module> (train.py:120)",
    )

    assert "py-spy" in before and "py-spy dump" not in asked(job.report(tmp_path / "with"))


PYSPY = """Process {pid}: python3 train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
{frames}
    <module> (train.py:88)
"""
BATCH = (
    "    select (selectors.py:415)\n    poll (multiprocessing/connection.py:257)\n"
    "    _try_get_data (torch/utils/data/dataloader.py:1291)\n    _next_data (torch/utils/data/dataloader.py:1410)"
)
SUM = "    all_reduce (torch/distributed/distributed_c10d.py:2825)"
FETCH = (
    "    read (soundfile.py:895)\n    Clips.__getitem__ (clips.py:41)\n"
    "    fetch (torch/utils/data/_utils/fetch.py:54)\n    _worker_loop (torch/utils/data/_utils/worker.py:374)"
)


def test_a_worker_that_fetches_is_named_and_no_longer_asked_for(tmp_path: Path) -> None:
    """Stacks of all ranks and of one's worker, tied to it by ps."""
    job = Incident(ranks=4, hosts=1)
    job.init()
    job.steps(1, 60)
    place = tmp_path / "job"
    job.write(place)
    host = job.host(0)
    pids = {rank: job.pid(rank) for rank in range(4)}
    worker = max(pids.values()) + 40
    listed = "".join(f"{pid:7} 1 S futex_wait 0.0 313824 python3 train.py\n" for pid in pids.values())
    listed += f"{worker:7} {pids[2]} S wait_on_page 0.0 236932 python3 train.py\n"
    (place / "ps.txt").write_text(
        f"{host}$ ps -o pid,ppid,stat,wchan:24,pcpu,rss,cmd\n    PID    PPID STAT WCHAN  %CPU     RSS CMD\n{listed}",
        encoding="utf-8",
    )
    for rank, pid in pids.items():
        text = PYSPY.format(pid=pid, frames=BATCH if rank == 2 else SUM)
        (place / f"pid-{pid}.txt").write_text(text, encoding="utf-8")
    (place / f"pid-{worker}.txt").write_text(PYSPY.format(pid=worker, frames=FETCH), encoding="utf-8")

    report = diagnose([str(place)])

    verdict = report.verdicts[0]
    assert (verdict.cause, [culprit.rank for culprit in verdict.culprits]) == ("slow_data", [2])
    told = " ".join(proof.says for proof in verdict.because)
    assert f"worker {worker} in Clips.__getitem__ (clips.py:41), there in read (soundfile.py:895)" in told
    assert "--ppid" not in asked(report)
