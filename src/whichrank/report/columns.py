"""Lines of a report: wrapping under a label, aligned columns, commands that can be copied."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from whichrank.report.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

GRADE_STYLE = {"proven": "bold green", "likely": "yellow", "possible": "yellow", "undecided": "magenta"}
STATE_STYLE = {
    "culprit": "bold red",
    "dead": "red",
    "behind": "yellow",
    "silent": "yellow",
    "ahead": "blue",
    "no trace": "magenta",
}
_WORD = re.compile(r"\s*\S+")


def wrapped(text: Text, width: int) -> Iterator[Text]:
    """The text in lines of at most `width` columns, broken between words; a longer word is broken where it must."""
    width = max(10, width)
    start = end = 0
    for match in _WORD.finditer(text.plain):
        while cell_len(text.plain[start : match.end()]) > width:
            if end > start:  # the word goes to the next line
                yield text[start:end]
                start = end = match.end() - len(match[0].lstrip())
            else:
                end = _fitting(text.plain, start, width)
                yield text[start:end]
                start = end
        end = match.end()
    if end > start or not text.plain.strip():
        yield text[start:end]


def _fitting(text: str, start: int, width: int) -> int:
    end = start + 1
    while end < len(text) and cell_len(text[start : end + 1]) <= width:
        end += 1
    return end


def hanging(
    label: str, body: str | Text, width: int, indent: int, *, label_style: str = "bold", first: str | None = None
) -> Iterator[Text]:
    """A label, and a text beside it that keeps its left edge. `first` replaces the label's column as it stands."""
    text = body if isinstance(body, Text) else Text(body)
    for place, line in enumerate(wrapped(text, width - indent)):
        if place:
            yield Text(" " * indent) + line
        elif first is not None:
            yield Text(first.ljust(indent)) + line
        else:
            yield Text("  ").append(label.ljust(indent - 2), label_style) + line


def command(text: str, indent: int) -> Iterator[Text]:
    """A command on a line of its own, never wrapped by us: what is copied must run."""
    for line in printable(text, keep_lines=True).splitlines():
        prompt = "" if line.startswith("-") else "$ "  # an option of ours to add, not a command
        yield Text(" " * indent).append(prompt, "dim").append(line, "cyan")


def show(lines: Iterable[Text], console: Console) -> None:
    """Print lines. Where the console has no colours no control sequence is written at all."""
    for line in lines:
        if console.color_system is None:
            console.file.write(line.plain.rstrip() + "\n")
        else:
            # Commands may be longer than the line: the terminal wraps them, so that they can be copied whole.
            console.print(line, soft_wrap=True, highlight=False)


def aligned(rows: Sequence[tuple[Text, ...]], width: int, gap: int = 2) -> Iterator[Text]:
    """Rows of cells in columns as wide as they need; the last column takes what is left and wraps."""
    needed = _widths(rows, width - 2, gap)
    for row in rows:
        line = Text("  ")
        at = 2
        for cell, size in zip(row, needed, strict=False):
            if size:
                at += size + gap
                line += _cropped(cell, size)
                line.pad_right(at - line.cell_len)
        yield from _last(line, row[-1], width, at)


def _widths(rows: Sequence[tuple[Text, ...]], room: int, gap: int) -> list[int]:
    """The widths of all columns but the last; where they do not fit, the widest give way."""
    needed = [max(row[column].cell_len for row in rows) for column in range(len(rows[0]) - 1)] if rows else []
    while sum(needed) + gap * len(needed) > room and max(needed) > 1:
        needed[needed.index(max(needed))] -= 1
    return needed


def _cropped(cell: Text, width: int) -> Text:
    if cell.cell_len > width:
        cell = cell.copy()
        cell.truncate(width, overflow="ellipsis")
    return cell


def _last(line: Text, cell: Text, width: int, at: int) -> Iterator[Text]:
    if width - at < 24 and cell.cell_len > width - at:  # too narrow beside the others: below them
        yield line
        line, at = Text(" " * 6), 6
    for place, part in enumerate(wrapped(cell, width - at)):
        yield (line if not place else Text(" " * at)) + part
