"""Kernel stacks beside Python's: a rank, or a worker that it waits for, that the kernel holds in a wait for storage."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import SURE, Incident, named, told

NFS = "[<0>] rpc_wait_bit_killable+0x1e/0x90 [sunrpc]\n[<0>] nfs_readahead+0x1e2/0x4f0 [nfs]\n[<0>] read_pages+0x64/0x200\n[<0>] vfs_read+0x23a/0x360"
DISK = "[<0>] folio_wait_bit_common+0x138/0x310\n[<0>] filemap_get_pages+0x5c9/0x630\n[<0>] filemap_read+0xd9/0x350\n[<0>] vfs_read+0x23a/0x360"
PIPE = "[<0>] do_sys_poll+0x400/0x590\n[<0>] __x64_sys_poll+0xd1/0x1b0\n[<0>] do_syscall_64+0x71/0x280"
WRITE = "[<0>] rpc_wait_bit_killable+0x1e/0x90 [sunrpc]\n[<0>] nfs_file_write+0xd0/0x2f0 [nfs]\n[<0>] vfs_write+0x22f/0x450\n[<0>] ksys_write+0x66/0xe0"
LOADER = "/opt/venv/lib/python3.12/site-packages/torch/utils/data/dataloader.py"
WORKER = 70901


def stuck(frames: list[str]) -> tuple[Incident, float]:
    """Rank 5 stands elsewhere, all others in an all_reduce."""
    job = Incident()
    job.init()
    end = job.steps(100, 130)
    wait = ["all_reduce (torch/distributed/distributed_c10d.py:2810)", "fit (/work/fit.py:31)"]
    for rank in job.ranks:
        shown = "\n".join(f"    {frame}" for frame in (frames if rank == 5 else wait))
        stack = f'Process {job.pid(rank)}: python3 fit.py\nPython v3.12.3 (/usr/bin/python3.12)\n\nThread {job.pid(rank)} (idle): "MainThread"\n{shown}\n'
        job.raw(end + 200, f"stacks/{job.host(rank)}-rank{rank}.txt", stack)
    job.time_out(end + 602, seq=131, but=[5])
    return job, end


def held(job: Incident, at: float, pid: int, stack: str) -> None:
    host = job.host(5)
    job.raw(at, "kernel-stacks.txt", f"{host}$ cat /proc/{pid}/stack\n{stack}")


def worker(job: Incident, at: float) -> None:
    host = job.host(5)
    ps = f"{host}$ ps -o pid,ppid,stat,wchan:24,cmd\n    PID    PPID STAT WCHAN                    CMD\n"
    job.raw(at, "ps.txt", ps + f"  {WORKER}   {job.pid(5)} D    rpc_wait_bit_killable    python3 fit.py")


@pytest.mark.parametrize("stack", [NFS, DISK])
def test_a_worker_in_a_wait_for_storage(stack: str, tmp_path: Path) -> None:
    job, end = stuck(["select (selectors.py:415)", f"_try_get_data ({LOADER}:1131)", "fit (/work/fit.py:25)"])
    worker(job, end + 200)
    held(job, end + 201, WORKER, stack)

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("slow_storage", [5]), told(verdict)


def test_a_worker_that_waits_for_work(tmp_path: Path) -> None:
    job, end = stuck(["select (selectors.py:415)", f"_try_get_data ({LOADER}:1131)", "fit (/work/fit.py:25)"])
    worker(job, end + 200)
    held(job, end + 201, WORKER, PIPE)

    verdict = job.verdict(tmp_path)

    assert (verdict.cause, named(verdict)) == ("slow_data", [5]), told(verdict)


def test_one_look_at_a_checkpoint_that_is_written_leaves_the_cause_open(tmp_path: Path) -> None:
    """It may be much that is written, or a server that does not answer."""
    job, end = stuck(["save (torch/serialization.py:966)", "store (/work/fit.py:44)"])
    held(job, end + 201, job.pid(5), WRITE)

    verdict = job.verdict(tmp_path)

    assert verdict.cause in ("slow_storage", "slow_checkpoint", "undecided"), told(verdict)
    assert verdict.grade not in SURE and named(verdict) == [5], told(verdict)
