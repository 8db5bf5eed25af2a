"""Python's own functions, as far as lengths, numbers and agreement go through them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whichrank.lint import names
from whichrank.lint.expressions import COUNTED, SPLIT, attribute
from whichrank.lint.run import Run, place_of
from whichrank.lint.values import (
    CONTAINER,
    ELEMENT,
    LENGTHS,
    LOADER,
    METRIC,
    NOT_KNOWN,
    OUTPUT,
    OWN_LENGTH,
    PARAMETER,
    PART,
    RANK,
    RANK_CHOSEN,
    STRIDED,
    UNEVEN,
    WORLD,
    Value,
    constant,
    tags_of,
)  # fmt: skip

if TYPE_CHECKING:
    from whichrank.lint.calls import Called

ORIGIN = frozenset({RANK, WORLD})
THROUGH = frozenset(
    [
        "enumerate",
        "iter",
        "sorted",
        "list",
        "tuple",
        "reversed",
        "tqdm",
        "trange",
        "cycle",
        "set",
        "next_batch",
        "track",
    ]
)
CONVERSIONS: dict[str, Callable[[Any], Any]] = {"int": int, "str": str, "float": float, "bool": bool, "abs": abs}
ENDS = frozenset(("$exit", "$quit", "sys.exit", "os._exit", "exit", "quit", "os.abort"))
CLEAN = frozenset(["$isinstance", "$hasattr", "$callable", "$issubclass", "$type", "$id", "$print", "$repr", "$super"])


def answer(run: Run, called: Called) -> Value | None:
    name, last = called.name, called.last
    if name in ENDS:
        run.emit_exit(called.node, "exit")
        return constant(None)
    if name in CLEAN:
        return Value(called.key())
    if name in ("$int", "$str", "$float", "$bool", "$abs") and len(called.args) == 1:
        return _converted(name[1:], called)
    if name == "$len" and called.args:
        return _length(called)
    if name == "$range":
        return _range(run, called)
    if name == "$zip" or last == "islice":
        return _zipped(called) if name == "$zip" else _islice(run, called)
    if last in THROUGH and called.args:
        first = called.args[0]
        return Value(("through", last, first.key), first.const, first.own, first.tags, first.items, dotted=first.dotted)
    if name == "$getattr" and len(called.args) >= 2 and isinstance(called.args[1].const, str):
        return attribute(run, called.args[0], called.args[1].const, called.node)
    if name == "$next" and called.args:
        return _next(run, called)
    if name in ("$min", "$max") and any(RANK in v.tags and not v.known for v in called.args) and len(called.args) == 2:
        return Value(called.key(), tags=frozenset({RANK_CHOSEN}))
    if name in ("$input", "sys.stdin.readline"):
        return Value(called.key(), own="its input")
    if names.HOST.search(name):
        return Value(called.key(), own="its host")
    if name in ("$filter", "$map") and len(called.args) > 1:
        return _mapped(called)
    if last in ("array_split", "tensor_split", "chunk", "split", "divide", "distribute", "chunked") and any(
        WORLD in v.tags for v in called.args
    ):
        return Value(called.key(), tags=frozenset({SPLIT}))
    return None


def _converted(name: str, called: Called) -> Value:
    value = called.args[0]
    if value.known and isinstance(value.const, int | str | bool | float):
        try:
            return constant(CONVERSIONS[name](value.const), value.tags & ORIGIN)
        except Exception:  # int("x"): the file's own trouble
            pass
    return Value(called.key(), own=value.own, tags=value.tags)


def _length(called: Called) -> Value:
    value = called.args[0]
    if isinstance(value.const, tuple | str):
        return constant(len(value.const))
    own = value.own if CONTAINER not in value.tags or OWN_LENGTH in value.tags else None
    own = own or (PART if value.tags & LENGTHS else None)
    if LOADER in value.tags and not value.tags & LENGTHS:
        own = None
    return Value(("len", value.key), own=own, tags=value.tags & LENGTHS)


def _range(run: Run, called: Called) -> Value:
    args = called.args
    own = next((value.own for value in args if value.own), None)
    tags: set[str] = {COUNTED} | set(tags_of(args, LENGTHS | {RANK}))
    if RANK_CHOSEN in args[min(1, len(args) - 1)].tags if args else False:
        tags.add(UNEVEN)
    if len(args) == 3 and RANK in args[0].tags and WORLD in args[2].tags and not run.even:
        tags.add(STRIDED)
    known: Any = NOT_KNOWN
    if args and all(isinstance(value.const, int) for value in args):
        try:
            numbers = range(*(int(value.const) for value in args))
            known = tuple(numbers) if len(numbers) <= 16 else NOT_KNOWN
        except ValueError:
            pass
    return Value(("range", tuple(value.key for value in args)), known, own, frozenset(tags))


def _zipped(called: Called) -> Value:
    """As long as the shortest: a counted part ends it on all ranks alike."""
    counted = any(COUNTED in value.tags and not value.tags & LENGTHS for value in called.args)
    tags = tags_of(called.args, LENGTHS | {LOADER}) if not counted else tags_of(called.args, frozenset({LOADER}))
    own = next((value.own for value in called.args if value.own), None)
    return Value(called.key(), own=own, tags=tags, items=None)


def _islice(run: Run, called: Called) -> Value:
    source, rest = called.args[0], called.args[1:]
    if len(rest) == 3 and RANK in rest[0].tags and WORLD in rest[2].tags and not run.even:
        return Value(called.key(), own=source.own, tags=source.tags | {STRIDED})
    return Value(called.key(), own=source.own, tags=source.tags - LENGTHS)


def _next(run: Run, called: Called) -> Value:
    source = called.args[0]
    run.part_ended |= bool(source.tags & LENGTHS) and not run.joins
    own = source.own or (
        "its batch" if source.tags & (LENGTHS | {LOADER}) or names.ITERATED.search(_word(source)) else None
    )
    return Value(called.key(), own=own, tags=source.tags & (LENGTHS | {OUTPUT}))


def _word(value: Value) -> str:
    return value.dotted.rsplit(".", 1)[-1].lstrip("$")


def _mapped(called: Called) -> Value:
    source = called.args[1]
    tags = set(source.tags)
    if called.name == "$filter" and tags & LENGTHS:
        tags.add(UNEVEN)
    return Value(called.key(), own=source.own, tags=frozenset(tags))


def element(iterable: Value, node: ast.AST, *, whole: bool = True) -> Value:
    """What a loop gets from an iterable: a batch of this rank's own, where it is a loader or a part of the data."""
    own = iterable.own
    tags: set[str] = {"loop-variable"} | set(iterable.tags & {OUTPUT, METRIC, PARAMETER})
    if iterable.tags & (LENGTHS | {LOADER}) or names.ITERATED.search(_word(iterable)):
        own = own or "its batch"
        tags.add(ELEMENT)
    elif own and COUNTED not in iterable.tags:
        tags |= iterable.tags & {ELEMENT}
    if COUNTED in iterable.tags:
        own = None
    return Value(("element", place_of(node), iterable.key), own=own, tags=frozenset(tags), dotted="$.[]")
