"""One rank's way through a function: its variables, its attributes, where it is, and the trace that it leaves."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from whichrank.lint.source import Source
from whichrank.lint.trace import Call, Exit, Place, Step, Trace
from whichrank.lint.values import PARAMETER, RANK, WORLD, Value, constant, joined

WORLD_SIZE = 4
STATEMENTS = 40_000  # for one function on one rank, calls followed; what takes more is left undecided
DEEPEST = 7


PROBE = Value(("probe",))  # stands for the function that a decorator is given


class TooMuch(Exception):
    """A function that would take too long: nothing is said of it."""


@dataclass(slots=True)
class State:
    variables: dict[str, Value] = field(default_factory=dict)
    attributes: dict[tuple[Hashable, str], Value] = field(default_factory=dict)
    agreed: set[Hashable] = field(default_factory=set)  # keys of values that a collective made equal on all ranks

    def copy(self) -> State:
        return State(dict(self.variables), dict(self.attributes), set(self.agreed))

    def merged(self, other: State, place: Place, own: str | None) -> State:
        """Either of two states, at a place where ways meet; `own`: a rank's own state chose the way."""
        variables = _merged(self.variables, other.variables, place, own)
        attributes = _merged(self.attributes, other.attributes, place, own)
        return State(variables, attributes, self.agreed & other.agreed)


def _merged(first: dict[Any, Any], second: dict[Any, Any], place: Place, own: str | None) -> dict[Any, Any]:
    found = {}
    for name in [*first, *(name for name in second if name not in first)]:
        one, other = first.get(name), second.get(name)
        if one is None or other is None:
            there: Any = one or other
            found[name] = replace(there, own=there.own or own) if own and not there.function else there
        elif one is other:
            found[name] = one
        else:
            found[name] = joined(("either", place, name), one, other, own)
    return found


@dataclass(slots=True)
class Frame:
    """A function that is being followed. returns: the values, each with the own state that led there."""

    node: ast.AST
    depth: int
    returns: list[tuple[Value, str | None]] = field(default_factory=list)
    yielded: Value | None = None
    even: bool = False  # it cuts or pads its data to a multiple of the number of ranks
    owner: str | None = None


@dataclass(slots=True)
class Run:
    """coordinates: this rank's number, and its number within each kind of group."""

    source: Source
    coordinates: dict[str, int]
    module: dict[str, Value] = field(default_factory=dict)
    text: str = ""
    world: int = WORLD_SIZE
    state: State = field(default_factory=State)
    frames: list[Frame] = field(default_factory=list)
    sites: list[Place] = field(default_factory=list)  # calls on the way here
    steps: list[Step] = field(default_factory=list)
    guards: list[int] = field(default_factory=list)  # frames with a condition on the rank around this place
    whys: list[str] = field(default_factory=list)  # own states around this place
    even_owners: set[str] = field(default_factory=set)  # classes that do so
    asked: set[Hashable] = field(default_factory=set)  # groups in which the rank's number was asked for
    joins: int = 0
    no_sync: int = 0
    left: int = STATEMENTS
    lengths: set[str] = field(default_factory=set)  # tags of what was looped over
    part_ended: bool = False  # next() was called on a part of the data whose length is this rank's own
    probed: bool = False  # a decorator called what it decorates

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    @property
    def even(self) -> bool:
        return self.frame.even or self.frame.owner in self.even_owners

    @property
    def guard(self) -> int | None:
        return min(self.guards) if self.guards else None

    def number(self, kind: str = "rank") -> Value:
        tags = frozenset({RANK})
        return constant(self.coordinates.get(kind, 0), tags)

    def world_size(self) -> Value:
        return constant(self.world, frozenset({WORLD}))

    def first(self, kind: str = "rank") -> Value:
        return constant(self.coordinates.get(kind, 0) == 0, frozenset({RANK}))

    def places(self, node: ast.AST) -> tuple[Place, ...]:
        return (*self.sites, place_of(node))

    def emit_call(self, node: ast.AST, op: str, group: str = "world", name: str = "", detail: Hashable = None) -> None:
        self.steps.append(Call(op, group, self.places(node), self.guard, name or op, detail))

    def emit_exit(self, node: ast.AST, kind: str) -> None:
        self.steps.append(Exit(kind, self.places(node), self.guard, self.whys[-1] if self.whys else ""))

    def collected(self, do: Callable[[], object]) -> Trace:
        """The steps that something leaves, apart from those before."""
        before, self.steps = self.steps, []
        try:
            do()
            return tuple(self.steps)
        finally:
            self.steps = before

    @contextmanager
    def under(self, condition: Value) -> Iterator[None]:
        """Within an arm of a condition."""
        ranked, own = RANK in condition.tags, condition.own
        if ranked:
            self.guards.append(self.frame.depth)
        if own:
            self.whys.append(own)
        try:
            yield
        finally:
            if ranked:
                self.guards.pop()
            if own:
                self.whys.pop()

    def agree(self, value: Value) -> None:
        """A collective made it equal on all ranks."""
        self.state.agreed.add(value.key)
        for item in value.items or ():
            if not item.known:
                self.agree(item)

    def seen(self, value: Value) -> Value:
        """A value as it is read: what was agreed upon is nobody's own."""
        if value.key in self.state.agreed and (
            value.own or value.known or value.items is not None or PARAMETER in value.tags
        ):
            return Value(("agreed", value.key), tags=value.tags - {RANK, PARAMETER}, dotted=value.dotted)
        return value

    def fresh(self, value: Value) -> Value:
        """A value that was made just now, even if one was agreed upon at the same place before."""
        self.state.agreed.discard(value.key)
        return value


def place_of(node: ast.AST) -> Place:
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
