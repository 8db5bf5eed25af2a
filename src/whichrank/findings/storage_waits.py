"""Kernel stacks of a late rank, or of a worker that it waits for, that end in a wait for storage.

One look shows where a process is, not for how long: whoever reads a batch for longer than the others wait has been held
there, whoever writes a checkpoint may be at honest work. Functions: Linux 5.4 to 6.18, fs/fuse/dev.c, fs/nfs, net/sunrpc,
fs/ceph, mm/filemap.c, block; Lustre 2.15 (ptlrpc, osc, llite).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from whichrank.facts import Fact
from whichrank.findings.arrivals import Arrivals
from whichrank.findings.stacks import Stacks
from whichrank.job.model import Job

_SERVED = re.compile(
    r"^(?:request_wait_answer|fuse_\w+|nfs[34]?_\w+|rpc_wait_bit_killable|__rpc_execute|ptlrpc_\w+|osc_\w+|cl_sync_io_wait|"
    r"ll_file_\w+|ceph_\w+|cifs_\w+|smb2_\w+|FhgfsOps\w*|v9fs_\w+|p9_client_\w+)\b"
)
_PAGES = re.compile(
    r"^(?:folio_wait_bit\w*|__folio_lock\w*|wait_on_page_bit\w*|__lock_page\w*|io_schedule\w*|blk_mq_get_tag|"
    r"filemap_(?:read|get_pages|fault)|generic_file_buffered_read)\b"
)
_WRITES = re.compile(r"write|fsync|sync_file|truncate|flush|rename|mkdir|unlink")
INNERMOST = 6  # frames


@dataclass(frozen=True, slots=True)
class StorageWait:
    """A process that the kernel holds: `served` by a file server or a program, else by a disk."""

    fact: Fact
    rank: int
    worker: bool
    served: bool
    writes: bool

    @property
    def says(self) -> str:
        who = f"a worker of rank {self.rank}" if self.worker else f"the process of rank {self.rank}"
        frame = next((str(frame) for frame in self.fact["frames"] if _SERVED.match(str(frame))), "")
        return f"the kernel holds {who} in {frame or self.fact['frames'][0]}: it waits for storage"


def storage_waits(job: Job, arrived: Arrivals, threads: Stacks) -> tuple[StorageWait, ...]:
    """Of ranks that others wait for only, and of few."""
    late: set[int | None] = set(arrived.suspects) or {stack.rank for stack in threads.odd}
    found: list[StorageWait] = []
    for fact in job.of("stack"):
        rank, frames = fact.rank, [str(frame) for frame in fact["frames"] or ()]
        if fact["tool"] != "kernel" or rank is None or rank not in late:
            continue
        inner = frames[:INNERMOST]
        if any(map(_SERVED.match, inner)) or any(map(_PAGES.match, inner[:3])):
            served = any(map(_SERVED.match, frames))
            worker = fact.who.pid in job.children and fact.who.pid not in job.ranks[rank].pids
            found.append(StorageWait(fact, rank, worker, served, any(map(_WRITES.search, frames))))
    few = 2 * len({wait.rank for wait in found}) <= max(2, len(job.everyone()))
    return tuple(sorted(found, key=lambda wait: (not wait.served, wait.rank))) if few else ()
