"""What the lint knows of a value on one rank: its number if it can be told, whether it is this rank's own, what it is."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

NOT_KNOWN: Any = type("NotKnown", (), {"__repr__": lambda self: "?"})()
NO_TAGS: frozenset[str] = frozenset()

# Tags. What a value was made from, or what it is.
RANK, WORLD = "rank", "world"  # computed from the rank's number, from the number of ranks
DDP, SHARDED, FSDP, ENGINE = "ddp", "sharded", "fsdp", "engine"  # a wrapped module; DDP's forward alone blocks rarely
OUTPUT = "output"  # came out of a wrapped module: its backward communicates
METRIC, ACCELERATOR, TRAINER, HF_TRAINER = "metric", "accelerator", "trainer", "hf-trainer"
STRIDED, UNEVEN = "strided", "uneven"  # a part per rank whose length differs: by one at most, by any number
CONTAINER, OWN_LENGTH = "container", "own-length"  # a list or dict; how many it holds is a rank's own matter
LOADER, ELEMENT, LOOP_VARIABLE, CALLED = "loader", "element", "loop-variable", "called"
ITS_RANK = "its rank"
PART = "its part of the data"
FILE_SYSTEM = "what it sees in the file system"
WRAPPED = frozenset({DDP, SHARDED, FSDP, ENGINE})
PARAMETER = "parameter"  # of a function that nobody of the file calls: what it holds shows in how it is used
RANK_CHOSEN = "rank-chosen"  # a number that a condition on the rank, or min() with it, chose
LENGTHS = frozenset({STRIDED, UNEVEN})


@dataclass(frozen=True, slots=True)
class Function:
    """A function, method or lambda of the file; `owner` is the class that it stands in."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    owner: str | None = None
    bound: Value | None = None
    closure: dict[str, Value] | None = field(default=None, compare=False, hash=False)


@dataclass(frozen=True, slots=True)
class Value:
    """Two values with one key are equal, on whichever rank. `const` is NOT_KNOWN or what it is on this rank.

    key: what it was made from; kept as its hash, since such tuples would grow with the length of a program.
    own: why another rank may have another value ("its batch", "its clock", …), None where nothing says so.
    dotted: the name as written, imports resolved: "torch.distributed.all_reduce", "$.trainer.strategy".
    """

    key: Hashable
    const: Any = NOT_KNOWN
    own: str | None = None
    tags: frozenset[str] = NO_TAGS
    items: tuple[Value, ...] | None = None
    dotted: str = ""
    function: Function | None = None
    cls: str | None = None  # an instance of this class of the file
    group: str = ""  # a process group: "world", "dp", "tp", …
    defines: str = ""  # the class of the file that it is, not an instance

    def __post_init__(self) -> None:
        if not isinstance(self.key, int):
            object.__setattr__(self, "key", hash(self.key))

    @property
    def known(self) -> bool:
        return self.const is not NOT_KNOWN

    def tagged(self, *tags: str) -> Value:
        return replace(self, tags=self.tags | frozenset(tags))


def constant(value: Any, tags: frozenset[str] = NO_TAGS) -> Value:
    try:
        hash(value)
    except TypeError:
        value = NOT_KNOWN
    return Value(("const", type(value).__name__, repr(value)), value, tags=tags)  # hash(-1) is hash(-2)


def tags_of(values: Iterable[Value], wanted: frozenset[str]) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for value in values:
        found |= value.tags & wanted
    return found


def joined(key: Hashable, first: Value, second: Value, own: str | None = None) -> Value:
    """Either of two values; `own` where a rank's own state decided which."""
    if first.key == second.key:
        return first if first.own or not second.own else second
    return Value(
        key,
        own=first.own or second.own or own,
        tags=(first.tags | second.tags) - {RANK, WORLD},
        cls=first.cls if first.cls == second.cls else None,
        function=first.function if first.function == second.function else None,
        group=first.group if first.group == second.group else "",
        items=_joined_items(key, first, second, own),
    )


def _joined_items(key: Hashable, first: Value, second: Value, own: str | None) -> tuple[Value, ...] | None:
    if first.items is None or second.items is None or len(first.items) != len(second.items):
        return None
    return tuple(
        joined((key, at), one, other, own)
        for at, (one, other) in enumerate(zip(first.items, second.items, strict=True))
    )
