"""A calculator's inputs are a dataclass; each field says how it is asked for. The command line is made from that."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any

from whichrank.errors import UsageProblem
from whichrank.plan.quantities import Range, parse

MOST = 10**9  # of anything that is counted one by one: a GPU, a token of a sequence, a layer


@dataclass(frozen=True, slots=True)
class Ask:
    """How a value is written. kind: one of quantities.KINDS, or whole, text, choice, list, flag."""

    kind: str
    help: str
    choices: tuple[str, ...] = ()
    least: float = 0


def ask(default: Any, kind: str, help: str, choices: tuple[str, ...] = (), least: float = 0) -> Any:
    """A dataclass field with its question. `least`: the smallest whole number that makes sense."""
    return field(default=default, metadata={"ask": Ask(kind, help, choices, least)})


def questions(inputs: type) -> list[tuple[str, Ask, Any]]:
    """Name, question and default of each field that has one."""
    return [
        (each.name, each.metadata["ask"], each.default) for each in dataclasses.fields(inputs) if "ask" in each.metadata
    ]


def read(value: Any, question: Ask, name: str) -> Any:
    """A value as typed on a command line, checked and converted.

    Raises:
        UsageProblem: in words that name the option.
    """
    option = "--" + name.replace("_", "-")
    if not isinstance(value, str):
        return value
    try:
        return _read(value.strip(), question)
    except UsageProblem as error:
        raise UsageProblem(f"{option}: {error}") from None


def _read(value: str, question: Ask) -> Any:
    match question.kind:
        case "whole":
            return _whole(value, question.least)
        case "list":
            return tuple(_whole(part, question.least) for part in re.split(r"[,\s]+", value) if part)
        case "text":
            return value
        case "choice":
            if value not in question.choices:
                raise UsageProblem(f"{value!r} is none of {', '.join(question.choices)}")
            return value
        case _:
            found: Range = parse(value, question.kind)
            if found.low < question.least:
                raise UsageProblem(f"{value!r}: at least {question.least:g}")
            return found


def _whole(value: str, least: float) -> int:
    found = parse(value, "count")
    number = round(found.likely)
    if not found.certain or number != found.likely:
        raise UsageProblem(f"{value!r} is no whole number")
    if number < least:
        raise UsageProblem(f"{value!r}: at least {least:g}")
    if number > MOST:
        raise UsageProblem(f"{value!r} is beyond reason: at most {MOST:,}")
    return number
