"""DataLoader workers that went away: PyTorch's own word for it, or a broken pipe or socket to one.

A rank that asks its worker for a tensor's file descriptor just when the worker dies gets no word of PyTorch: Python's
own ConnectionResetError, EOFError or the like comes first (torch/utils/data/dataloader.py, _try_get_data, PyTorch 1.0 to
2.14). The socket is to a process on the same host, so that no peer and no network has to do with it.
"""

from __future__ import annotations

import re

from whichrank.facts import Fact
from whichrank.job.model import Job

_BROKEN = re.compile(
    r"(?:^|\.)(?:ConnectionResetError|ConnectionRefusedError|ConnectionAbortedError|BrokenPipeError|EOFError)$"
)
_LOADER = re.compile(r"torch[/\\]utils[/\\]data[/\\]dataloader\.py")
_QUEUE = re.compile(r"multiprocessing[/\\](?:connection|queues|resource_sharer|reduction|reductions)\.py")


def lost_workers(job: Job) -> tuple[Fact, ...]:
    """For each rank that lost a worker the first line that says so."""
    found: dict[int, Fact] = {}
    for fact in job.of("dl_worker_killed", "exception"):
        if fact.rank is not None and fact.rank not in found and (fact.kind != "exception" or _cut_off(fact)):
            found[fact.rank] = fact
    return tuple(found.values())


def _cut_off(fact: Fact) -> bool:
    """Did it break off in the loader's queue?"""
    frames = [str(frame) for frame in fact["frames"] or ()]
    return (
        not fact["caught"]
        and _BROKEN.search(str(fact["type"] or "")) is not None
        and any(map(_LOADER.search, frames))
        and any(map(_QUEUE.search, frames[-8:]))
    )
