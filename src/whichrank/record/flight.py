"""Flight Recorder's records of this rank, without waiting for a watchdog: from the sampler's thread, when asked."""

from __future__ import annotations

import os
import sys

PREFIX = "nccl_trace_rank_"  # as the watchdog's own files, whose reader knows the rank by it
FOLDER = "dumps"
BACKENDS = ("_dump_nccl_trace", "_dump_fr_trace")
ENTRY = b"profiling_name"  # a key of every entry
rank = -1  # of this process, once it is known


def dump(directory: str, ring: str, stacks: bool = False) -> bool:
    """Write the records to dumps/, without stacks first: with them it takes seconds, in which the main thread may wait."""
    module = sys.modules.get("torch._C._distributed_c10d")
    if module is None or rank < 0:
        return False
    written = False
    for with_stacks in (False, True)[: 1 + stacks]:
        data = _records(module, with_stacks)
        if data is not None:
            _write(os.path.join(directory, FOLDER), PREFIX + str(rank), data)
            written = True
    return written


def _records(module: object, stacks: bool) -> bytes | None:
    """A pickle as Flight Recorder writes it, of the backend that has most; none of a recorder that is off or empty."""
    found = None
    for name in BACKENDS:
        function = getattr(module, name, None)
        if function is None:
            continue
        try:
            data = function(True, stacks, False)
        except Exception:
            continue
        # An empty one would say that this rank has no call open.
        if isinstance(data, bytes) and ENTRY in data and (found is None or len(data) > len(found)):
            found = data
    return found


def _write(folder: str, name: str, data: bytes) -> None:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    part = os.path.join(folder, "." + name + ".part")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)
    os.rename(part, os.path.join(folder, name))
