"""What a calculator answers: sentences, tables, plots, formulas with numbers put in, and where the defaults come from.

Renderers know only this; each calculator also has a typed result of its own, which `result` holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from whichrank.plan.catalog import Book, Figure
from whichrank.plan.quantities import Range

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are text; all columns but the first are aligned right unless named in `left`. `mark`: the row to stress."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    mark: int | None = None
    left: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Series:
    """`faint`: the end of a range, beside what is likely."""

    name: str
    points: tuple[tuple[float, float], ...]
    faint: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """Curves over a number. `log`: powers of two on the x axis."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    log: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar a row, each of named parts in one unit. `limit`: a line that they should not cross."""

    title: str
    unit: str
    rows: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of work on a lane of a schedule. kind: F, B or W (backward for inputs, for weights)."""

    lane: int
    start: float
    end: float
    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class Schedule:
    title: str
    lanes: tuple[str, ...]
    blocks: tuple[Block, ...]


Chart = Lines | Bars | Schedule


@dataclass(frozen=True, slots=True)
class Formula:
    """A name, the formula in symbols, the same with numbers, and what comes out."""

    name: str
    symbols: str
    numbers: str
    result: str


@dataclass(frozen=True, slots=True)
class Answer:
    calculator: str
    title: str
    says: tuple[str, ...]
    tables: tuple[Table, ...]
    charts: tuple[Chart, ...]
    formulas: tuple[Formula, ...]
    warnings: tuple[str, ...]
    figures: tuple[Figure, ...]
    result: Any
    code: str = ""  # lines to copy, where the answer is code


def age_warnings(book: Book) -> list[str]:
    """One sentence for all prices and specifications that are older than a year."""
    old = sorted(book.old(), key=lambda figure: figure.as_of)
    if not old:
        return []
    named = [f"{figure.name} ({figure.as_of})" for figure in old]
    more = f" and {len(named) - 6} more" if len(named) > 6 else ""
    return [
        f"older than a year: {', '.join(named[:6])}{more}. Put in today's with --set NAME=VALUE or --figures FILE.toml"
    ]


def to_plain(value: Any) -> Any:
    """Dataclasses, ranges and tuples as what JSON knows. Infinite numbers become null."""
    if isinstance(value, Range):
        return {"low": to_plain(value.low), "likely": to_plain(value.likely), "high": to_plain(value.high)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
