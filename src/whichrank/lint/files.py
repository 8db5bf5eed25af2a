"""Files to lint: found, read, parsed. What can't be is told, and the rest goes on."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import sys
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LARGEST = 2 << 20  # bytes of one file; what is larger was generated
SKIPPED = frozenset(["__pycache__", "node_modules", "site-packages", "venv", "build", "dist"])
MAGIC = re.compile(r"^\s*[%!?]")


@dataclass(frozen=True, slots=True)
class Unread:
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Text:
    """A file's program. cells: of a notebook, the first line of each code cell, and which cell it is."""

    path: str
    text: str
    cells: tuple[tuple[int, int], ...] = ()

    def where(self, line: int) -> str:
        """`file.py:12`, or `file.ipynb:cell 3:2`."""
        for first, cell in reversed(self.cells):
            if line >= first:
                return f"{self.path}:cell {cell}:{line - first + 1}"
        return f"{self.path}:{line}"


def find(paths: Sequence[str]) -> Iterator[str | Unread]:
    """Each file once: those named, and the .py and .ipynb files below folders. Links to folders are not followed."""
    seen: set[str] = set()
    for path in paths:
        if path == "-":
            yield path
        elif os.path.isdir(path):  # noqa: PTH112
            yield from (file for file in _below(path) if not isinstance(file, str) or _new(file, seen))
        elif not os.path.lexists(path):
            yield Unread(path, "no such file or folder")
        elif not os.path.exists(path):  # noqa: PTH110
            yield Unread(path, "a symbolic link that leads nowhere, or in a circle")
        elif not os.path.isfile(path):  # noqa: PTH113
            yield Unread(path, "not a regular file")
        elif _new(path, seen):
            yield path


def _new(path: str, seen: set[str]) -> bool:
    real = os.path.realpath(path)
    known = real in seen
    seen.add(real)
    return not known


def _below(folder: str) -> Iterator[str | Unread]:
    wrong: list[OSError] = []
    for where, folders, files in os.walk(folder, onerror=wrong.append):
        folders[:] = sorted(
            name for name in folders
            if not name.startswith(".") and name not in SKIPPED and not (Path(where) / name / "pyvenv.cfg").exists()
        )  # fmt: skip
        for name in sorted(files):
            path = os.path.join(where, name)  # noqa: PTH118
            if name.endswith((".py", ".ipynb")) and os.path.isfile(path):  # noqa: PTH113
                yield path
        while wrong:
            error = wrong.pop()
            yield Unread(str(error.filename or folder), error.strerror or "unreadable")
    for error in wrong:
        yield Unread(str(error.filename or folder), error.strerror or "unreadable")


def read(path: str) -> tuple[Text, ast.Module] | Unread:
    """A file's text and tree, or why there is none."""
    try:
        data = _bytes(path)
    except OSError as error:
        return Unread(path, error.strerror or "unreadable")
    if len(data) > LARGEST:
        return Unread(path, f"larger than {LARGEST >> 20} MiB")
    return parse(path, data)


def _bytes(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read(LARGEST + 1)
    with Path(path).open("rb") as file:
        return file.read(LARGEST + 1)


def parse(path: str, data: bytes) -> tuple[Text, ast.Module] | Unread:
    if b"\0" in data:
        return Unread(path, "binary, not Python")
    try:
        if path.endswith(".ipynb"):
            text = notebook(path, data)
        else:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            text = Text(path, io.TextIOWrapper(io.BytesIO(data), encoding).read())
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return Unread(path, "text of an unknown encoding")
    except (ValueError, RecursionError):
        return Unread(path, "not a notebook")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return text, ast.parse(text.text)
    except SyntaxError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        place = f" ({text.where(error.lineno)})" if error.lineno else ""
        return Unread(path, f"not Python that {version} can parse: {error.msg}{place}")
    except (ValueError, RecursionError, MemoryError):
        return Unread(path, "nested too deeply to be parsed")


def notebook(path: str, data: bytes) -> Text:
    """The code cells of a notebook, one after another; lines for IPython alone become comments."""
    parsed = json.loads(data)
    lines: list[str] = []
    cells: list[tuple[int, int]] = []
    if not isinstance(parsed, dict) or not isinstance(parsed.get("cells"), list):
        raise ValueError(path)
    for number, cell in enumerate(parsed["cells"], 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", "")
        code = "".join(map(str, source)) if isinstance(source, list) else str(source)
        if code.lstrip().startswith("%%"):
            continue
        cells.append((len(lines) + 1, number))
        lines += [MAGIC.sub("# ", line, count=1) for line in code.split("\n")]
    return Text(path, "\n".join(lines) + "\n", tuple(cells))
