"""A program's output that imitates other evidence accuses nobody.

Language models are trained on logs and issue threads, and print what they read. Four ranks: 0, 1 and 3 wait in the same
collective, rank 2 never comes. Somewhere in the output of rank 0 stand lines that would prove something of rank 1, had
they been written by those whose words they look like.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from whichrank.diagnosis import diagnose
from whichrank.model import Report

HOST = {0: "gx-1", 1: "gx-1", 2: "gx-2", 3: "gx-2"}
AT = "2026-03-02 09:06:39"
OOM = "Killed process 4001 (python) total-vm:91221356kB, anon-rss:65509440kB, file-rss:8120kB, shmem-rss:0kB, UID:1000"
FORGED = {
    "kernel, bare": [f"Out of memory: {OOM}"],
    "kernel, since boot": [f"[41231.250000] Out of memory: {OOM}"],
    "kernel, syslog": [f"Mar  2 09:06:39 gx-1 kernel: Out of memory: {OOM}"],
    "kernel, dmesg -T": [f"[Mon Mar  2 09:06:39 2026] Memory cgroup out of memory: {OOM}"],
    "Xid": ["Mar  2 09:06:39 gx-1 kernel: NVRM: Xid (PCI:0000:05:00): 79, pid=4001, GPU has fallen off the bus."],
    "hung task": ["Mar  2 09:06:39 gx-1 kernel: INFO: task python:4001 blocked for more than 122 seconds."],
    "NFS": ["Mar  2 09:06:39 gx-1 kernel: nfs: server fs1 not responding, still trying"],
    "Slurm, memory": [
        "srun: error: gx-1: task 1: Out Of Memory",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
    ],
    "Slurm, killed": ["srun: error: gx-1: task 1: Killed"],
    "Slurm, preempted": [f"slurmstepd: error: *** STEP 7.0 ON gx-1 CANCELLED AT {AT} DUE TO PREEMPTION ***"],
    "Kubernetes, describe": [
        "    Last State:     Terminated",
        "      Reason:       OOMKilled",
        "      Exit Code:    137",
    ],
    "Kubernetes, evicted": [
        "The node was low on resource: memory. Threshold quantity: 100Mi. pod trainer-1 was evicted"
    ],
    "torchrun, agent": [
        "torch.distributed.elastic.multiprocessing.api: failed (exitcode: -9) local_rank: 1 (pid: 4001) of binary: python"
    ],
    "torchrun, summary": [
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-03-02_09:06:39",
        "  host      : gx-1",
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : -9 (pid: 4001)",
        "  error_file: <N/A>",
        "  traceback : Signal 9 (SIGKILL) received by PID 4001",
    ],
    "DeepSpeed, launcher": [
        "[2026-03-02 09:06:38,004] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 4001",
        "[2026-03-02 09:06:39,004] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', '--local_rank=1', '--config', 'x'] exits with return code = -9",
    ],
    "DeepSpeed, the missing rank": [
        "[2026-03-02 09:06:39,004] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', '--local_rank=0', '--config', 'x'] exits with return code = -9",
    ],
    "torch.multiprocessing": [
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL"
    ],
    "mpirun": ["mpirun noticed that process rank 1 with PID 4001 on node gx-1 exited on signal 9 (Killed)."],
    "NCCL of another job, InfiniBand": [
        "gx-9:77:95 [1] net_ib.cc:93 NCCL WARN NET/IB : Got completion from peer 10.6.4.1<5184> with error 12, opcode 0, len 0, vendor err 129"
    ],
    "NCCL of another process, port": [
        "gx-1:77:95 [1] net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error"
    ],
    "NCCL of another process, shared memory": [
        "gx-1:77:95 [1] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-AbCdEf to 9637892 bytes"
    ],
    "NCCL of another job, versions": [
        "gx-9:77:95 [1] bootstrap.cc:97 NCCL WARN Mismatched NCCL version detected : rank 1 version 21805 rank 0 version 22005"
    ],
    "NCCL of another job, GPU": [
        "gx-9:77:95 [1] init.cc:97 NCCL WARN Cuda failure 'uncorrectable ECC error encountered'"
    ],
    "desync report": [
        "[rank0]: - To our best knowledge, ranks [1] are the lagging ranks that caused this timeout. They never joined any collectives"
    ],
    "monitoredBarrier": ["[Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms"],
    "another rank's exception": [
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/app/train.py", line 88, in step',
        "[rank1]:     x = data[i]",
        "[rank1]: IndexError: list index out of range",
    ],
    "py-spy": [
        "Process 4001: python train.py",
        "Python v3.11.7 (/usr/bin/python)",
        "",
        'Thread 4001 (idle): "MainThread"',
        "    _try_get_data (torch/utils/data/dataloader.py:1131)",
        "    __next__ (torch/utils/data/dataloader.py:631)",
        "    main (train.py:88)",
    ],
    "RAS": [
        "#0-0 (27a079b828ff1a75) INCOMPLETE",
        "  Missing communicator data from 1 job process",
        "  Process 4001 on node gx-1 managing GPU 1",
        "    Rank 1 -- GPU 1 managed by process 4001 on node gx-1",
    ],
    "page": [f"<script>alert(1)</script> \x1b[2J\x1b[31mOut of memory: {OOM}"],
}


def forms(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    yield "as it is", lines
    yield "sample", [f"{AT},000 INFO data.py:118 sample 1731: {line}" for line in lines]
    yield "labelled", [f"[rank0]: {line}" for line in lines]
    yield "repr", [f"{AT},000 DEBUG data.py:118 batch text = {chr(10).join(lines)!r}"]
    yield "quoted", [f"    | {line}" for line in lines]


ATTACKS = [
    pytest.param(lines, id=f"{name}, {form}") for name, forged in FORGED.items() for form, lines in forms(forged)
]


def steps(rank: int) -> list[str]:
    opening = f"2026-03-02 09:00:00,{rank:03d} INFO launch.py:41 rank {rank}/4 local_rank {rank % 2} host {HOST[rank]} pid {4000 + rank}"
    return [
        opening,
        *(
            f"2026-03-02 09:{step // 60:02d}:{step % 60:02d},{rank:03d} INFO train.py:88 step {step} loss {3 - step / 1000:.3f}"
            for step in range(1, 401)
        ),
    ]


def watchdog(rank: int) -> str:
    return (
        f"[rank{rank}]:[E302 09:16:41.00000000{rank} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum=401, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, "
        f"Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
    )


def files(folder: Path, lines: list[str], at: int) -> Report:
    for rank in range(4):
        out = steps(rank)
        if rank == 0:
            out[at:at] = lines
        (folder / f"rank{rank}.log").write_text("\n".join([*out, *([watchdog(rank)] if rank != 2 else [])]) + "\n")
    return diagnose([str(folder)])


def merged(folder: Path, lines: list[str], at: int) -> Report:
    out = [f"[rank{rank}]: {line}" for row in zip(*map(steps, range(4)), strict=True) for rank, line in enumerate(row)]
    out[4 * at - 2 : 4 * at - 2] = lines
    (folder / "train.log").write_text("\n".join([*out, *map(watchdog, (0, 1, 3))]) + "\n")
    return diagnose([str(folder)])


def accuses(report: Report) -> bool:
    first = report.verdicts[0]
    if first.cause not in ("undecided", "none") and first.confidence >= 0.75:
        return True
    return first.rank_confidence >= 0.75 and {culprit.rank for culprit in first.culprits} != {2}


@pytest.mark.many
@pytest.mark.parametrize("at", [200, 401])
@pytest.mark.parametrize("lines", ATTACKS)
def test_a_ranks_own_file(lines: list[str], at: int, tmp_path: Path) -> None:
    assert not accuses(files(tmp_path, lines, at))


@pytest.mark.many
@pytest.mark.parametrize("lines", ATTACKS)
def test_one_file_for_all_ranks(lines: list[str], tmp_path: Path) -> None:
    assert not accuses(merged(tmp_path, lines, 200))


@pytest.mark.parametrize(
    "lines",
    [
        ["[rank1]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"],
        [
            "Unable to determine the device handle for GPU 0000:05:00.0: GPU is lost.  Reboot the system to recover this GPU"
        ],
        ["JobID|State|ExitCode|NodeList", "7.0|OUT_OF_MEMORY|0:125|gx-1"],
    ],
    ids=["another rank's GPU", "nvidia-smi", "sacct"],
)
def test_what_never_stands_in_a_ranks_own_file(lines: list[str], tmp_path: Path) -> None:
    assert not accuses(files(tmp_path, lines, 200))


def test_the_kernels_own_log_does_accuse(tmp_path: Path) -> None:
    """The control: the same words from the one who may say them, about the rank that did not come."""
    (tmp_path / "gx-2.dmesg").write_text("\n".join(FORGED["kernel, dmesg -T"]).replace("4001", "4002") + "\n")

    first = files(tmp_path, [], 200).verdicts[0]

    assert (first.cause, first.grade, [culprit.rank for culprit in first.culprits]) == ("host_oom", "proven", [2])


@pytest.mark.parametrize("quote", ['"', "'", "`"])
def test_a_watchdog_in_a_completion_waits_for_nobody(quote: str, tmp_path: Path) -> None:
    out = steps(0)
    out[200:200] = [
        f"{AT},000 INFO sampler prompt[1]={quote}it fails with{quote} completion[1]={quote}[E ProcessGroupNCCL.cpp:475] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=786, OpType=ALLGATHER, NumelIn=180, NumelOut=720, Timeout(ms)=1800000) ran for 1802330 milliseconds before timing out.{quote}"
    ]
    (tmp_path / "rank0.log").write_text("\n".join([*out, f"{AT},999 INFO train.py:99 training finished"]) + "\n")

    assert diagnose([str(tmp_path)]).verdicts[0].cause == "none"


def test_it_is_said_what_was_not_taken_for_proof(tmp_path: Path) -> None:
    report = files(tmp_path, FORGED["kernel, syslog"], 200)

    (gap,) = [gap for gap in report.gaps if "not used as proof" in gap.why]
    assert gap.what.endswith("rank0.log:201") and "the kernel" in gap.why and gap.command == "dmesg -T"


def test_lines_of_another_day_between_those_of_this_one(tmp_path: Path) -> None:
    """A sample holds the log of a run of other times: its ranks are not this job's."""
    old = [line.replace("E302 09:16:41", "E519 22:01:13") for line in map(watchdog, (5, 6, 7))]

    report = merged(tmp_path, old, 200)

    assert {culprit.rank for culprit in report.verdicts[0].culprits} <= {2}
    assert not {rank.rank for rank in report.ranks if rank.rank is not None} & {5, 6, 7}
    assert any("another run" in gap.why for gap in report.gaps)
