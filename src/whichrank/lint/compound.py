"""Loops, try and with: what comes in the next iteration is "later", what an except goes on from is another way."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from whichrank.lint import names
from whichrank.lint.expressions import decision, evaluate, method_of, truth
from whichrank.lint.inline import follow, is_context_manager
from whichrank.lint.run import Run, State, place_of
from whichrank.lint.trace import (
    Branch,
    Exit,
    Loop,
    Place,
    Swallow,
    Trace,
    Yield,
    before_exits,
    calls,
    followed,
    leaves,
    matters,
    walk,
)  # fmt: skip
from whichrank.lint.values import (
    CONTAINER,
    FILE_SYSTEM,
    LENGTHS,
    NOT_KNOWN,
    OWN_LENGTH,
    PART,
    RANK,
    UNEVEN,
    Value,
    constant,
)

UNROLLED = 8


def for_loop(run: Run, node: ast.For | ast.AsyncFor) -> Trace:
    from whichrank.lint.statements import bind_element, block

    iterable = evaluate(run, node.iter)
    run.lengths |= iterable.tags & LENGTHS
    if (
        isinstance(iterable.const, tuple)
        and len(iterable.const) <= UNROLLED
        and (RANK in iterable.tags or _sends(node))
    ):
        return _unrolled(run, node, iterable)

    def once() -> Trace:
        bind_element(run, node.target, iterable, node.iter)
        return block(run, node.body)

    body = _repeated(run, node, once)
    counted = "counted" in iterable.tags
    own_length = {CONTAINER, OWN_LENGTH} <= iterable.tags and iterable.own != FILE_SYSTEM
    uneven = (bool(iterable.tags & LENGTHS) or own_length) and not run.joins and not _ends_alike(body)
    loop = Loop(body, place_of(node), run.frame.depth, iterable.own if counted and not uneven else None, uneven)
    return ((loop,) if matters(body) else ()) + block(run, node.orelse)


def _sends(node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.Attribute | ast.Name)
        and (each.attr if isinstance(each, ast.Attribute) else each.id) in ("send", "recv", "isend", "irecv")
        for each in ast.walk(node)
    )


def _unrolled(run: Run, node: ast.For | ast.AsyncFor, iterable: Value) -> Trace:
    """A loop over a few known numbers that sends to each."""
    from whichrank.lint.statements import assign, block

    done: Trace = ()
    if RANK in iterable.tags and any(
        isinstance(each, ast.Break | ast.Continue | ast.Return) for each in ast.walk(node)
    ):
        return ()
    for number in iterable.const:
        assign(run, node.target, constant(number))
        steps = block(run, node.body)
        last = steps[-1] if steps else None
        if isinstance(last, Exit) and last.kind == "continue":
            done += steps[:-1]
        elif isinstance(last, Exit) and last.kind == "break":
            return done + steps[:-1]
        else:
            done += steps
        if leaves(done):
            return done
    return done


def while_loop(run: Run, node: ast.While) -> Trace:
    from whichrank.lint.statements import block

    tested: list[Value] = []

    def once() -> Trace:
        found: list[Trace] = []

        def body() -> None:
            tested.append(decision(run, node.test))
            with run.under(tested[-1]):
                found.append(block(run, node.body))

        before = run.collected(body)
        return followed(before, found[0])

    first = run.state.copy()
    asked: list[Value] = []
    run.collected(lambda: asked.append(decision(run, node.test)))
    run.state = first
    if truth(asked[0]) is False and RANK not in asked[0].tags:
        return ()
    body = _repeated(run, node, once)
    condition = tested[-1]
    loop = Loop(body, place_of(node), run.frame.depth, condition.own)
    return ((loop,) if matters(body) else ()) + (block(run, node.orelse) if node.orelse else ())


def _repeated(run: Run, node: ast.AST, once: Callable[[], Trace]) -> Trace:
    """A loop's body after any number of iterations: what changes in it is no longer known, but what it is made of is."""
    entry = run.state.copy()
    once()
    run.state = _blurred(entry, run.state, node)
    before = run.state.copy()
    body = once()
    run.state = _blurred(before, run.state, node)
    return body


def _blurred(entry: State, after: State, node: ast.AST) -> State:
    """Either of the states before and after an iteration: what differs is no longer known, only what it is made of."""
    place = place_of(node)
    found = entry.merged(after, place, None)
    return State(
        _unsettled(entry.variables, found.variables, place),
        _unsettled(entry.attributes, found.attributes, place),
        found.agreed,
    )


def _unsettled(before: dict[Any, Value], merged: dict[Any, Value], place: Place) -> dict[Any, Value]:
    for name, value in list(merged.items()):
        old = before.get(name)
        if old is not None and old.key != value.key and not value.function:
            merged[name] = replace(value, key=("loop", place, name), const=NOT_KNOWN, own=value.own or old.own)
    return merged


def _ends_alike(body: Trace) -> bool:
    """The loop ends on all ranks by something that none has for its own: a step counter, an agreed flag."""

    def leaves_alike(trace: Trace) -> bool:
        for step in trace:
            if isinstance(step, Exit) and step.kind in ("break", "return") and step.guard is None:
                return True
            if isinstance(step, Branch) and step.why is None and (leaves_alike(step.then) or leaves_alike(step.orelse)):
                return True
        return False

    return leaves_alike(body)


# --- try


def try_block(run: Run, node: ast.Try) -> Trace:
    from whichrank.lint.statements import block

    entry = run.state.copy()
    run.part_ended = False
    body = block(run, node.body)
    steps = body if leaves(body) else followed(body, block(run, node.orelse))
    for handler in node.handlers:
        swallows, instead = _handled(run, handler, body, entry)
        steps = swallows + followed(steps, instead)
    final = block(run, node.finalbody) if node.finalbody else ()
    if (call := next(iter(calls(body)), None)) and (waits := next(iter(calls(final)), None)):
        # A rank with an error waits here, the others in what it left.
        steps = (Swallow(waits.places, call.op, call.name), *steps)
    return followed(before_exits(steps, final), final)


def _handled(run: Run, handler: ast.ExceptHandler, body: Trace, entry: State) -> tuple[Trace, Trace]:
    """What an except swallows, and what it does instead of the rest."""
    from whichrank.lint.statements import block

    caught = _caught(handler.type, run)
    normal = run.state
    run.state = entry.copy()
    if handler.name:
        run.state.variables[handler.name] = Value(("error", place_of(handler)), own="an error")
    steps = block(run, handler.body)
    after, run.state = run.state, normal
    if caught == {"StopIteration"} and run.part_ended and leaves(steps):
        return (), (Branch(steps, (), place_of(handler), run.frame.depth, PART),)
    if caught and caught <= names.HARMLESS:
        return (), ()
    if not leaves(steps):
        run.state = normal.merged(after, place_of(handler), None)
        _flags(run, normal, after)
    swallows: Trace = ()
    if not _always_raises(steps) and (call := next(iter(calls(body)), None)):
        swallows = (Swallow(run.places(handler), call.op, call.name),)
    raises = all(step.kind in ("raise", "exit") for step in walk(steps) if isinstance(step, Exit))
    if (caught and caught <= names.PARSING | names.HARMLESS) or not matters(steps) or (leaves(steps) and raises):
        return swallows, ()
    return swallows, (Branch(steps, (), place_of(handler), run.frame.depth, "an error", handler=True),)


def _flags(run: Run, normal: State, after: State) -> None:
    """What an except sets to True, False or None says that there was an error."""
    for name, value in after.variables.items():
        there = normal.variables.get(name)
        if value.known and isinstance(value.const, bool | None) and (there is None or there.key != value.key):
            run.state.variables[name] = replace(run.state.variables[name], own="an error", const=NOT_KNOWN)


def _caught(node: ast.expr | None, run: Run) -> frozenset[str]:
    if node is None:
        return frozenset()
    kinds = node.elts if isinstance(node, ast.Tuple) else [node]
    return frozenset(run.source.dotted(kind).rsplit(".", 1)[-1].lstrip("$") for kind in kinds)


def _always_raises(trace: Trace) -> bool:
    if not trace:
        return False
    last = trace[-1]
    if isinstance(last, Exit):
        return last.kind in ("raise", "exit")
    return isinstance(last, Branch) and _always_raises(last.then) and _always_raises(last.orelse)


# --- with


def with_block(run: Run, node: ast.With | ast.AsyncWith) -> Trace:
    return _within(run, node, list(node.items))


def _within(run: Run, node: ast.With | ast.AsyncWith, items: list[ast.withitem]) -> Trace:
    from whichrank.lint.statements import assign, block

    if not items:
        return block(run, node.body)
    item, rest = items[0], items[1:]
    call = item.context_expr
    if (
        isinstance(call, ast.Call)
        and (managed := _managed(run, call, item, lambda: _within(run, node, rest))) is not None
    ):
        return managed
    value = evaluate(run, call)
    if item.optional_vars is not None:
        assign(run, item.optional_vars, _entered(run, call, value))
    last = run.source.dotted(call.func).rsplit(".", 1)[-1].lstrip("$") if isinstance(call, ast.Call) else ""
    joins = last in ("Join", "join", "join_uneven_inputs")
    run.joins += joins
    run.no_sync += last == "no_sync"
    try:
        body = _within(run, node, rest)
    finally:
        run.joins -= joins
        run.no_sync -= last == "no_sync"
    if last == "suppress" and isinstance(call, ast.Call) and (op := next(iter(calls(body)), None)):
        if not frozenset().union(*(_caught(each, run) for each in call.args)) <= names.HARMLESS:
            return followed(body, (Swallow(run.places(node), op.op, op.name),))
    return body


def _entered(run: Run, call: ast.expr, value: Value) -> Value:
    """What `as` names."""
    if isinstance(call, ast.Call) and run.source.dotted(call.func).endswith("split_between_processes"):
        padded = any(word.arg == "apply_padding" and getattr(word.value, "value", False) for word in call.keywords)
        return Value(("part", place_of(call)), tags=frozenset() if padded else frozenset({UNEVEN}))
    return value


def _managed(run: Run, call: ast.Call, item: ast.withitem, body: Callable[[], Trace]) -> Trace | None:
    """A context manager of the file: its steps before and after, around the body's."""
    from whichrank.lint.statements import assign

    func = evaluate(run, call.func)
    if func.function is not None and is_context_manager(run, func.function.node):
        if any(frame.node is func.function.node for frame in run.frames):
            return None
        args = [evaluate(run, each) for each in call.args]
        words = {each.arg or "**": evaluate(run, each.value) for each in call.keywords}
        yielded: list[Value] = []
        _, trace = follow(run, func.function, args, words, call, yielded)
        at = next((at for at, step in enumerate(trace) if isinstance(step, Yield)), None)
        if at is None:
            return None
        if item.optional_vars is not None:
            assign(run, item.optional_vars, yielded[0] if yielded else Value(("yielded", place_of(call))))
        inside = body()
        if (op := next(iter(calls(inside)), None)) and _swallows(run, func.function.node):
            inside = followed((Swallow(run.places(call), op.op, op.name),), inside)
        return _around(trace[:at], inside, trace[at + 1 :])
    if func.defines and method_of(run, func.defines, "__enter__"):
        return _object(run, call, item, body)
    return None


def _swallows(run: Run, node: ast.AST) -> bool:
    """A context manager that catches its body's errors and raises none."""
    for each in ast.walk(node):
        if isinstance(each, ast.Try) and any(
            isinstance(part, ast.Yield) for inner in each.body for part in ast.walk(inner)
        ):
            for handler in each.handlers:
                caught = _caught(handler.type, run)
                raises = any(isinstance(part, ast.Raise) for part in ast.walk(handler))
                if not raises and not (caught and caught <= names.HARMLESS):
                    return True
    return False


def _object(run: Run, call: ast.Call, item: ast.withitem, body: Callable[[], Trace]) -> Trace:
    from whichrank.lint.statements import assign

    before: list[Value] = []
    steps = run.collected(lambda: before.append(evaluate(run, call)))
    made = before[0]
    assert made.cls is not None
    parts: list[Trace] = []
    for name in ("__enter__", "__exit__"):
        method = method_of(run, made.cls, name)
        if name == "__exit__":
            parts.append(body())
        if method is not None:
            value, trace = follow(run, replace(method, bound=made), [], {}, call)
            if name == "__enter__" and item.optional_vars is not None:
                assign(run, item.optional_vars, value)
            parts.append(trace)
        else:
            parts.append(())
    enter, inside, leave = parts
    return _around(steps + enter, inside, leave)


def _around(before: Trace, body: Trace, after: Trace) -> Trace:
    return followed(before, followed(before_exits(body, after), after))
