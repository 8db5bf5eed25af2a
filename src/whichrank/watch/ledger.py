"""What a history knows of this run: its start and its ranks once they are there, now and then, and its end.

A process of its own writes it, `python -m whichrank.watch.ledger RUN` with WHICHRANK_HISTORY as the place: it reads the
run directory as anybody may later, and is left behind when its time is over. A database that hangs or is down costs the job
nothing but the last wait; then `whichrank history add RUN` does the same.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whichrank.watch import limited, output
from whichrank.watch.follow import Rank
from whichrank.watch.rundir import RunDir

if TYPE_CHECKING:
    from whichrank.watch.front import Options

SECONDS = 15.0  # that one writing may take
SETTLED = 3.0  # seconds without a new rank in which all of the node are there
ALONE = 60.0  # seconds after which a job without ranks is kept too
AGAIN = 3600.0  # seconds: what a node that dies, and whose directory nobody reads, may lose of its hours
BUSY = 60.0  # seconds in which a rank begins to use its GPU, where no step tells
TOOL = 5.0
LEFT = 3.0  # seconds for a writing that is under way at the end


class Ledger:
    def __init__(self, options: Options, run: RunDir) -> None:
        self.options, self.run = options, run
        self.work: threading.Thread | None = None
        self.began = self.changed = time.monotonic()
        self.kept_at: float | None = None
        self.any = False
        self.asked = not shutil.which("nvidia-smi")
        self.complained = False

    def look(self, ranks: Sequence[Rank], new: bool, now: float) -> None:
        """Writes where it is time to, beside the looking."""
        if new:
            self.any, self.changed, self.asked = True, now, not shutil.which("nvidia-smi")
            self.kept_at = None
        if self.work is not None and self.work.is_alive():
            return
        settled = now - self.changed > SETTLED if self.any else now - self.began > ALONE
        due = settled and (self.kept_at is None or now - self.kept_at > AGAIN)
        gpus = not self.asked and settled and _at_work(ranks, now - self.changed)
        if due or gpus:
            self.kept_at, self.asked = now, self.asked or gpus
            pids = [rank.pid for rank in ranks] if gpus else []
            self.work = threading.Thread(target=lambda: self._write(pids), daemon=True)
            self.work.start()

    def end(self) -> None:
        if self.work is not None:
            self.work.join(LEFT)
        self._write([], last=True)

    def _write(self, pids: Sequence[int], last: bool = False) -> None:
        if pids and (found := gpus_of(pids)):
            self.run.event("gpus", of={str(pid): gpu for pid, gpu in found.items()})
        began = time.monotonic()
        why = written(self.run.path, self.options.history or "", SECONDS)
        told = {"kept": why is None, "why": why, "seconds": round(time.monotonic() - began, 1)}
        self.run.event("history", last=last, **told)
        self.run.write("history.json", json.dumps({"history": 1, "last": last, **told}).encode() + b"\n")
        if why is not None and (last or not self.complained) and not self.options.quiet:
            self.complained = True
            then = f"keep this run later: whichrank history add {self.run.path}" if last else "tried again later"
            output.write(2, f"whichrank: {why}; {then}\n".encode("utf-8", "replace"))


def _at_work(ranks: Sequence[Rank], seconds: float) -> bool:
    """A rank that has made a step uses its GPU."""
    steps = [rank.ring.state.step if rank.ring and rank.ring.state else 0 for rank in ranks]
    return bool(steps) and (min(steps) > 0 or seconds > BUSY)


def gpus_of(pids: Sequence[int]) -> dict[int, str]:
    """The GPU's UUID of each of these processes that uses one, and one only; none where the driver counts other pids
    than this container does (nvidia-smi of driver 470 and later)."""
    ran = limited.run(("nvidia-smi", "--query-compute-apps=pid,gpu_uuid", "--format=csv,noheader"), TOOL)
    used: dict[int, set[str]] = {}
    for line in ran.text.splitlines() if ran.code == 0 else ():
        pid, _, gpu = (cell.strip() for cell in line.partition(","))
        if pid.isdecimal() and int(pid) in pids and gpu:
            used.setdefault(int(pid), set()).add(gpu)
    return {pid: gpus.pop() for pid, gpus in used.items() if len(gpus) == 1}


def written(run: Path, history: str, seconds: float) -> str | None:
    """In a child. None where it is kept, else why not."""
    package = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])}
    env |= {"WHICHRANK_HISTORY": history}  # not as an argument: it may hold a password
    env.pop("WHICHRANK_RUN", None)
    ran = limited.run((sys.executable, "-m", "whichrank.watch.ledger", str(run)), seconds, env)
    if ran.code is None and not ran.error:
        return f"the history gave no answer within {seconds:.0f} s"
    try:
        why = json.loads(ran.out)["why"]
    except (ValueError, KeyError, TypeError):
        return f"the history could not be written ({ran.error or f'exit code {ran.code}'})"
    return None if why is None else str(why)


def main(run: Path) -> None:
    from whichrank.errors import UsageProblem
    from whichrank.history import rundirs
    from whichrank.history.store import Store

    why = None
    part = rundirs.read(run)
    if part is None:
        why = f"{run} has no run.json that can be read"
    else:
        try:
            with Store() as store:
                store.keep_node(*rundirs.kept_of(part), whole=False)
        except UsageProblem as error:
            why = " ".join(str(error).split())
    print(json.dumps({"why": why}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
