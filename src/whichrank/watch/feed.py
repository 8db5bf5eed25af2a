"""What the front tells the watcher: the job's output as it arrives, its start and end, over a socket.

One message: kind, wall clock in nanoseconds, length, then so many bytes. The front never waits: what the watcher does not
take is held in memory up to `MOST` bytes, then left out and counted.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator

STDOUT, STDERR, STARTED, ENDED, SIGNALLED, DROPPED, UNHEARD = range(1, 8)
HEAD = struct.Struct("<BQI")
MOST = 64 << 20
BUFFER = 1 << 20
BROKEN = (BrokenPipeError, ConnectionResetError)


class Feed:
    """The front's end."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self.waiting: deque[tuple[bytes, bytes]] = deque()
        self.held = 0
        self.lost = 0
        self.gone = False
        self.there = threading.Condition()
        threading.Thread(target=self._send, name="whichrank-feed", daemon=True).start()

    def put(self, kind: int, data: bytes = b"") -> None:
        """Never waits."""
        with self.there:
            if self.gone:
                return
            if kind in (STDOUT, STDERR) and self.held + len(data) > MOST:
                self.lost += len(data)
                return
            if self.lost:
                count = str(self.lost).encode()
                self.lost = 0
                self._add(DROPPED, count)
            self._add(kind, data)
            self.there.notify()

    def _add(self, kind: int, data: bytes) -> None:
        self.waiting.append((HEAD.pack(kind, time.time_ns(), len(data)), data))
        self.held += len(data)

    def _send(self) -> None:
        while True:
            with self.there:
                while not self.waiting:
                    self.there.wait()
                head, data = self.waiting[0]
            try:
                self.end.sendall(head + data)
            except OSError:
                with self.there:
                    self.gone = True
                    self.waiting.clear()
                    self.held = 0
                return
            with self.there:
                self.waiting.popleft()
                self.held -= len(data)

    def flushed(self, seconds: float) -> bool:
        """Waits until all was taken, up to so long."""
        until = time.monotonic() + seconds
        while self.waiting and not self.gone and time.monotonic() < until:
            time.sleep(0.005)
        return not self.waiting


def messages(end: socket.socket) -> Iterator[tuple[int, int, bytes] | None]:
    """(kind, wall clock in ns, data) as they come; None where half a second nothing came. Ends when the front does."""
    buffer = bytearray()
    while True:
        if not select.select([end], [], [], 0.5)[0]:
            yield None
            continue
        try:
            data = end.recv(BUFFER)
        except OSError:
            data = b""
        if not data:
            return
        buffer += data
        at = 0
        while len(buffer) - at >= HEAD.size:
            kind, wall_ns, length = HEAD.unpack_from(buffer, at)
            if len(buffer) - at < HEAD.size + length:
                break
            start = at + HEAD.size
            yield kind, wall_ns, bytes(buffer[start : start + length])
            at = start + length
        del buffer[:at]
