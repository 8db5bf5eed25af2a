"""An answer for a terminal: sentences, tables, a drawn schedule, warnings, and where the defaults come from."""

from __future__ import annotations

import io

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from whichrank.plan.answer import Answer, Schedule, Table
from whichrank.plan.render.figures import by_source
from whichrank.report.printable import printable

STYLES = {"F": "blue", "B": "green", "W": "yellow"}
MOST_LANES = 16
LONG = 24  # characters of a cell that may be wrapped


def render(answer: Answer, width: int = 100, *, colour: bool = False, explain: bool = False) -> str:
    """Text of at most `width` columns, with terminal colours if wanted."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, color_system="standard" if colour else None, highlight=False
    )
    console.print(Text(printable(answer.title), style="bold"))
    for line in answer.says:
        console.print(Padding(Text(printable(line)), (0, 0, 0, 2)))
    for table in answer.tables:
        console.print()
        console.print(_grid(table, width))
    for chart in answer.charts:
        if isinstance(chart, Schedule) and len(chart.lanes) <= MOST_LANES:
            console.print()
            console.print(_schedule(chart, width))
    if explain:
        console.print()
        console.print(_formulas(answer))
    if answer.code:
        console.print()
        console.print(Text(answer.code), soft_wrap=True)
    if answer.warnings:
        console.print()
        for warning in answer.warnings:
            console.print(_hanging("warning", printable(warning), "yellow"))
    console.print()
    console.print(_sources(answer))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _grid(table: Table, width: int) -> RenderableType:
    """Columns side by side; where they do not fit, ranges go below their numbers, then long texts are wrapped."""
    cells = [[printable(cell) for cell in row] for row in table.rows]
    if _natural(table, cells) > width:
        cells = [[cell.replace(" (", "\n(") for cell in row] for row in cells]
    grid = Grid(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False, header_style="dim")
    for at, column in enumerate(table.columns):
        long = at > 0 and at in table.left and max((len(row[at]) for row in cells), default=0) > LONG
        justify: JustifyMethod = "left" if at in table.left else "right"
        grid.add_column(column, justify=justify, no_wrap=not long, overflow="fold")
    for at, row in enumerate(cells):
        grid.add_row(*row, style="bold" if at == table.mark else None)
    parts: list[RenderableType] = [Text(table.title, style="bold"), Padding(grid, (0, 0, 0, 2))]
    if table.note:
        parts.append(Padding(Text(table.note, style="dim"), (0, 0, 0, 2)))
    return Group(*parts)


def _natural(table: Table, cells: list[list[str]]) -> int:
    """Columns that the table takes by itself."""
    widest = [max([len(column), *(len(row[at]) for row in cells)]) for at, column in enumerate(table.columns)]
    return sum(widest) + 2 * len(widest) + 2


def _schedule(chart: Schedule, width: int) -> RenderableType:
    """One line per stage; each column is a moment: F, B, W by colour and letter, a dot for idle."""
    end = max((block.end for block in chart.blocks), default=1.0)
    label = max(map(len, chart.lanes)) + 2
    columns = max(20, width - label - 2)
    rows = [[("·", "dim")] * columns for _ in chart.lanes]
    for block in chart.blocks:
        first = int(block.start / end * columns)
        for at in range(first, max(first + 1, int(block.end / end * columns))):
            if at < columns:
                rows[block.lane][at] = (block.kind, STYLES[block.kind])
    lines: list[RenderableType] = [Text(chart.title, style="bold")]
    for name, row in zip(chart.lanes, rows, strict=True):
        text = Text("  " + name.ljust(label))
        for character, style in row:
            text.append(character, style=style)
        lines.append(text)
    return Group(*lines)


def _formulas(answer: Answer) -> RenderableType:
    lines: list[RenderableType] = [Text("How it is computed", style="bold")]
    for formula in answer.formulas:
        lines.append(Text(f"  {formula.name} = {printable(formula.symbols)}"))
        numbers = printable(formula.numbers)
        lines.append(Text(f"    = {numbers}" if numbers else "", style="dim") if numbers else Text(""))
        lines.append(Text(f"    = {formula.result}", style="bold"))
    return Group(*(line for line in lines if not (isinstance(line, Text) and not line.plain)))


def _hanging(word: str, text: str, style: str) -> RenderableType:
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style=style)
    grid.add_column()
    grid.add_row(word, text)
    return grid


def _sources(answer: Answer) -> RenderableType:
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(style="dim")
    for source, as_of, names in by_source(answer.figures):
        grid.add_row(as_of, f"{printable(source)}: {printable(names)}")
    return Group(
        Text("Defaults, by date and source (change any with --set NAME=VALUE)", style="dim"),
        Padding(grid, (0, 0, 0, 2)),
    )
