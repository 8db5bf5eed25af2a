"""A table as lines of text, in the columns there are.

Where it is too wide: first each range goes below its number, then a long last column goes below its row, then rows and
columns change places.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from whichrank.plan.answer import Table
from whichrank.plan.render.clean import clean

GAP = "  "
LONG = 28  # characters of a last column that may stand below its row instead


@dataclass(frozen=True, slots=True)
class Line:
    """style: head, row, marked, below or note."""

    text: str
    style: str


def lines(table: Table, width: int) -> list[Line]:
    """The table without its title, each line at most `width` wide if that can be done."""
    columns = tuple(clean(column) for column in table.columns)
    rows = [tuple(clean(cell) for cell in row) for row in table.rows]
    if _width(columns, rows) > width:
        rows = [tuple(cell.replace(" (", "\n(") if "(" in cell else cell for cell in row) for row in rows]
    long = len(columns) - 1
    room = width - _width(columns[:-1], [row[:-1] for row in rows]) - len(GAP)
    if _width(columns, rows) > width and long in table.left and max(len(row[-1]) for row in rows) > LONG:
        if room >= LONG:
            rows = [(*row[:-1], "\n".join(textwrap.wrap(row[-1].replace("\n", " "), room))) for row in rows]
        else:
            below = [row[-1].replace("\n", " ") for row in rows]
            return list(_drawn(columns[:-1], [row[:-1] for row in rows], table, width, below))
    elif _width(columns, rows) > width and len(rows) < len(columns):
        return list(_turned(columns, rows, table, width))
    return list(_drawn(columns, rows, table, width))


def _width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    return sum(_widths(columns, rows)) + len(GAP) * max(0, len(columns) - 1)


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max([len(column), *(len(part) for row in rows for part in row[at].split("\n"))])
        for at, column in enumerate(columns)
    ]


def _drawn(
    columns: Sequence[str], rows: Sequence[Sequence[str]], table: Table, width: int, below: Sequence[str] = ()
) -> Iterator[Line]:
    widths = _widths(columns, rows)
    yield Line(_joined(columns, widths, table.left), "head")
    for at, row in enumerate(rows):
        style = "marked" if at == table.mark else "row"
        cells = [cell.split("\n") for cell in row]
        for depth in range(max(map(len, cells))):
            yield Line(_joined([cell[depth] if depth < len(cell) else "" for cell in cells], widths, table.left), style)
        for line in textwrap.wrap(below[at], width - 4) if below and below[at] else ():
            yield Line("    " + line, "below")
    for line in textwrap.wrap(table.note, width):
        yield Line(line, "note")


def _turned(columns: Sequence[str], rows: Sequence[Sequence[str]], table: Table, width: int) -> Iterator[Line]:
    """Each row becomes a column; its first cell is the head."""
    head = (columns[0], *(row[0] for row in rows))
    turned = [(columns[at] or "verdict", *(row[at] for row in rows)) for at in range(1, len(columns))]
    yield from _drawn(head, turned, Table(table.title, head, (), table.note), width)


def _joined(cells: Sequence[str], widths: Sequence[int], left: Sequence[int]) -> str:
    padded = (
        cell.ljust(size) if at in left else cell.rjust(size)
        for at, (cell, size) in enumerate(zip(cells, widths, strict=True))
    )
    return GAP.join(padded).rstrip()
