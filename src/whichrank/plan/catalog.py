"""The catalogue: every default is a figure in data/*.toml with its source and date; users override any of them.

A file names its sources once and each value refers to one:

    [sources.h100]
    title = "NVIDIA H100 datasheet"
    as_of = "2023-07"

    [h100.bf16]
    value = 989e12
    unit = "FLOP/s"
    source = "h100"

A figure's name is file.section.value: `gpus.h100.bf16`, `models.llama-3.1-8b.shape`. A `Book` hands figures out and keeps a list of those that
an answer used, so that the answer can show them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from whichrank.errors import UsageProblem
from whichrank.plan.quantities import KINDS, Range, parse

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILES = ("gpus", "models", "prices", "network", "reliability", "assumptions")
OLD_AFTER_DAYS = 366
# units of the catalogue -> the kind that an override with a unit of its own is read as
UNIT_KINDS = {"B": "bytes", "B/s": "rate", "s": "time", "FLOP/s": "flops", "$": "money", "W": "power", "share": "share"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One default: its value or range, and where it comes from. `as_of` is a year, year-month or full date."""

    name: str
    value: Range | str | bool
    unit: str
    source: str
    as_of: str
    note: str = ""
    dated: bool = True  # prices and specifications go out of date; definitions and fitted constants do not

    @property
    def number(self) -> Range:
        if isinstance(self.value, Range):
            return self.value
        raise UsageProblem(f"{self.name} is {self.value!r}, and a number is needed")

    def age_days(self, today: date) -> int:
        parts = [int(part) for part in self.as_of.split("-")]
        since = date(parts[0], parts[1] if len(parts) > 1 else 12, parts[2] if len(parts) > 2 else 28)
        return (today - since).days


@dataclass(frozen=True, slots=True)
class Catalog:
    """All figures by name. `today` decides what is old."""

    figures: dict[str, Figure]
    today: date

    def section(self, prefix: str) -> dict[str, Figure]:
        """The figures below `gpus.h100`, by the last part of their names."""
        start = prefix + "."
        return {name[len(start) :]: figure for name, figure in self.figures.items() if name.startswith(start)}

    def names(self, file: str) -> list[str]:
        """The sections of a file, in its order."""
        start = file + "."
        return list(
            dict.fromkeys(name[len(start) : name.rindex(".")] for name in self.figures if name.startswith(start))
        )

    def book(self) -> Book:
        return Book(self)


@dataclass(slots=True)
class Book:
    """Hands out figures and remembers which."""

    catalog: Catalog
    used: dict[str, Figure] = field(default_factory=dict)

    def figure(self, name: str) -> Figure:
        try:
            found = self.catalog.figures[name]
        except KeyError:
            raise UsageProblem(f"the catalogue has no {name!r}; give it with --set {name}=VALUE") from None
        self.used[name] = found
        return found

    def range(self, name: str) -> Range:
        return self.figure(name).number

    def number(self, name: str) -> float:
        return self.range(name).likely

    def optional(self, name: str) -> Range | None:
        """A figure that not every section has."""
        return self.range(name) if name in self.catalog.figures else None

    def maybe(self, name: str) -> float | None:
        """The likely value of such a figure."""
        found = self.optional(name)
        return found.likely if found else None

    def old(self) -> list[Figure]:
        """Used prices and specifications that are more than a year old."""
        today = self.catalog.today
        return [figure for figure in self.used.values() if figure.dated and figure.age_days(today) > OLD_AFTER_DAYS]


def load(files: tuple[str, ...] = (), settings: tuple[str, ...] = (), today: date | None = None) -> Catalog:
    """The shipped catalogue, with a user's files laid over it and then single settings `name=value`.

    Raises:
        UsageProblem: a file that cannot be read, or a setting that names nothing or has the wrong unit.
    """
    today = today or date.today()
    figures = dict(_shipped())
    for path in files:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageProblem(f"cannot read {path}: {error}") from error
        data = _toml(text, path)
        for file, tables in data.items():
            if file not in (*FILES, "sources") or not isinstance(tables, dict):
                raise UsageProblem(f"{path}: [{file}…] is not known; a table is called {', '.join(FILES)} or sources")
        figures |= _overlay(data, path, today, figures)
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UsageProblem(f"--set {setting}: write it as NAME=VALUE, such as prices.h100.node=280k")
        figures |= {name.strip(): _override(name.strip(), value.strip(), "--set", today, figures)}
    return Catalog(figures, today)


def _overlay(data: dict[str, Any], path: str, today: date, known: dict[str, Figure]) -> dict[str, Figure]:
    """A user's file: full figures as in the shipped files, or plain values for names that exist."""
    sources = data.get("sources", {})
    found: dict[str, Figure] = {}
    for file in FILES:
        for section, values in data.get(file, {}).items():
            if not isinstance(values, dict):
                raise UsageProblem(f"{path}: [{file}.{section}] has to be a table")
            for key, value in values.items():
                name = f"{file}.{section}.{key}"
                if isinstance(value, dict):
                    found[name] = _figure(name, value, sources, path, today)
                else:
                    found[name] = _override(name, value, Path(path).name, today, known)
    return found


def _override(name: str, value: Any, where: str, today: date, known: dict[str, Figure]) -> Figure:
    before = known.get(name)
    if before is None and not _sensible(name, known):
        from difflib import get_close_matches

        near = get_close_matches(name, known, 3, 0.5)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise UsageProblem(f"{where}: no figure is called {name!r}.{hint}")
    like = before or _of_the_same_kind(name, known)
    unit = like.unit if like else ""
    if isinstance(value, str) and (like is None or isinstance(like.value, Range)):
        value = _read(value, unit)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        value = Range.exactly(float(value))
    if like and not isinstance(value, type(like.value)):
        raise UsageProblem(f"{where}: {name} cannot be {value!r}")
    if isinstance(value, Range) and value.low < 0:
        raise UsageProblem(f"{where}: {name} cannot be below zero")
    return Figure(name, value, unit, f"given by you ({where})", today.isoformat(), dated=False)


def _of_the_same_kind(name: str, known: dict[str, Figure]) -> Figure | None:
    """A figure of the same file with the same last part: another GPU's memory."""
    file, key = name.partition(".")[0], name.rpartition(".")[2]
    ends = (other for other in known.values() if other.name.startswith(file + ".") and other.name.endswith("." + key))
    return next(ends, None)


def _sensible(name: str, known: dict[str, Figure]) -> bool:
    """A figure that is not there yet, of a kind that is: another GPU's memory, another server's power."""
    if name.startswith(("network.nodes.", "network.sizes.")):
        return True
    return name.count(".") >= 2 and _of_the_same_kind(name, known) is not None


def _read(value: str, unit: str) -> Range:
    """With a unit of its own, or a bare number in the catalogue's unit."""
    kind = UNIT_KINDS.get(unit, "count")
    if "" not in KINDS[kind][1]:
        try:
            return parse(value, "count")
        except UsageProblem:
            pass
    return parse(value, kind)


def _figure(name: str, entry: dict[str, Any], sources: dict[str, Any], where: str, today: date) -> Figure:
    value = entry.get("value")
    source = sources.get(entry.get("source", ""), {})
    if isinstance(value, bool | str):
        number: Range | str | bool = value
    elif isinstance(value, int | float):
        number = Range(float(entry.get("low", value)), float(value), float(entry.get("high", value)))
    elif "low" in entry and "high" in entry:
        number = Range(float(entry["low"]), (entry["low"] + entry["high"]) / 2, float(entry["high"]))
    else:
        raise UsageProblem(f"{where}: {name} has neither a value nor a low and a high")
    return Figure(
        name,
        number,
        entry.get("unit", ""),
        source.get("title", entry.get("source", f"given by you ({where})")),
        str(entry.get("as_of", source.get("as_of", today.isoformat()))),
        entry.get("note", ""),
        bool(entry.get("dated", source.get("dated", True))),
    )


@cache
def _shipped() -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    folder = resources.files("whichrank.plan") / "data"
    for file in FILES:
        data = _toml((folder / f"{file}.toml").read_text(encoding="utf-8"), f"{file}.toml")
        sources = data.pop("sources", {})
        for section, values in data.items():
            for key, entry in values.items():
                name = f"{file}.{section}.{key}"
                found[name] = _figure(name, entry, sources, f"{file}.toml", date(1970, 1, 1))
    return found


def _toml(text: str, path: str) -> dict[str, Any]:
    try:
        data: dict[str, Any] = tomllib.loads(text)
        return data
    except tomllib.TOMLDecodeError as error:
        raise UsageProblem(f"{path} is not TOML: {error}") from error


def with_value(catalog: Catalog, name: str, value: float) -> Catalog:
    """The same catalogue with one figure changed: for fitting constants."""
    changed = replace(catalog.figures[name], value=Range.exactly(value))
    return Catalog({**catalog.figures, name: changed}, catalog.today)
