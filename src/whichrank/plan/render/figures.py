"""Where defaults come from, in lines: one for each source, with the values that came from it."""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.plan.catalog import Figure
from whichrank.plan.quantities import Range, digits, money, seconds, si


def by_source(figures: Sequence[Figure], *, notes: bool = True) -> list[tuple[str, str, str]]:
    """Source, date, and "name value, name value"; models' shapes and names of things are left out."""
    found: dict[tuple[str, str], list[str]] = {}
    for figure in figures:
        if isinstance(figure.value, Range):
            note = f" ({figure.note})" if figure.note and notes else ""
            found.setdefault((figure.source, figure.as_of), []).append(f"{figure.name} {value(figure)}{note}")
    return [
        (source, as_of, ", ".join(names))
        for (source, as_of), names in sorted(found.items(), key=lambda item: (item[0][1], item[0][0]))
    ]


def value(figure: Figure) -> str:
    number = figure.number
    if number.certain:
        return _one(number.likely, figure.unit)
    return f"{_one(number.likely, figure.unit)} [{_one(number.low, figure.unit)} to {_one(number.high, figure.unit)}]"


def _one(number: float, unit: str) -> str:
    if unit in ("B", "B/s", "FLOP/s", "W"):
        return si(number, unit)
    if unit == "$":
        return money(number)
    if unit == "s":
        return seconds(number)
    if unit == "share":
        return f"{100 * number:.3g} %"
    return f"{digits(number)} {unit}".strip()
