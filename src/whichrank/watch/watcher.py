"""The process that watches: keeps the output, follows the ranks, and when one is stuck collects and answers.

It may hang or be killed without any harm to the job. When the front is killed it takes over the output until the ranks
have ended, so that the job is not the one that pays.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from whichrank.errors import UsageProblem
from whichrank.watch import feed, live, output, processes, rundir
from whichrank.watch.collect import Collector
from whichrank.watch.detector import Detector, Passed, Stall
from whichrank.watch.environment import torch_version
from whichrank.watch.follow import Rank, Ranks, seen
from whichrank.watch.journal import Journal
from whichrank.watch.ledger import Ledger
from whichrank.watch.together import Together

if TYPE_CHECKING:
    from whichrank.watch.front import Options

FILES = 1.0  # seconds for the files that tell the version of PyTorch
LOOK = 0.5  # seconds between two looks at the rings
SPOKEN = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
PREEMPT = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)  # a scheduler's word before it kills
QUIET = 60.0  # seconds after a death in which others are its consequence
SETTLE = 6.0  # seconds of a last look after a rank's death, while the launcher ends the others


def watch(options: Options, ways: tuple[output.Way, output.Way], end: socket.socket, tell: int, front: int) -> None:
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
    run = rundir.RunDir(Path(options.run))
    try:
        run.make(options.command)
    except (OSError, UsageProblem) as error:
        os.write(tell, f"failed {options.run}: {getattr(error, 'strerror', None) or error}\n".encode())
        return
    watcher = Watcher(options, ways, run, tell)
    if (version := _torch(options.command)) is not None:
        os.write(tell, b"torch %d.%d\n" % version)
    os.write(tell, b"ready\n")
    rundir.clear(run.path.parent, time.time()) if run.path.parent.name.startswith(rundir.PREFIX) else None
    watcher.run_until_the_end(end)
    with contextlib.suppress(OSError):
        os.write(tell, b"done\n")


def _torch(command: tuple[str, ...]) -> tuple[int, int] | None:
    """Looked for beside, and not waited for if its storage is slow."""
    found: list[tuple[int, int] | None] = []
    look = threading.Thread(target=lambda: found.append(torch_version(command)), daemon=True)
    look.start()
    look.join(FILES)
    return found[0] if found else None


class Watcher:
    def __init__(self, options: Options, ways: tuple[output.Way, output.Way], run: rundir.RunDir, tell: int) -> None:
        self.options, self.ways, self.run, self.tell = options, ways, run, tell
        self.journal = Journal(run.path)
        self.ranks = Ranks(run.path / "ring")
        self.detector = Detector()
        self.job: int | None = None
        self.code: int | None = None
        self.killed_by = 0
        self.over = threading.Event()
        self.woken, self.wake = os.pipe()
        self.signals: list[int] = []
        self.voice = live.Voice(options, run)
        self.collector = Collector(run, 0)
        self.ledger = Ledger(options, run) if options.history else None
        self.work: threading.Thread | None = None
        self.terminated = threading.Event()
        self.died_at = 0.0
        self.together = Together(
            options,
            run,
            self.collector,
            self.voice,
            self.over,
            self.terminated,
            lambda stall: self._do(lambda: self._alone(stall)),
        )

    def run_until_the_end(self, end: socket.socket) -> None:
        for work in (lambda: self._listen(end), self._signals):
            threading.Thread(target=work, daemon=True).start()
        threading.Thread(target=self.collector.counters, daemon=True).start()
        while not self.over.is_set():
            with contextlib.suppress(OSError, ValueError):
                select.select([self.woken, *self.ranks.handles()], [], [], LOOK)
            self._look()
        self._last_look()

    # What the front tells

    def _listen(self, end: socket.socket) -> None:
        for message in feed.messages(end):
            if message is None:
                self.journal.idle(time.time_ns())
                continue
            kind, wall_ns, data = message
            if kind in (feed.STDOUT, feed.STDERR):
                self.journal.write(kind, wall_ns, data)
            elif kind == feed.DROPPED:
                self.journal.note(
                    wall_ns, f"{int(data)} bytes of output are missing here: they came faster than they could be kept"
                )
            elif kind == feed.STARTED:
                self.job = self.collector.launcher = int(data)
                self.run.save(launcher=self.job)
            elif kind == feed.UNHEARD:
                for way in {way for way in self.ways if way.to == int(data)}:
                    with contextlib.suppress(OSError):
                        os.close(way.read)
            elif kind == feed.SIGNALLED:
                self._signalled(int(data))
            elif kind == feed.ENDED:
                self.code, self.killed_by = map(int, data.split())
                break
        if self.code is None:
            self._take_over()
        self.over.set()
        os.write(self.wake, b"!")

    def _take_over(self) -> None:
        """The front is gone. Somebody has to read what the job writes, or its next line would kill it."""
        self.run.event("front_gone")
        for way in dict.fromkeys(self.ways):
            kind = feed.STDOUT if way.to == 1 else feed.STDERR
            lock = threading.Lock()

            def keep(data: bytes, kind: int = kind, lock: threading.Lock = lock) -> None:
                with lock:
                    self.journal.write(kind, time.time_ns(), data)

            output.Pump(way, keep, lambda: None).start()
        while (self.job is not None and processes.alive(self.job)) or self.ranks.live():
            time.sleep(LOOK)
            self.journal.idle(time.time_ns())

    def _signals(self) -> None:
        """Whether a signal reached the whole process group: then the front has nothing to pass on."""
        while True:
            got = signal.sigwaitinfo(SPOKEN)
            self._tell(b"signal %d\n" % got.si_signo)

    def _tell(self, line: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self.tell, line)

    def _signalled(self, number: int) -> None:
        self.run.event("signal", signal=number)
        if number in PREEMPT and not self.terminated.is_set():
            self.together.told_to_end()
            self.terminated.set()
            threading.Thread(target=self._last_words, args=(number,), daemon=True).start()

    # What the rings show

    def _look(self) -> None:
        new, ended = self.ranks.look()
        for rank in new:
            self._met(rank)
        live_ranks = self.ranks.live()
        now = time.monotonic()
        there = [one for rank in live_ranks if (one := seen(rank, now)) is not None]
        told = self.detector.look(there, now)
        try:
            self.together.look(self.ranks, there, lambda one: self.detector.out(one, now), now)
        except Exception as error:  # this node is watched all the same
            self.run.event("trouble", error=f"{type(error).__name__}: {error}")
        if isinstance(told, Stall):
            self._stalled(told)
        elif isinstance(told, Passed):
            seconds = told.at - told.stall.since
            self.run.event("passed", ranks=told.stall.ranks, phase=told.stall.phase, seconds=round(seconds, 1))
            self.together.passed()
            self._do(lambda: self.voice.passed(told.stall, seconds))
        badly = [rank for rank in ended if not rank.in_order]
        if badly and not self.terminated.is_set():
            self.together.died()
        if badly and live_ranks and not self.terminated.is_set() and now - self.died_at > QUIET:
            self.died_at = now
            self._do(lambda: self._died(badly))
        for rank in ended:
            self._ended(rank)
        if self.ledger is not None:
            self.ledger.look(live_ranks, bool(new), now)

    def _met(self, rank: Rank) -> None:
        who = rank.ring.identity if rank.ring else {}
        keep = ("local_rank", "world", "attempt", "host", "job")
        self.run.event("rank", rank=rank.rank, pid=rank.pid, **{name: who[name] for name in keep if name in who})

    def _ended(self, rank: Rank) -> None:
        ring = rank.ring
        state = ring.state if ring else None
        self.run.event(
            "rank_ended",
            rank=rank.rank,
            pid=rank.pid,
            in_order=rank.in_order,
            exception=bool(ring and ring.exception),
            told=self.terminated.is_set(),
            phase=state.phase if state else None,
            step=state.step if state else None,
        )

    def _stalled(self, stall: Stall) -> None:
        self.run.event(
            "stall",
            ranks=stall.ranks,
            waiting=stall.waiting,
            all_wait=stall.all_wait,
            phase=stall.phase,
            step=stall.step,
            since_mono=stall.since,
            seconds=round(stall.noticed - stall.since, 1),
        )
        self.together.stalled(stall)
        self._do(lambda: self._collect_and_answer(stall))

    # What is done about it: one thing at a time, beside the looking

    def _do(self, work: object) -> None:
        before = self.work

        def next_one() -> None:
            if before is not None:
                before.join(60)
            try:
                work()  # type: ignore[operator]
            except Exception as error:
                self.run.event("trouble", error=f"{type(error).__name__}: {error}")

        self.work = threading.Thread(target=next_one, daemon=True)
        self.work.start()

    def _pids(self) -> dict[int, int]:
        return {rank.rank: rank.pid for rank in self.ranks.live()}

    def _collect_and_answer(self, stall: Stall) -> None:
        self.together.collect(self._pids(), stall.ranks)
        if self.together.exchange is not None:
            threading.Thread(target=self.together.wait, args=(stall,), daemon=True).start()
        elif self.detector.stall is stall:
            self.voice.stalled(stall, time.monotonic() - stall.since)
        if self.options.keep:
            self.voice.keep("stall", self._attempt())
        if self.together.exchange is None:
            self._look_again(stall)

    def _alone(self, stall: Stall) -> None:
        """The other nodes cannot be heard: for this one by itself."""
        if self.detector.stall is stall:
            self.voice.stalled(stall, time.monotonic() - stall.since)
        self._look_again(stall)

    def _look_again(self, stall: Stall) -> None:
        for pause in (20.0, 60.0):  # what happens later may tell more: the kernel's two minutes, a rank that dies
            if self._ends_within(pause) or self.detector.stall is not stall:
                return
            self.collector.stall(self._pids(), stall.ranks)
            self.voice.stalled(stall, time.monotonic() - stall.since)

    def _ends_within(self, seconds: float) -> bool:
        """Waits; True at once when the job ends or is told to."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.over.wait(0.2) or self.terminated.is_set():
                return True
        return False

    def _died(self, ranks: list[Rank]) -> None:
        self.collector.stall(self._pids(), ())
        if self.options.keep:
            self.voice.keep("death", self._attempt())
        if self.together.answers():
            return
        if not self._ends_within(SETTLE) and self.ranks.live():
            self.voice.died([rank.rank for rank in ranks])

    def _last_words(self, number: int) -> None:
        """About to be killed: what is known is written and copied at once."""
        self.voice.flush_report()
        if self.options.keep:
            self.voice.keep(f"signal{number}", self._attempt())
        if self.ledger is not None:
            self.ledger.kept_at = None  # at the next look

    def _attempt(self) -> int:
        attempts = [rank.ring.identity.get("attempt") for rank in self.ranks.known.values() if rank.ring]
        return max((attempt for attempt in attempts if isinstance(attempt, int)), default=0)

    def _last_look(self) -> None:
        self.ranks.look()
        self.journal.close()
        self._tell(b"seen\n")
        self.run.event("ended", code=self.code, signal=self.killed_by, pid=self.job)
        self.run.save(ended=rundir.clocks(), exit_code=self.code)
        if self.work is not None:
            self.work.join(SETTLE)
        if self.ranks.known:
            quiet = self.together.ended(self.code)
            self.voice.ended(self.code, self.terminated.is_set(), quiet, self.together.first)
        self.together.leave()
        if self.options.keep and (self.code or self.voice.spoke):
            self.voice.keep("end", self._attempt())
        if self.ledger is not None:
            self.ledger.end()
