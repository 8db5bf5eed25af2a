"""The job's output as it arrived: `output.log`, in the form of container logs (CRI), which `diagnose` reads.

A line is `2026-11-30T05:12:44.123456789Z stdout F text`; P instead of F where the rest of the line is still to come. A
carriage return of a progress bar ends a line here and stays at its end, so that the bytes can be told. Lines that came in
one piece carry one time. Up to `MOST` bytes a file: then it becomes `output.first.log` or, when that is there,
`output.earlier.log`, and a new one begins.
"""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import BinaryIO

from whichrank.watch.feed import STDERR, STDOUT

MOST = 96 << 20
NAMES = {STDOUT: b"stdout", STDERR: b"stderr"}
WAIT_NS = 300_000_000  # that a piece of a line may wait for its rest
PIECE = 16 << 10  # bytes of a line that do not wait
AGAIN = 10.0  # seconds after which a full disk is tried again
_RETURNS = re.compile(rb"\r(?!\n)")


def stamp(wall_ns: int) -> bytes:
    """RFC 3339 in UTC, with nanoseconds.

    >>> stamp(1764480078123456789)
    b'2025-11-30T05:21:18.123456789Z'
    """
    seconds, rest = divmod(wall_ns, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode() + b".%09dZ" % rest


class Journal:
    """Writes what comes, in pieces of any size. A full disk loses lines, which are counted, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file: BinaryIO | None = None
        self.size = 0
        self.lost = 0
        self.failed_at: float | None = None
        self.open_pieces: dict[int, tuple[int, bytes]] = {}  # stream -> when its unfinished line began, the line so far

    def write(self, kind: int, wall_ns: int, data: bytes) -> None:
        began, before = self.open_pieces.pop(kind, (wall_ns, b""))
        if before and wall_ns - began > WAIT_NS:
            self._put(kind, began, before, b"P")
            began, before = wall_ns, b""
        data = before + data
        cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1  # a last "\r" may be followed by "\n"
        if cut:
            self._lines(kind, wall_ns, data[:cut])
            began = wall_ns
        if rest := data[cut:]:
            self.open_pieces[kind] = (began, rest)
            if len(rest) > PIECE:
                self.idle(began + WAIT_NS + 1)

    def idle(self, wall_ns: int) -> None:
        """Nothing comes: what waited for the rest of its line is written."""
        for kind, (began, piece) in list(self.open_pieces.items()):
            if wall_ns - began > WAIT_NS:
                del self.open_pieces[kind]
                self._put(kind, began, piece, b"F" if piece.endswith(b"\r") else b"P")

    def note(self, wall_ns: int, text: str) -> None:
        """A line of ours."""
        self._put(STDERR, wall_ns, b"whichrank: " + text.encode(), b"F")

    def close(self) -> None:
        self.idle(time.time_ns() + 2 * WAIT_NS)
        if self.file is not None:
            with contextlib.suppress(OSError):
                self.file.close()
            self.file = None

    def _lines(self, kind: int, wall_ns: int, data: bytes) -> None:
        if b"\r" in data:
            data = _RETURNS.sub(b"\r\n", data)
        head = stamp(wall_ns) + b" " + NAMES[kind] + b" F "
        self._append(head + data[:-1].replace(b"\n", b"\n" + head) + b"\n")

    def _put(self, kind: int, wall_ns: int, text: bytes, tag: bytes) -> None:
        self._append(stamp(wall_ns) + b" " + NAMES[kind] + b" " + tag + b" " + text + b"\n")

    def _append(self, data: bytes) -> None:
        if self.failed_at is not None and time.monotonic() - self.failed_at < AGAIN:
            self.lost += len(data)
            return
        try:
            if self.file is None or self.size + len(data) > MOST:
                self._turn()
            assert self.file is not None
            if self.lost:
                self.file.write(
                    b"%s stderr F whichrank: %d bytes were lost here\n" % (stamp(time.time_ns()), self.lost)
                )
            self.file.write(data)
            self.size += len(data)
            self.failed_at, self.lost = None, 0
        except OSError:
            self.failed_at = time.monotonic()
            self.lost += len(data)

    def _turn(self) -> None:
        """A new file. The first and the last two stay."""
        path = self.folder / "output.log"
        if self.file is not None:
            self.file.close()
            first = self.folder / "output.first.log"
            path.replace(self.folder / "output.earlier.log" if first.exists() else first)
        self.file = path.open("ab", buffering=0)
        self.size = 0
