"""Files, folders, globs, `-` and .gz -> named bytes. Nothing is unpacked to disk, nothing is followed in a circle."""

from __future__ import annotations

import glob
import os
import shlex
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from whichrank.facts import Gap

LIMIT = 1 << 30  # bytes of one piece of evidence, after unpacking
BLOCK = 1 << 20
GZIP = b"\x1f\x8b"


class Piece(NamedTuple):
    """`name` is how the user would call it: relative to the argument's parent where the argument is a folder."""

    name: str
    data: bytes


def collect(paths: Sequence[str], limit: int = LIMIT) -> Iterator[Piece | Gap]:
    """Every piece of evidence under `paths`, in a stable order, each once."""
    seen: set[str] = set()
    for argument in paths:
        if argument == "-":
            yield from _standard_input(limit)
            continue
        try:
            found = _named(argument)
        except (OSError, ValueError) as error:
            yield Gap(argument, f"cannot be read: {getattr(error, 'strerror', None) or error}")
            continue
        if not found:
            yield Gap(argument, "no such file or folder" if argument else "an empty path: was a variable not set?")
        for path in found:
            for entry in _files(Path(path)):
                if isinstance(entry, Gap):
                    yield entry
                    continue
                real = os.path.realpath(entry[1])
                if real not in seen:
                    seen.add(real)
                    yield from _read(*entry, limit)


def _named(argument: str) -> list[str]:
    """The paths that an argument stands for."""
    if not argument:
        return []
    if Path(argument).exists() or Path(argument).is_symlink():
        return [argument]
    return sorted(glob.glob(argument, recursive=True))  # noqa: PTH207


def _standard_input(limit: int) -> Iterator[Piece | Gap]:
    if sys.stdin is None:
        yield Gap("-", "standard input is closed")
        return
    data = sys.stdin.buffer.read(limit + 1)
    yield from _unpacked("-", data, limit) if data else [Gap("-", "nothing came from standard input")]


def _files(path: Path) -> Iterator[tuple[str, Path] | Gap]:
    if not path.is_dir():
        yield str(path), path
        return
    top = path.name or path.resolve().name or "."
    closed: list[OSError] = []
    empty = True
    for folder, folders, files in os.walk(path, onerror=closed.append):
        folders.sort()
        inner = Path(folder).relative_to(path)
        for file in sorted(files):
            if not file.startswith(".") or path == Path(folder):
                empty = False
                yield (Path(top) / inner / file).as_posix(), Path(folder) / file
    for error in closed:
        yield Gap(str(error.filename), f"cannot be opened: {error.strerror or error}", "the files in this folder")
    if empty and not closed:
        yield Gap(str(path), "a folder without files")


def _read(name: str, file: Path, limit: int) -> Iterator[Piece | Gap]:
    try:
        status = file.stat()
        mode = status.st_mode
        # A pipe that was named (`<(zcat log.gz)`) is meant; one that lies in a folder may never end.
        if not stat.S_ISREG(mode) and not (stat.S_ISFIFO(mode) and name == str(file)):
            yield Gap(name, "not a regular file")
            return
        if status.st_size > limit:
            cut = f"tail -c 200M {shlex.quote(str(file))} > tail.log"
            yield Gap(name, f"larger than {limit >> 20} MiB, not read", "the end of it, where the hang is", cut)
            return
        with file.open("rb") as stream:
            data = stream.read(limit + 1)
    except FileNotFoundError:
        yield Gap(name, "a link to a file that is not there")
        return
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        yield Gap(name, reason, "the file's content", f"ls -l {shlex.quote(str(file))}")
        return
    if not data:
        yield Gap(name, "empty", "this log with content: an empty file says nothing about its rank")
        return
    yield from _unpacked(name, data, limit)


def _unpacked(name: str, data: bytes, limit: int) -> Iterator[Piece | Gap]:
    """The bytes, unpacked if they are gzip: as far as they go where the file is cut or damaged."""
    for _ in range(2):  # a .gz that was packed once more on its way
        if data[:2] != GZIP:
            break
        data, trouble = _gunzip(data, limit)
        if trouble:
            yield Gap(name, trouble if data else f"not readable as gzip: {trouble}", "the file again, whole")
    if len(data) > limit:
        yield Gap(name, f"larger than {limit >> 20} MiB, not read", "the end of it, where the hang is")
    elif data:
        yield Piece(name, data)


def _gunzip(data: bytes, limit: int) -> tuple[bytes, str]:
    """All members of a gzip file as far as they can be read, and what is wrong with the rest."""
    out: list[bytes] = []
    size = 0
    rest = data
    while rest[:2] == GZIP:
        member = zlib.decompressobj(31)
        try:
            while rest and not member.eof:
                block = member.decompress(rest, BLOCK)
                rest = member.unconsumed_tail
                out.append(block)
                size += len(block)
                if size > limit:
                    return b"", f"larger than {limit >> 20} MiB when unpacked"
        except zlib.error as error:
            return b"".join(out), f"damaged: {error}; read up to there"
        if not member.eof:
            return b"".join(out), "cut off in the middle; read up to there"
        rest = member.unused_data
    return b"".join(out), ""
