"""The one thread of the recorder: once a second the stack of the main thread, a sign of life, an answer if one is asked.

It alone touches the disk, and the main thread never waits for it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import FrameType

from . import flight, identity
from .recorder import OURS, Recorder

EVERY = 1.0  # seconds
FRAMES = 80  # of a stack, from the innermost on
LONGEST = 4000  # bytes of a stack
ASKED = "ask"
HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Sampler:
    def __init__(self, recorder: Recorder, directory: str, path: str) -> None:
        self.recorder = recorder
        self.ring = recorder.ring
        self.directory = directory
        self.path = path  # of the ring's file; may change until it is made, and after
        self.attached = threading.Event()
        self.failed = False
        self.stopped = threading.Event()
        self.key: tuple[object, ...] = ()
        self.sample = 0
        self.first = self.times = self.cpu_first = 0
        self.asked: tuple[int, ...] = ()
        self.clock = _clock_of(recorder.main)
        self.thread = threading.Thread(target=self._run, name="whichrank-recorder", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        """At exit: a last beat. Does not wait for a disk that does not answer."""
        self.stopped.set()
        self.thread.join(0.5)

    def _run(self) -> None:
        try:
            if not identity.private(os.path.dirname(self.path)):
                raise OSError("not ours alone")
            self.ring.attach(self.path)
        except Exception:  # no room, no right, no folder: nothing is recorded, and nobody is bothered
            self.failed = True
            self.attached.set()
            return
        self.attached.set()
        first = True
        while True:
            stopped = self.stopped.is_set()
            try:
                self._beat(not (first or stopped))  # then the main thread stands in this package
            except Exception:
                pass
            if stopped:
                return
            first = False
            self.stopped.wait(EVERY)

    def _beat(self, sampling: bool = True) -> None:
        recorder, ring = self.recorder, self.ring
        frame = sys._current_frames().get(recorder.main or 0)
        now = time.monotonic_ns()
        cpu = _cpu(self.clock)
        if frame is not None and sampling:
            self._sample(frame, now, cpu)
        del frame
        own = time.thread_time_ns()
        wall, mono = time.time_ns(), time.monotonic_ns()
        ring.beat(now, wall, mono, cpu, own, recorder.cost, recorder.answered, recorder.exiting)
        ring.flush()
        if self.path != ring.path:
            ring.rename(self.path)
        self._answer()

    def _sample(self, frame: FrameType, now: int, cpu: int) -> None:
        recorder = self.recorder
        key = tuple(_places(frame))
        if key != self.key:
            self.key = key
            self.sample = self.ring.sample(stack(key))
            self.first, self.times, self.cpu_first = now, 0, cpu
        self.times += 1
        code = recorder.code
        self.ring.mark(self.sample, self.first, now, self.times, recorder.steps, (self.cpu_first, cpu), code)

    def _answer(self) -> None:
        """Has the watcher asked for Flight Recorder's records? The file holds a number, `stacks` after it if wanted."""
        path = os.path.join(self.directory, ASKED)
        try:
            found = os.stat(path)
        except OSError:
            return
        asked = (found.st_ino, found.st_mtime_ns, found.st_size)
        if asked == self.asked:
            return
        self.asked = asked
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                words = file.read(100).split()
            number = int(words[0])
        except (OSError, ValueError, IndexError):
            return
        if number > self.recorder.answered:
            flight.dump(self.directory, self.ring.path, "stacks" in words)
            self.recorder.answered = number
            self._beat(False)


def _places(frame: FrameType | None) -> list[object]:
    found: list[object] = []
    while frame is not None and len(found) < 2 * FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith(HERE):  # a wrapper of ours says nothing
            found.append(code)
            found.append(frame.f_lineno)
        frame = frame.f_back
    return found


def stack(key: tuple[object, ...]) -> bytes:
    """Frames as text, innermost first, one a line; of a long stack the outer ones are left out."""
    lines = []
    size = 0
    for code, line in zip(key[::2], key[1::2]):  # noqa: B905 (Python 3.8)
        text = ("%s (%s:%s)" % (code.co_name, code.co_filename, line)).replace("\n", " ")  # type: ignore[attr-defined]
        data = text.encode("utf-8", "replace")[:400]
        size += len(data) + 1
        if size > LONGEST:
            break
        lines.append(data)
    return b"\n".join(lines)


def _clock_of(ident: int | None) -> int:
    try:
        return time.pthread_getcpuclockid(ident or 0)
    except OURS + (OSError,):
        return -1


def _cpu(clock: int) -> int:
    """Processor time of the main thread in nanoseconds; -1 where it is not known."""
    try:
        return time.clock_gettime_ns(clock) if clock != -1 else -1
    except OSError:
        return -1
