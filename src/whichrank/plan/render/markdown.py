"""An answer as GitHub-flavoured Markdown, for an issue, a wiki or the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.plan.answer import Answer, Table
from whichrank.plan.render.clean import clean
from whichrank.plan.render.figures import by_source

_SPECIAL = re.compile(r"([\\`*_\[\]<>|$])")


def render(answer: Answer, *, explain: bool = False, level: int = 2, sources: bool = True) -> str:
    """`level`: of the heading with the title."""
    return "\n".join(_lines(answer, explain, level, sources)).rstrip("\n") + "\n"


def text(value: str) -> str:
    """Shown as it is, in a sentence or a cell."""
    return _SPECIAL.sub(r"\\\1", clean(value))


def _lines(answer: Answer, explain: bool, level: int, sources: bool) -> Iterator[str]:
    yield f"{'#' * level} {text(answer.title)}\n"
    for line in answer.says:
        yield f"- {text(line)}"
    yield ""
    for table in answer.tables:
        yield from table_lines(table)
    if explain:
        yield "**How it is computed**\n"
        for formula in answer.formulas:
            numbers = f" = {formula.numbers}" if formula.numbers else ""
            yield f"- {text(formula.name)}: `{clean(formula.symbols)}{clean(numbers)}` = **{text(formula.result)}**"
        yield ""
    if answer.code:
        yield f"```python\n{answer.code}\n```\n"
    for warning in answer.warnings:
        yield f"> **Warning:** {text(warning)}\n"
    if sources:
        yield "<details><summary>Defaults, by date and source</summary>\n"
        for source, as_of, names in by_source(answer.figures):
            yield f"- {as_of}, {text(source)}: {text(names)}"
        yield "\n</details>"


def table_lines(table: Table) -> Iterator[str]:
    """A table with its title and note."""
    yield f"**{text(table.title)}**\n"
    yield f"| {' | '.join(text(column) for column in table.columns)} |"
    yield f"| {' | '.join(':--' if at in table.left else '--:' for at in range(len(table.columns)))} |"
    for at, row in enumerate(table.rows):
        stress = "**" if at == table.mark else ""
        cells = (f"{stress}{text(cell)}{stress}" if cell else "" for cell in row)
        yield f"| {' | '.join(cells)} |"
    yield ""
    if table.note:
        yield f"{text(table.note)}\n"
