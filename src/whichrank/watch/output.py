"""The job's output on its way: the same bytes to where they would have gone, a copy to the watcher.

Where standard output is no terminal the job gets a pipe, otherwise a terminal of its own (programs ask whether they
write to one), which passes bytes as they are. Where standard output and error are one and the same, the job gets one
pipe for both, so that their order stays.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
import termios
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

BLOCK = 256 << 10
PIPE = 1 << 20  # bytes that the kernel may hold between the job and us
_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)


@dataclass(frozen=True, slots=True)
class Way:
    """`job`: what the job writes to. `read`: where it arrives. `to`: where it goes, 1 or 2."""

    job: int
    read: int
    to: int
    terminal: bool = False


def ways() -> tuple[Way, Way]:
    """For standard output and error; twice the same where they are the same file."""
    out = _way(1)
    return (out, out) if _same(1, 2) else (out, _way(2))


def _same(one: int, other: int) -> bool:
    try:
        a, b = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)


def _way(to: int) -> Way:
    if os.isatty(to):
        with contextlib.suppress(OSError):
            return _terminal(to)
    read, job = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(job, _F_SETPIPE_SZ, PIPE)
    return Way(job, read, to)


def _terminal(to: int) -> Way:
    read, job = os.openpty()
    with contextlib.suppress(termios.error):
        how = termios.tcgetattr(to)
        how[1] &= ~termios.OPOST  # the real terminal does that
        termios.tcsetattr(job, termios.TCSANOW, how)
    way = Way(job, read, to, True)
    resize(way)
    return way


def resize(way: Way) -> None:
    """The job's terminal as large as the real one."""
    if way.terminal:
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(way.to, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
            fcntl.ioctl(way.read, termios.TIOCSWINSZ, size)


class Pump(threading.Thread):
    """Copies until the job's end is closed. Where nobody reads any more, the job is to hear of it: `unheard`."""

    def __init__(self, way: Way, copy: Callable[[bytes], None], unheard: Callable[[], None]) -> None:
        super().__init__(name=f"whichrank-output-{way.to}", daemon=True)
        self.way, self.copy, self.unheard = way, copy, unheard
        self.busy = False  # it has read what is not yet written
        self.last = time.monotonic()  # when it last read or wrote

    def run(self) -> None:
        while data := read(self.way.read):
            self.busy = True
            self.copy(data)
            if not write(self.way.to, data):
                with contextlib.suppress(OSError):
                    os.close(self.way.read)
                self.unheard()
                return
            self.last = time.monotonic()
            self.busy = False


def read(fd: int) -> bytes:
    """What came; nothing at the end. A terminal whose other side is closed answers EIO."""
    try:
        return os.read(fd, BLOCK)
    except OSError:
        return b""


def write(fd: int, data: bytes) -> bool:
    """All of it, waiting as long as the reader takes. False if there is no reader any more."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            select.select([], [fd], [], 1.0)
        except OSError as error:
            # Of a full disk or a terminal that is gone the job would not have noticed either.
            return error.errno != errno.EPIPE
    return True
