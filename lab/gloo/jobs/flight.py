"""Each rank's own dump of the Flight Recorder: gloo has no watchdog that would write one.

A thread waits for a request (a file), for SIGTERM, and tells every 0.2 s how far this rank is. A rank that ends with an
error dumps, asks the others to do the same, and may wait until they have.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

from torch._C import _distributed_c10d as c10d

STEP = [-1]  # the step that the main thread is in
POLL = 0.2  # seconds
PATIENCE = 60.0  # seconds that a rank which failed waits for the others' dumps

_once = threading.Lock()


def start(folder: Path, frames: bool, wait_for_peers: bool) -> None:
    """Begin to listen; to be called before the group is made, whose threads then leave SIGTERM to this one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    rank = int(os.environ["RANK"])
    threading.Thread(target=_listen, args=(folder, rank, frames), daemon=True).start()
    shown, process = sys.excepthook, os.getpid()

    def hook(kind: type[BaseException], value: BaseException, where: TracebackType | None) -> None:
        shown(kind, value, where)
        sys.stderr.flush()
        if os.getpid() != process:  # a DataLoader worker, which inherits the hook
            return
        dump(folder, rank, frames)
        (folder / "request").touch()
        until = time.monotonic() + (PATIENCE if wait_for_peers else 0.0)
        while time.monotonic() < until and len([*(folder / "dumps").iterdir()]) < int(os.environ["WORLD_SIZE"]):
            time.sleep(0.05)

    sys.excepthook = hook


def dump(folder: Path, rank: int, frames: bool) -> None:
    """Write both forms once; what comes after a first dump does not replace it."""
    with _once:
        if (folder / "dumps" / f"comm_lib_trace_rank_{rank}").exists():
            return
        for name, data in (
            (f"json/comm_lib_trace_rank_{rank}.json", c10d._dump_fr_trace_json(True, False)),
            (f"dumps/comm_lib_trace_rank_{rank}", c10d._dump_fr_trace(True, frames, False)),
        ):
            part = folder / f"part-{rank}"
            part.write_bytes(data)
            part.rename(folder / name)


def _listen(folder: Path, rank: int, frames: bool) -> None:
    while True:
        asked = signal.sigtimedwait({signal.SIGTERM}, POLL)
        if asked or (folder / "request").exists():
            dump(folder, rank, frames)
        if asked:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            signal.raise_signal(signal.SIGTERM)
        _tell(folder, rank)


def _tell(folder: Path, rank: int) -> None:
    """Step and counters: whoever reads two that are equal knows that this rank stands still."""
    counters = json.loads(c10d._dump_fr_trace_json(False, False)).get("pg_status", {})
    part = folder / f"tell-{rank}"
    part.write_text(json.dumps({"pid": os.getpid(), "step": STEP[0], "counters": counters}))
    part.rename(folder / "status" / f"{rank}.json")
