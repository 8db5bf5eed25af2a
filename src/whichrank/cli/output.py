"""Where a command writes: standard output, clean for pipes, or a file. Progress goes to a terminal's standard error."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from whichrank.errors import UsageProblem
from whichrank.report.printable import cut, many, printable

if TYPE_CHECKING:
    from rich.text import Text

NARROWEST, PIPED, WIDEST = 50, 80, 120


def width(wanted: int | None = None) -> int:
    """Columns to write in: as asked, else the terminal's up to what reads well, else (a pipe, a file) 80."""
    if wanted:
        return max(NARROWEST, wanted)
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdecimal():
        return PIPED
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((PIPED, 24)).columns))


def complain(text: str) -> None:
    """A line on standard error, if anybody listens there."""
    try:
        print(f"whichrank: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - flushed once more at exit


def write_bytes(data: bytes, target: str | None = None) -> None:
    """UTF-8 bytes to a file, or to standard output as they are."""
    _write([data], target or "-", packed=False)


def write_blocks(blocks: Iterable[bytes], target: str) -> None:
    """A long text as it is made, to a file, packed if its name ends in .gz; `-` is standard output."""
    _write(blocks, target, packed=target.endswith(".gz"))


def _write(blocks: Iterable[bytes], target: str, *, packed: bool) -> None:
    if target == "-":
        with _standard_output():
            sys.stdout.flush()
            for block in blocks:
                sys.stdout.buffer.write(block)
            sys.stdout.buffer.flush()
        return
    try:
        with gzip.open(target, "wb", compresslevel=5) if packed else Path(target).open("wb") as file:
            for block in blocks:
                file.write(block)
    except OSError as error:
        raise UsageProblem(f"cannot write {target}: {error.strerror or error}") from error


def write_lines(lines: Iterable[Text], target: str | None = None, *, colour: bool = True) -> None:
    """Lines to a file, always plain, or to standard output: in colour on a terminal, unless that is unwanted."""
    if target and target != "-":
        write_bytes("".join(line.plain.rstrip() + "\n" for line in lines).encode("utf-8", "replace"), target)
        return
    from rich.console import Console

    from whichrank.report.columns import show

    plain = not colour or bool(os.environ.get("NO_COLOR"))
    with _standard_output():
        show(lines, Console(color_system=None if plain else "auto"))


@contextmanager
def _standard_output() -> Iterator[None]:
    """A reader that went away (`| head`) is no error; a full disk is one that the user can mend."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # Python flushes standard output once more at exit: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise UsageProblem(f"cannot write standard output: {error.strerror or error}") from error


class Progress:
    """ "reading 1,204 files: logs/rank1204.log" on one line of standard error, only if that is a terminal."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.files = 0
        self.last = 0.0

    @property
    def callback(self) -> Callable[[str], None] | None:
        return self.tell if self.live else None

    def tell(self, name: str) -> None:
        self.files += 1
        now = time.monotonic()
        if now - self.last > 0.1:
            self.last = now
            self._line(f"reading {many(self.files, 'file')}: {printable(name)}")

    def done(self) -> None:
        if self.live and self.last:
            self._line("")
            sys.stderr.write("\r")

    def _line(self, text: str) -> None:
        """Over the last one, with spaces: not every console knows a sequence that clears the rest."""
        room = shutil.get_terminal_size().columns - 1
        sys.stderr.write("\r" + cut(text, room).ljust(room))
        sys.stderr.flush()
