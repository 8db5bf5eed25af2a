"""The process that was started: starts the job, copies its output, passes signals and the exit code on.

It opens nothing below the run directory and waits for nobody but the job: a watcher that hangs or dies costs the job
nothing. A signal is passed on only if the job has not got it already: Ctrl-C, `kill -- -PGID` and a scheduler's signal
reach the job by themselves, since it is in our process group; the watcher, which is so too, tells whether it got it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from whichrank.watch import feed, output
from whichrank.watch.environment import for_job

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
WATCHED = {*PASSED_ON, signal.SIGCHLD, signal.SIGWINCH}
ALSO_GOT_IT = 0.1  # seconds for the watcher to say so
READY = 5.0  # seconds for it to make the run directory
DRAIN = 1.0  # seconds without output after the job's end, in which others may hold its pipes
HEARD = 5.0  # seconds for the watcher to close what it writes: its storage may hang
ANSWER = 60.0  # seconds for the last diagnosis and the copies
HISTORY = 20.0  # seconds more for what is kept in a history
NOT_FOUND, NOT_EXECUTABLE = 127, 126


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for. `run`: the run directory, already chosen; `history`: a file or URL, None to keep nothing; `share`:
    a folder in which the job's nodes find each other."""

    command: tuple[str, ...]
    run: str
    keep: str | None = None
    keep_seconds: float = 20.0
    on_hang: str | None = None
    quiet: bool = False
    history: str | None = None
    share: str | None = None


@dataclass(slots=True)
class Watcher:
    """The other process: `tells` are the lines that it sends."""

    pid: int
    end: socket.socket
    back: int
    heard: bytes = b""
    told: list[str] = field(default_factory=list)

    def listen(self, seconds: float, word: str) -> bool:
        """Waits for a line, up to so long. It is taken out."""
        until = time.monotonic() + seconds
        while True:
            if word in self.told:
                self.told.remove(word)
                return True
            left = until - time.monotonic()
            if self.back < 0 or not select.select([self.back], [], [], max(0.0, left))[0]:
                return False
            data = output.read(self.back)
            if not data:
                os.close(self.back)
                self.back = -1
                return False
            *lines, self.heard = (self.heard + data).split(b"\n")
            self.told += [line.decode() for line in lines]

    def failure(self) -> str:
        """Why it cannot watch."""
        return next((line[7:] for line in self.told if line.startswith("failed ")), "the run directory does not answer")

    def torch(self) -> tuple[int, int] | None:
        """The version of the job's PyTorch, if it has been told."""
        for line in self.told:
            if line.startswith("torch "):
                major, minor = line.removeprefix("torch ").split(".")
                return int(major), int(minor)
        return None


class Put(Protocol):
    def __call__(self, kind: int, data: bytes = b"") -> None: ...


def run(options: Options) -> int:
    """The job's exit code, as a shell gives it: 128 + n after signal n."""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    ways = output.ways()
    watcher = _fork(options, ways)
    ready = watcher is not None and watcher.listen(READY, "ready")
    if not ready:
        why = watcher.failure() if watcher is not None else "no process can be started"
        print(f"whichrank: {why}: the job runs unwatched", file=sys.stderr, flush=True)
    environment = for_job(os.environ, options.run, watcher.torch()) if ready and watcher else dict(os.environ)
    try:
        job = subprocess.Popen(
            options.command,
            stdout=ways[0].job,
            stderr=ways[1].job,
            env=environment,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, old) and None,
        )
    except OSError as error:
        print(f"whichrank: {options.command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        if watcher is not None:
            os.kill(watcher.pid, signal.SIGKILL)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    for fd in {ways[0].job, ways[1].job}:
        os.close(fd)
    return _attend(job, ways, watcher, ANSWER + (HISTORY if options.history else 0.0))


def _fork(options: Options, ways: tuple[output.Way, output.Way]) -> Watcher | None:
    ours, theirs = socket.socketpair()
    back, tell = os.pipe()
    front = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        return None
    if pid:
        theirs.close()
        os.close(tell)
        return Watcher(pid, ours, back)
    try:  # pragma: no cover - another process
        ours.close()
        os.close(back)
        for fd in {ways[0].job, ways[1].job}:
            os.close(fd)
        from whichrank.watch.watcher import watch

        watch(options, ways, theirs, tell, front)
    except BaseException:
        if os.environ.get("WHICHRANK_DEBUG"):
            import traceback

            traceback.print_exc()
    finally:
        os._exit(0)


def _attend(
    job: subprocess.Popen[bytes], ways: tuple[output.Way, output.Way], watcher: Watcher | None, answer: float
) -> int:
    """From the job's start to its end. answer: seconds that the watcher has afterwards."""
    line = feed.Feed(watcher.end) if watcher is not None else None

    def put(kind: int, data: bytes = b"") -> None:
        if line is not None:
            line.put(kind, data)

    put(feed.STARTED, str(job.pid).encode())
    pumps = [_pump(way, put) for way in dict.fromkeys(ways)]
    code = _signals(job, ways, watcher, put)
    _drain(pumps)
    put(feed.ENDED, f"{code} {-job.returncode if job.returncode < 0 else 0}".encode())
    if watcher is not None and line is not None:
        line.flushed(2.0)
        _farewell(watcher, answer)
    return code


def _pump(way: output.Way, put: Put) -> output.Pump:
    kind = feed.STDOUT if way.to == 1 else feed.STDERR
    pump = output.Pump(way, partial(put, kind), partial(put, feed.UNHEARD, b"%d" % way.to))
    pump.start()
    return pump


def _signals(
    job: subprocess.Popen[bytes], ways: tuple[output.Way, output.Way], watcher: Watcher | None, put: Put
) -> int:
    """Passes signals on until the job ends: its exit code."""
    while True:
        got = signal.sigtimedwait(WATCHED, 1.0)
        code = job.poll()
        if code is not None:
            return code if code >= 0 else 128 - code
        if got is None or got.si_signo == signal.SIGCHLD:
            continue
        if got.si_signo == signal.SIGWINCH:
            for way in ways:
                output.resize(way)
            continue
        put(feed.SIGNALLED, str(got.si_signo).encode())
        by_terminal = got.si_code > 0
        if not by_terminal and not (watcher is not None and watcher.listen(ALSO_GOT_IT, f"signal {got.si_signo}")):
            with contextlib.suppress(ProcessLookupError):
                job.send_signal(got.si_signo)


def _drain(pumps: Sequence[output.Pump]) -> None:
    """The rest of the output, however slowly it is read. What the job has left behind may hold its pipes: after a
    silence they are theirs."""
    ended = time.monotonic()
    for pump in pumps:
        while pump.is_alive() and (pump.busy or time.monotonic() - max(ended, pump.last) < DRAIN):
            pump.join(0.02)


def _farewell(watcher: Watcher, answer: float) -> None:
    """The last diagnosis, within its time; a second Ctrl-C ends the waiting. The watcher is left behind, never killed
    while it writes, unless it does not come back."""
    until = time.monotonic() + (answer if watcher.listen(HEARD, "seen") else 0)
    while time.monotonic() < until:
        if watcher.listen(0.2, "done") or watcher.back < 0:
            return
        got = signal.sigtimedwait(WATCHED - {signal.SIGCHLD, signal.SIGWINCH}, 0)
        if got is not None and got.si_signo in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            break
    with contextlib.suppress(ProcessLookupError):
        os.kill(watcher.pid, signal.SIGKILL)
