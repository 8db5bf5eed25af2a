"""Files, folders, globs and `-` -> what is to be read. Nothing is followed in a circle."""

from __future__ import annotations

import glob
import io
import os
import shlex
import stat
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

from whichrank.evidence import remote
from whichrank.evidence.unpack import Budget, Member, members
from whichrank.facts import Gap

OWN = ("report.json", "report.md", "report.html", "ask", "incidents.json", "history.json")
MINUS = "-"  # standard input


class Found(NamedTuple):
    """`name` is how the user would call it: relative to the argument's parent where the argument is a folder.

    `path`: in the file system, a URL, or "-".

    `bytes` as the file system says: 0 where it cannot know (a pipe, /proc).
    """

    name: str
    path: str
    bytes: int
    written_ns: int = 0


def collect(paths: Sequence[str]) -> Iterator[Found | Gap]:
    """Every file under `paths`, in a stable order, each once. None of them is opened."""
    seen: set[str] = set()
    for argument in paths:
        if argument == MINUS:
            yield Found(MINUS, MINUS, 0)
            continue
        if remote.is_url(argument):
            for listed in remote.listed(argument):
                if isinstance(listed, Gap):
                    yield listed
                elif listed.url not in seen:
                    seen.add(listed.url)
                    yield Found(*listed)
            continue
        try:
            found = _named(argument)
        except (OSError, ValueError) as error:
            yield Gap(argument, f"cannot be read: {getattr(error, 'strerror', None) or error}")
            continue
        if not found:
            yield Gap(argument, "no such file or folder" if argument else "an empty path: was a variable not set?")
        for path in found:
            named = not Path(path).is_dir()
            for entry in _files(Path(path)):
                if isinstance(entry, Gap):
                    yield entry
                    continue
                real = os.path.realpath(entry[1])
                if real not in seen:
                    seen.add(real)
                    yield _known(*entry, real, named)


def opened(found: Found) -> Iterator[Member | Gap]:
    """What a file holds: itself, or its members where it is packed. Never raises on what it finds."""
    if found.path == MINUS:
        if sys.stdin is None:
            yield Gap(MINUS, "standard input is closed")
        else:
            yield from _members(MINUS, sys.stdin.buffer, Gap(MINUS, "nothing came from standard input"))
        return
    if remote.is_url(found.path):
        with remote.opened(found.path) as there:
            yield from [there] if isinstance(there, Gap) else _members(found.name, there, _empty(found.name))
        return
    try:
        with Path(found.path).open("rb") as file:
            stream: BinaryIO = _Grown(file, found.bytes) if found.bytes else file  # type: ignore[assignment]
            yield from _members(found.name, stream, _empty(found.name))
    except FileNotFoundError:
        yield Gap(found.name, "gone before it could be read")
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        yield Gap(found.name, reason, "the file's content", f"ls -l {shlex.quote(found.path)}")


def _empty(name: str) -> Gap:
    return Gap(name, "empty", "this log with content: an empty file says nothing about its rank")


def _members(name: str, stream: BinaryIO, nothing: Gap) -> Iterator[Member | Gap]:
    for member in members(name, stream, Budget()):
        if isinstance(member, Gap):
            yield member
        elif first := next(member.blocks, None):
            yield Member(member.name, chain((first,), member.blocks))
        else:
            yield nothing if member.name == name else _empty(member.name)


class _Grown(io.RawIOBase):
    """A file up to the size that it had: one that grows while it is read would otherwise never end."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size = file, size

    def read(self, size: int = -1) -> bytes:
        left = max(0, self.size - self.file.tell())
        return self.file.read(left if size < 0 else min(size, left))

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self.file.seekable()

    def tell(self) -> int:
        return self.file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            offset, whence = self.size + offset, os.SEEK_SET
        return self.file.seek(offset, whence)


def _named(argument: str) -> list[str]:
    """The paths that an argument stands for."""
    if not argument:
        return []
    if Path(argument).exists() or Path(argument).is_symlink():
        return [argument]
    return sorted(glob.glob(argument, recursive=True))  # noqa: PTH207


def _files(path: Path) -> Iterator[tuple[str, Path] | Gap]:
    if not path.is_dir():
        yield str(path), path
        return
    top = path.name or path.resolve().name or "."
    closed: list[OSError] = []
    empty = True
    for folder, folders, files in os.walk(path, onerror=closed.append):
        folders.sort()
        if "run.json" in files:  # the directory of a `whichrank run`: its own reports are no evidence
            files = [file for file in files if file not in OWN and not file.endswith(".part")]
        inner = Path(folder).relative_to(path)
        for file in sorted(files):
            if not file.startswith(".") or path == Path(folder):
                empty = False
                yield (Path(top) / inner / file).as_posix(), Path(folder) / file
    for error in closed:
        yield Gap(str(error.filename), f"cannot be opened: {error.strerror or error}", "the files in this folder")
    if empty and not closed:
        yield Gap(str(path), "a folder without files")


def _known(name: str, file: Path, real: str, named: bool) -> Found | Gap:
    """`named`: the user gave this very file, and not a folder above it."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return Gap(name, "a link to a file that is not there")
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        return Gap(name, reason, "the file's content", f"ls -l {shlex.quote(str(file))}")
    # A pipe that was named (`<(zcat log.gz)`) is meant; what lies in a folder may never end: a pipe, a link to /proc/kmsg.
    endless = not stat.S_ISREG(status.st_mode) or real.startswith(("/proc/", "/sys/"))
    if endless and not (named and (stat.S_ISFIFO(status.st_mode) or stat.S_ISREG(status.st_mode))):
        return Gap(name, "not a regular file")
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    return Found(name, str(file), size, status.st_mtime_ns if size else 0)
