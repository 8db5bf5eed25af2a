"""Files, folders, globs, `-` and .gz -> named bytes. Nothing is unpacked to disk, nothing is followed in a circle."""

from __future__ import annotations

import glob
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from whichrank.facts import Gap

LIMIT = 4 << 30  # bytes of one piece of evidence after unpacking


class Piece(NamedTuple):
    """`name` is how the user would call it: relative to the argument's parent where the argument is a folder."""

    name: str
    data: bytes


def collect(paths: Sequence[str], limit: int = LIMIT) -> Iterator[Piece | Gap]:
    """Every piece of evidence under `paths`, in a stable order, each once."""
    seen: set[str] = set()
    for argument in paths:
        if argument == "-":
            yield Piece("-", sys.stdin.buffer.read())
            continue
        found = [argument] if Path(argument).exists() else sorted(glob.glob(argument, recursive=True))  # noqa: PTH207
        if not found:
            yield Gap(argument, "no such file or folder")
        for path in found:
            for name, file in _files(Path(path)):
                real = os.path.realpath(file)
                if real in seen:
                    continue
                seen.add(real)
                yield _read(name, file, limit)


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    if not path.is_dir():
        yield str(path), path
        return
    top = path.name or path.resolve().name or "."
    for folder, folders, files in os.walk(path):
        folders.sort()
        inner = Path(folder).relative_to(path)
        for file in sorted(files):
            if not file.startswith(".") or path == Path(folder):
                yield (Path(top) / inner / file).as_posix(), Path(folder) / file


def _read(name: str, file: Path, limit: int) -> Piece | Gap:
    try:
        if not file.is_file():
            return Gap(name, "not a regular file")
        data = file.read_bytes()
        if not data:
            return Gap(name, "empty", "this log with content: an empty file says nothing about its rank")
        if data[:2] == b"\x1f\x8b":
            return _gunzip(name, data, limit)
        return Piece(name, data)
    except OSError as error:
        return Gap(name, f"cannot be read: {error.strerror or error}", "the file's content", f"ls -l {name}")


def _gunzip(name: str, data: bytes, limit: int) -> Piece | Gap:
    """What can be unpacked, even if the file is cut."""
    out = bytearray()
    try:
        with gzip.open(io.BytesIO(data)) as stream:
            while chunk := stream.read(1 << 20):
                out += chunk
                if len(out) > limit:
                    return Gap(name, f"larger than {limit >> 20} MiB when unpacked")
    except (EOFError, OSError, zlib.error) as error:
        if not out:
            return Gap(name, f"not readable as gzip: {error}", "the file again: it arrived damaged")
    return Piece(name, bytes(out))
