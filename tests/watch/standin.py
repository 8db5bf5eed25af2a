"""A small job for tests of `whichrank run`, without torch: processes that write real rings through the recorder's writer.

`python standin.py WORLD SECONDS [RANK:STEP:PHASE:WHAT]…` (as one of several nodes: STANDIN_FIRST, STANDIN_WORLD): each rank steps, waiting for the others in a barrier. At STEP
the rank enters PHASE and does WHAT: a number of seconds, `stop`, `kill`, `raise`, `exit3`.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve()
PACE = 0.1


def _writer():
    path = HERE.parents[2] / "src/whichrank/record/ring.py"
    spec = importlib.util.spec_from_file_location("_standin_ring", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def await_answer(path: str) -> None:
    """What a reader that waits for its file looks like from outside."""
    time.sleep(1e6)


class Rank:
    def __init__(self, rank: int, world: int) -> None:
        self.writer = _writer()
        folder = os.environ.get("WHICHRANK_RUN")
        self.ring = None
        rank, local = rank + int(os.environ.get("STANDIN_FIRST", "0")), rank
        if folder:
            self.ring = self.writer.Ring()
            self.ring.attach(f"{folder}/ring/rank-{rank:06d}-a0-p{os.getpid()}.ring")
            self.ring.identify(
                {
                    "rank": rank,
                    "local_rank": local,
                    "world": int(os.environ.get("STANDIN_WORLD", world)),
                    "attempt": 0,
                    "pid": os.getpid(),
                    "host": os.uname().nodename,
                }
            )
        self.done = 0
        self.spent = {}
        self.phase, self.since = "unknown", time.monotonic_ns()
        self.enter("init")
        threading.Thread(target=self.beat, daemon=True).start()

    def enter(self, phase: str, op: str = "") -> None:
        now = time.monotonic_ns()
        self.spent[self.phase] = self.spent.get(self.phase, 0) + now - self.since
        self.phase, self.since = phase, now
        if self.ring:
            texts = b"\0".join((op.encode(), b"", b"")) + b"\0"
            self.ring.now(self.writer.PHASES.index(phase), now, self.done, self.done, now, texts=texts)

    def step(self) -> None:
        now = time.monotonic_ns()
        self.spent[self.phase] = self.spent.get(self.phase, 0) + now - self.since
        self.since = now
        self.done += 1
        if self.ring:
            self.ring.step(self.done, now, [self.spent.get(name, 0) for name in self.writer.PHASES])
        self.spent = {}

    def beat(self, exiting: bool = False) -> None:
        main = threading.main_thread().ident
        last, number, first, times = b"", 0, 0, 0
        while self.ring:
            now = time.monotonic_ns()
            self.ring.beat(now, time.time_ns(), time.monotonic_ns(), 0, 0, 100, 0, exiting)
            if exiting:
                self.ring.flush()
                return
            frame = sys._current_frames().get(main)
            names = [f"{one.name} ({one.filename}:{one.lineno})" for one in traceback.extract_stack(frame)][::-1]
            text = "\n".join(names).encode()
            if text != last:
                number, first, times, last = self.ring.sample(text), now, 0, text
            times += 1
            self.ring.mark(number, first, now, times, self.done, (0, 0), self.writer.PHASES.index(self.phase))
            self.ring.flush()
            time.sleep(0.5)


def run(rank: int, world: int, seconds: float, barrier, faults: list[str]) -> None:
    own = Rank(rank, world)
    until = time.monotonic() + seconds
    plan = {
        int(step): (phase, what)
        for who, step, phase, what in (fault.split(":") for fault in faults)
        if int(who) == rank
    }
    try:
        _steps(own, until, barrier, plan)
    except Exception:
        if own.ring:
            own.ring.raised(time.time_ns(), True, "MainThread", traceback.format_exc())
            own.ring.flush()
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    own.enter("teardown")
    own.beat(exiting=True)


def _steps(own: Rank, until: float, barrier, plan: dict[int, tuple[str, str]]) -> None:
    while time.monotonic() < until:
        for phase, share in (("data", 0.1), ("compute", 0.6), ("optimizer", 0.1)):
            own.enter(phase)
            time.sleep(PACE * share)
        if own.done in plan:
            phase, what = plan[own.done]
            own.enter(phase)
            print(f"rank enters {phase} at step {own.done}", flush=True)
            _do(what)
        own.enter("collective", "all_reduce")
        try:
            barrier.wait()
        except threading.BrokenBarrierError:
            return
        own.step()
    barrier.abort()  # who is one step behind would wait for this rank for ever


def _do(what: str) -> None:
    if what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "raise":
        raise ValueError("labels out of range")
    elif what.startswith("exit"):
        os._exit(int(what[4:]))
    elif float(what) > 1e5:
        await_answer("/data/part-7")
    else:
        time.sleep(float(what))


def main(world: int, seconds: float, faults: list[str]) -> int:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(world)
    ranks = [context.Process(target=run, args=(rank, world, seconds, barrier, faults)) for rank in range(world)]
    for one in ranks:
        one.start()

    def end(*_: object) -> None:
        for one in ranks:
            if one.is_alive():
                os.kill(one.pid, signal.SIGKILL)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    while any(one.is_alive() for one in ranks):
        time.sleep(0.05)
        if any(one.exitcode for one in ranks):
            time.sleep(0.5)
            end()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
