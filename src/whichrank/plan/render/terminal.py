"""An answer for a terminal: sentences, tables, a drawn schedule, warnings, and where the defaults come from."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from whichrank.plan.answer import Answer, Schedule
from whichrank.plan.render import grid
from whichrank.plan.render.clean import clean
from whichrank.plan.render.figures import by_source

STYLES = {"head": "dim", "row": "", "marked": "bold", "below": "dim", "note": "dim"}
PASSES = {"F": "blue", "B": "green", "W": "yellow"}
MOST_LANES = 16


def render(
    answer: Answer, width: int = 100, *, colour: bool = False, explain: bool = False, sources: bool = True
) -> str:
    """Text of `width` columns, with terminal colours if wanted."""
    console = Console(
        width=max(width, 500), force_terminal=colour, color_system="standard" if colour else None, highlight=False
    )
    with console.capture() as capture:
        for line in _lines(answer, width, explain, sources):
            console.print(line, soft_wrap=True)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _lines(answer: Answer, width: int, explain: bool, sources: bool) -> Iterator[Text]:
    yield from (Text(line, style="bold") for line in textwrap.wrap(clean(answer.title), width))
    for sentence in answer.says:
        yield from _hanging("", sentence, width)
    for table in answer.tables:
        yield Text("")
        yield Text(clean(table.title), style="bold")
        for line in grid.lines(table, width - 2):
            yield Text("  " + line.text, style=STYLES[line.style])
    for chart in answer.charts:
        if isinstance(chart, Schedule) and len(chart.lanes) <= MOST_LANES:
            yield Text("")
            yield from _schedule(chart, width)
    if explain:
        yield Text("")
        yield from _formulas(answer, width)
    if answer.code:
        yield Text("")
        yield from (Text("  " + line) for line in answer.code.splitlines())
    if answer.warnings:
        yield Text("")
    for warning in answer.warnings:
        yield from _hanging("warning ", warning, width, "yellow")
    if not (sources and answer.figures):
        return
    yield Text("")
    yield Text("Defaults, by date and source (--set NAME=VALUE changes one)", style="dim")
    for source, as_of, names in by_source(answer.figures, notes=False):
        yield from _hanging(f"{as_of.ljust(7)} ", f"{source}: {names}", width, "dim", "dim")


def _hanging(word: str, text: str, width: int, style: str = "", rest: str = "") -> Iterator[Text]:
    """Wrapped text with a word in front of it, aligned below itself."""
    indent = " " * (2 + len(word))
    for at, line in enumerate(textwrap.wrap(clean(text), max(20, width - len(indent))) or [""]):
        start = Text(f"  {word}" if at == 0 else indent, style=style)
        yield start.append(line, style=rest or "none")


def _schedule(chart: Schedule, width: int) -> Iterator[Text]:
    """One line per stage; each column is a moment: F, B, W by letter and colour, a dot for idle."""
    end = max((block.end for block in chart.blocks), default=1.0)
    label = max(map(len, chart.lanes)) + 2
    columns = max(20, width - label - 2)
    rows = [[("·", "dim")] * columns for _ in chart.lanes]
    for block in chart.blocks:
        first = int(block.start / end * columns)
        for at in range(first, min(columns, max(first + 1, int(block.end / end * columns)))):
            rows[block.lane][at] = (block.kind, PASSES[block.kind])
    yield Text(chart.title, style="bold")
    for name, row in zip(chart.lanes, rows, strict=True):
        text = Text("  " + name.ljust(label))
        for character, style in row:
            text.append(character, style=style)
        yield text


def _formulas(answer: Answer, width: int) -> Iterator[Text]:
    yield Text("How it is computed", style="bold")
    for formula in answer.formulas:
        yield from _hanging(f"{formula.name} = ", formula.symbols, width)
        if formula.numbers:
            yield from _hanging("  = ", formula.numbers, width)
        yield from _hanging("  = ", formula.result, width, rest="bold")
