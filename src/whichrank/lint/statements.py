"""What statements do on one rank: the trace of a block, and how variables change."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from whichrank.lint import compound, names
from whichrank.lint.builtin import element
from whichrank.lint.expressions import COUNTED, binary, decision, evaluate, picks_own, truth
from whichrank.lint.run import Run, TooMuch, place_of
from whichrank.lint.trace import Branch, Stop, Trace, followed, leaves, matters, may_leave
from whichrank.lint.values import (
    FILE_SYSTEM,
    LOADER,
    LOOP_VARIABLE,
    RANK,
    RANK_CHOSEN,
    Function,
    Value,
    constant,
    joined,
)

STOPS = frozenset({"should_training_stop", "should_epoch_stop"})


def block(run: Run, body: list[ast.stmt]) -> Trace:
    """The trace of statements in a row. State and values are the run's."""
    done: Trace = ()
    for at, statement in enumerate(body):
        run.left -= 1
        if run.left < 0:
            raise TooMuch
        steps = statement_steps(run, statement)
        if leaves(steps):
            return done + steps
        if may_leave(steps):
            return done + followed(steps, block(run, body[at + 1 :]))
        done += steps
    return done


def statement_steps(run: Run, statement: ast.stmt) -> Trace:
    handler = _HANDLERS.get(type(statement))
    if handler is None:
        return ()
    found: list[Trace] = []
    before = run.collected(lambda: found.append(handler(run, statement) or ()))
    return followed(before, found[0])


def _if(run: Run, node: ast.If) -> Trace:
    """One arm where the condition is known, else both."""
    condition = decision(run, node.test)
    if picks_own(node.test, run):
        run.lengths.add("strided")
    known = truth(condition)
    if known is not None:
        with run.under(condition):
            return block(run, node.body if known else node.orelse)
    return either(run, condition, lambda: block(run, node.body), lambda: block(run, node.orelse), node)


def either(run: Run, condition: Value, then: Callable[[], Trace], orelse: Callable[[], Trace], node: ast.AST) -> Trace:
    """Both ways of a condition that is not known."""
    place = place_of(node)
    entry = run.state.copy()
    with run.under(condition):
        first = then()
        after, run.state = run.state, entry
        second = orelse()
    if leaves(first):
        pass
    elif leaves(second):
        run.state = after
    else:
        # Whether a file is there tells little of what is read from it: only the question itself is this rank's own.
        run.state = after.merged(run.state, place, None if condition.own == FILE_SYSTEM else condition.own)
    if not matters(first) and not matters(second) and not (condition.own and (first or second)):
        return ()
    return (Branch(first, second, place, run.frame.depth, condition.own),)


def _match(run: Run, node: ast.Match) -> Trace:
    subject = evaluate(run, node.subject)
    unknown = Value(("match", place_of(node)), own=subject.own)

    def cases(rest: list[ast.match_case]) -> Trace:
        if not rest:
            return ()
        return either(run, unknown, lambda: block(run, rest[0].body), lambda: cases(rest[1:]), node)

    return cases(node.cases)


# --- variables


def assign(run: Run, target: ast.expr, value: Value) -> None:
    """`target = value`, also for tuples, attributes and items."""
    if isinstance(target, ast.Name):
        value = _named(run, target.id, value)
        if run.guards and not value.known and not value.function and not value.cls:
            value = value.tagged(RANK_CHOSEN)
        run.state.variables[target.id] = value
    elif isinstance(target, ast.Attribute):
        base = evaluate(run, target.value)
        why = value.own or (run.whys[-1] if run.whys and value.const is not False else None)
        if why and (target.attr in STOPS or (target.attr == "should_stop" and base.dotted.endswith("trainer"))):
            run.steps.append(Stop(run.places(target), target.attr, why))
        run.state.attributes[base.key, target.attr] = _named(run, target.attr, value)
    elif isinstance(target, ast.Tuple | ast.List):
        for at, each in enumerate(target.elts):
            assign(run, each, _part(value, at, len(target.elts)))
    elif isinstance(target, ast.Starred):
        assign(run, target.value, Value(("starred", place_of(target)), own=value.own))
    elif isinstance(target, ast.Subscript):
        _assign_item(run, target, value)


def _named(run: Run, name: str, value: Value) -> Value:
    """A name says what a value is only where nothing better is known of it."""
    told = (
        value.known or value.own or value.tags or value.function or value.cls or value.group or value.items is not None
    )
    if told:
        return value
    if kind := names.rank_kind(name):
        return run.number(kind)
    if name in names.WORLD_NAMES:
        return run.world_size()
    if names.ITERATED.search(name):
        return value.tagged(LOADER)
    return value


def _part(value: Value, at: int, count: int) -> Value:
    if value.items is not None and len(value.items) == count:
        return value.items[at]
    tags = value.tags - {RANK}
    return Value(("part", value.key, at), own=value.own, tags=tags, dotted=value.dotted and f"{value.dotted}[]")


def _assign_item(run: Run, target: ast.Subscript, value: Value) -> None:
    base = evaluate(run, target.value)
    evaluate(run, target.slice)
    if not isinstance(target.value, ast.Name | ast.Attribute) or base.cls or base.function:
        return
    own = base.own or value.own
    key = ("changed", place_of(target))
    made = Value(key, own=own, tags=(base.tags | value.tags) - {RANK, "world"}, dotted=base.dotted)
    if base.items is not None or own != base.own:
        assign(run, target.value, run.fresh(made))


def bind_element(run: Run, target: ast.expr, iterable: Value, node: ast.expr) -> None:
    """A loop's variables: the counter of enumerate() is nobody's own, each part of zip() is its own list's."""
    name = run.source.dotted(node.func).lstrip("$") if isinstance(node, ast.Call) else ""
    if name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        counter = Value(("counter", place_of(target)), tags=frozenset({LOOP_VARIABLE}))
        assign(run, target.elts[0], counter)
        bind_element(run, target.elts[1], iterable, target.elts[1])
        return
    if (
        name == "zip"
        and isinstance(node, ast.Call)
        and isinstance(target, ast.Tuple)
        and len(target.elts) == len(node.args)
    ):
        for each, source in zip(target.elts, node.args, strict=True):
            assign(run, each, element(evaluate(run, source), source))
        return
    value = element(iterable, node)
    words = [each.id for each in ast.walk(target) if isinstance(each, ast.Name)]
    if (
        not value.own
        and not iterable.known
        and COUNTED not in iterable.tags
        and any(names.is_batch(word, "step") for word in words)
    ):
        value = replace(value, own="its batch", tags=value.tags | {"element"})
    assign(run, target, value)


def _assign(run: Run, node: ast.Assign) -> None:
    value = evaluate(run, node.value)
    for target in node.targets:
        assign(run, target, value)


def _annotated(run: Run, node: ast.AnnAssign) -> None:
    if node.value is not None:
        assign(run, node.target, evaluate(run, node.value))


def _augmented(run: Run, node: ast.AugAssign) -> None:
    target: Any = node.target
    old = evaluate(run, _loaded(target))
    new = evaluate(run, node.value)
    value = binary(node.op, old, new)
    if value.items is None and not value.known:
        value = run.fresh(replace(value, key=("changed", place_of(node), value.key)))
    assign(run, target, value)


def _loaded(target: ast.expr) -> ast.expr:
    """The same place, to be read."""
    fields: dict[str, Any] = {name: getattr(target, name) for name in target._fields}
    copy = type(target)(**{**fields, "ctx": ast.Load()})
    return ast.copy_location(copy, target)


def _expression(run: Run, node: ast.Expr) -> None:
    evaluate(run, node.value)


def _function(run: Run, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    variables = run.state.variables
    variables[node.name] = Value(("local", place_of(node), node.name), function=Function(node, closure=variables))


def _returns(run: Run, node: ast.Return) -> None:
    value = evaluate(run, node.value)
    run.frame.returns.append((value, run.whys[-1] if run.whys else None))
    if _optimises(run) and value.const is not None:
        run.emit_call(node, "backward", name="the backward of training_step's loss")
    run.emit_exit(node, "return")


def _optimises(run: Run) -> bool:
    """In training_step of a LightningModule that leaves the backward to Lightning."""
    frame = run.frame
    if not frame.owner or getattr(frame.node, "name", "") != "training_step":
        return False
    owner = run.source.classes.get(frame.owner)
    if owner is None or not owner.inherits("LightningModule"):
        return False
    manual = any(
        isinstance(each, ast.Attribute) and each.attr == "automatic_optimization" and isinstance(each.ctx, ast.Store)
        for each in ast.walk(owner.node)
    )
    return not manual


def _raises(run: Run, node: ast.Raise) -> None:
    evaluate(run, node.exc)
    run.emit_exit(node, "raise")


def _leave(run: Run, node: ast.Break | ast.Continue) -> None:
    run.emit_exit(node, "break" if isinstance(node, ast.Break) else "continue")


def _assert(run: Run, node: ast.Assert) -> None:
    evaluate(run, node.test)


def _delete(run: Run, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            run.state.variables.pop(target.id, None)


_HANDLERS: dict[type, Callable[[Run, Any], Trace | None]] = {
    ast.If: _if,
    ast.Match: _match,
    ast.For: compound.for_loop,
    ast.AsyncFor: compound.for_loop,
    ast.While: compound.while_loop,
    ast.Try: compound.try_block,
    ast.With: compound.with_block,
    ast.AsyncWith: compound.with_block,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Expr: _expression,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.Return: _returns,
    ast.Raise: _raises,
    ast.Break: _leave,
    ast.Continue: _leave,
    ast.Assert: _assert,
    ast.Delete: _delete,
}
__all__ = ["assign", "bind_element", "block", "constant", "joined"]
