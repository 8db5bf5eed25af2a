"""What schedulers say of nodes: what took a node away, what only followed, and what is none of the job's business."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import LAYOUTS, Incident, named, told

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
