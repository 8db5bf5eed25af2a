"""python -m whichrank.preflight.storage_probe PATH BYTES: what storage takes, a line of JSON before and after each step.

Its own process, so that it can be left behind. The file it writes has a name of its own and is removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

BLOCK = 64 << 10
LONGEST = 2.5  # seconds of writing, and of reading: what is slow must not look as if it hung
ASKED = 5  # times that a file's attributes are asked for: the middle one counts


def say(**row: object) -> None:
    print(json.dumps(row), flush=True)


class Progress:
    """bytes: written or read so far, 0 for other operations."""

    bytes = 0


@contextlib.contextmanager
def timed(operation: str) -> Iterator[Progress]:
    say(begin=operation)
    progress = Progress()
    begin = time.perf_counter()
    try:
        yield progress
    except OSError as error:
        say(operation=operation, error=error.strerror or str(error))
        raise
    say(did=operation, seconds=time.perf_counter() - begin, bytes=progress.bytes)


def main(path: str, size: int) -> int:
    folder = Path(path)
    try:
        with timed("look"):
            folder.stat()
        _mount(path)
        place = folder if folder.is_dir() else folder.parent
        if os.access(place, os.W_OK):
            _written(place / f".whichrank-preflight-{os.getpid()}-{time.time_ns()}", size)
        else:
            say(readonly=True)
            _read_only(folder, size)
    except OSError:
        return 1
    return 0


def _written(file: Path, size: int) -> None:
    with timed("create"):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        block = os.urandom(BLOCK)  # nothing that a file system could pack
        with timed("write") as progress:
            until = time.perf_counter() + LONGEST
            while progress.bytes < size and time.perf_counter() < until:
                progress.bytes += os.write(descriptor, block)
        with timed("fsync"):
            os.fsync(descriptor)
        _read(descriptor)
        _metadata(file)
    finally:
        os.close(descriptor)
        with timed("remove"):
            file.unlink()


def _read(descriptor: int, size: int = sys.maxsize) -> None:
    """From the start; what this machine still has in memory is asked to be forgotten first."""
    with contextlib.suppress(OSError, AttributeError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.lseek(descriptor, 0, os.SEEK_SET)
    with timed("read") as progress:
        until = time.perf_counter() + LONGEST
        while progress.bytes < size and time.perf_counter() < until and (data := os.read(descriptor, BLOCK)):
            progress.bytes += len(data)


def _metadata(file: Path) -> None:
    say(begin="metadata")
    took = []
    for _ in range(ASKED):
        begin = time.perf_counter()
        file.stat()
        took.append(time.perf_counter() - begin)
    say(did="metadata", seconds=statistics.median(took))


def _read_only(folder: Path, size: int) -> None:
    """Of a folder that may only be read: the first file in it, if there is one."""
    file = folder if folder.is_file() else next((one for one in sorted(folder.iterdir())[:200] if one.is_file()), None)
    if file is None:
        return
    descriptor = os.open(file, os.O_RDONLY)
    try:
        _read(descriptor, size)
        _metadata(file)
    finally:
        os.close(descriptor)


def _mount(path: str) -> None:
    """Space, and what is mounted there: proc(5), /proc/self/mountinfo."""
    with contextlib.suppress(OSError):
        told = os.statvfs(path)
        say(free=told.f_bavail * told.f_frsize, total=told.f_blocks * told.f_frsize)
    real, best = os.path.realpath(path), ("", "", "")
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            before, _, after = line.partition(" - ")
            point = before.split()[4]
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best[0]):
                best = (point, *after.split()[:2])  # type: ignore[assignment] # two words
    if best[0]:
        say(kind=best[1], source=best[2])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
