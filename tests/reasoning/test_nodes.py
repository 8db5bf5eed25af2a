"""What schedulers say of nodes: what took a node away, what only followed, and what is none of the job's business."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import LAYOUTS, Entry, Incident, named, told

every_layout = pytest.mark.parametrize("layout", LAYOUTS)
HEAD = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST"
WHY = "REASON               USER      TIMESTAMP           NODELIST"


def hung(layout: str) -> Incident:
    """Rank 5 stands in the kernel, reading; the others wait."""
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 140)
    job.time_out(end + 603, seq=141, but=[5])
    host, pid = job.host(5), job.pid(5)
    job.raw(end + 300, "kstack.txt", f"{host}:~# cat /proc/{pid}/stack")
    for frame in ("folio_wait_bit_common+0x13d/0x2d0", "filemap_read+0x31c/0x3d0", "ll_file_read_iter+0x1a/0x20 [lustre]", "vfs_read+0x1b2/0x2f0"):  # fmt: skip
        job.raw(end + 300, "kstack.txt", f"[<0>] {frame}")
    return job


@every_layout
def test_a_node_that_was_drained_because_of_the_hang(layout: str, tmp_path: Path) -> None:
    job = hung(layout)
    job.raw(
        900,
        "sinfo.txt",
        f"{HEAD}\nh100*        up 3-00:00:00      1  drain {job.host(5)}\n\n{WHY}\nKill task failed     root      2026-11-30T06:15:12 {job.host(5)}",
    )
    verdict = job.verdict(tmp_path)

    assert verdict.cause == "slow_storage", told(verdict)
    assert named(verdict) == [5], told(verdict)


@every_layout
def test_other_nodes_that_are_down(layout: str, tmp_path: Path) -> None:
    job = hung(layout)
    job.raw(
        900,
        "sinfo.txt",
        f"{HEAD}\nh100*        up 3-00:00:00      2  down* cn-[40-41]\nh100*        up 3-00:00:00      1  drain cn-77",
    )
    verdict = job.verdict(tmp_path)

    assert verdict.cause != "evicted", told(verdict)
    assert named(verdict) == [5], told(verdict)


def _of_pods(job: Incident, describe: str, *, prefix: bool, named: list[int]) -> None:
    """Two pods of two ranks in one log; NCCL names the pods of `named`; one pod is described."""
    job.init(ranks=named)
    end = job.steps(1, 40, until={3: 20})
    job.time_out(end + 600, seq=21, but=[3])
    speaker = 0
    for number, entry in enumerate(job.entries if prefix else ()):
        told = [rank for rank in job.ranks if f"rank{rank}]" in entry.text or f" rank {rank} " in entry.text]
        speaker = told[0] if told else speaker
        job.entries[number] = Entry(entry.at, entry.file, f"[pod/{job.host(speaker)}/pytorch] {entry.text}")
    job.raw(
        end,
        "describe.txt",
        f"Name:             {describe}\nNode:             gpu-7f-x2/10.4.7.22\nStatus:           Failed",
    )
    job.raw(
        end + 1,
        "describe.txt",
        "Containers:\n  pytorch:\n    State:          Terminated\n      Reason:       OOMKilled",
    )


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("named", [[2, 3], [0, 1, 2, 3]])
def test_a_pod_that_nothing_describes_is_on_no_other_pods_node(prefix: bool, named: list[int], tmp_path: Path) -> None:
    job = Incident(ranks=4, hosts=2, host_name="ft-worker-{}", layout="merged")
    _of_pods(job, "ft-worker-2", prefix=prefix, named=named)

    hosts = {row.rank: row.host for row in job.report(tmp_path).ranks}

    assert hosts[2] == hosts[3] == "gpu-7f-x2"
    assert not {hosts[0], hosts[1]} & {"gpu-7f-x2"}
