"""The output of a tool that somebody ran and pasted: a block that remembers, and waits through lines of others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from whichrank.evidence.scan import Row, State
from whichrank.evidence.section import is_host
from whichrank.facts import NOBODY, Fact, Identity

MOST = 2000  # facts of one tool in one file
PATIENCE = 400  # lines of other things after which a tool's output is over
SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[KMGT]?)i?B?$")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_LABEL = re.compile(r"(?P<host>[A-Za-z][\w.-]{0,60}): (?=\S)")  # pdsh and its like


def size_of(word: str) -> float | None:
    """Bytes: "1073741824", "503Gi", "64B", "1.5G"."""
    match = SIZE.match(word)
    return float(match["number"]) * _UNITS[match["unit"]] if match else None


class Tool:
    """A tool's output under way. A subclass knows in `read` what its last lines were about."""

    def __init__(self) -> None:
        self.found: list[Fact] = []
        self.strange = 0

    def read(self, row: Row) -> bool:
        """Is this line the tool's? What it says goes to `found`."""
        raise NotImplementedError

    def add(self, row: Row, kind: str, *, who: Identity = NOBODY, **values: Any) -> None:
        """A fact proved by this row; what is None is not said."""
        said = {name: value for name, value in values.items() if value is not None}
        self.found.append(row.fact(kind, who=who, **said))

    def read_labelled(self, row: Row) -> bool:
        """The line read without a host's label before it, which the frame leaves where only a part of the file has them."""
        if row.who.host is not None or not (match := _LABEL.match(row.text)) or not is_host(match["host"]):
            return False
        return self.read(replace(row, text=row.text[match.end() :], who=replace(row.who, host=match["host"])))

    def take(self, row: Row) -> bool | None:
        if self.read_labelled(row) or self.read(row):
            self.strange = 0
            return True
        self.strange += 1
        return False if self.strange > PATIENCE else None

    def facts(self) -> Iterable[Fact]:
        """The first `MOST`. They are about a machine: a rank in the file's name says only who pasted them."""
        return [replace(fact, who=replace(fact.who, rank=None, local_rank=None)) for fact in self.found[:MOST]]


class Tools:
    """The block of a `Tool`: a line with an anchor that a fresh one can read starts it."""

    def __init__(self, tool: type[Tool], *anchors: str) -> None:
        self.tool, self.anchors = tool, anchors

    def start(self, row: Row) -> State | None:
        tool = self.tool()
        return tool if tool.take(row) else None
