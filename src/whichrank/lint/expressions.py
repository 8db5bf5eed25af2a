"""What an expression is worth on one rank. Calls within it leave their steps in the run's trace."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from whichrank.lint import names
from whichrank.lint.run import Run, place_of
from whichrank.lint.trace import Branch, Loop, matters
from whichrank.lint.values import (
    ACCELERATOR,
    CALLED,
    CONTAINER,
    DDP,
    ELEMENT,
    ENGINE,
    FILE_SYSTEM,
    ITS_RANK,
    LENGTHS,
    LOADER,
    LOOP_VARIABLE,
    METRIC,
    NOT_KNOWN,
    OUTPUT,
    OWN_LENGTH,
    PARAMETER,
    PART,
    RANK,
    RANK_CHOSEN,
    SHARDED,
    STRIDED,
    TRAINER,
    UNEVEN,
    WORLD,
    WRAPPED,
    Function,
    Value,
    constant,
    joined,
    tags_of,
)  # fmt: skip

ORIGIN = frozenset({RANK, WORLD})
SPLIT, SHAPE, MAY_LACK, COUNTED, BY_RANK = "split", "shape", "may-lack", "counted", "by-rank"
FED = "<fed>"  # an object was given something of this rank's own
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


def evaluate(run: Run, node: ast.expr | None) -> Value:
    """The value of an expression; unknown, and silent, where nothing is known of it."""
    if node is None:
        return constant(None)
    handler = _HANDLERS.get(type(node))
    if handler is None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                evaluate(run, child)
        return Value((type(node).__name__, place_of(node)))
    return handler(run, node)


def decision(run: Run, node: ast.expr) -> Value:
    """A condition's value: of a list or dict, only whether anything is in it."""
    return _emptiness(evaluate(run, node))


def _emptiness(value: Value) -> Value:
    return replace(value, own=None) if CONTAINER in value.tags and OWN_LENGTH not in value.tags else value


def truth(value: Value) -> bool | None:
    return bool(value.const) if value.known else None


def _name(run: Run, node: ast.Name) -> Value:
    name, source = node.id, run.source
    found = run.state.variables.get(name) or run.module.get(name)
    if found is not None:
        found = run.seen(found)
        if name in source.set_by_signal and not found.own:
            return Value(("signal", name), own="a signal", tags=found.tags)
        return found
    if name in source.functions:
        return Value(("function", name), function=Function(source.functions[name]), dotted=f"${name}")
    if name in source.classes:
        return Value(("class", name), dotted=f"${name}", defines=name)
    if name == "__name__":
        return constant("__main__")
    if name not in source.imports and (kind := names.rank_kind(name)):
        return run.number(kind)  # a variable of the function around this one
    return Value(("name", name), dotted=source.imports.get(name, f"${name}"), group=names.group_kind(name))


def _attribute(run: Run, node: ast.Attribute) -> Value:
    return attribute(run, evaluate(run, node.value), node.attr, node)


def attribute(run: Run, base: Value, name: str, node: ast.AST) -> Value:
    """`base.name`."""
    dotted = f"{base.dotted or '$'}.{name}"
    stored = run.state.attributes.get((base.key, name))
    if name in run.source.set_by_signal:
        return Value(("signal", name), own="a signal")
    if stored is not None and (stored.known or not names.rank_kind(name)):
        return replace(run.seen(stored), dotted=dotted)
    if base.cls and (method := method_of(run, base.cls, name)):
        return _method(run, base, method, name, node)
    if dotted.endswith("distributed.group.WORLD"):
        return Value(("world",), group="world")
    if kind := names.rank_kind(name):
        return run.number(kind)
    if kind := names.group_kind(name):
        return Value(("attr", base.key, name), group=kind, dotted=dotted)
    if names.FIRST.search(name) and name != "should_save":
        return replace(run.first(), dotted=dotted)
    if name == "should_save":
        return run.first()
    if name in names.LAST:
        return constant(run.coordinates["rank"] == run.world - 1, frozenset({RANK}))
    if name in names.WORLD_NAMES and not dotted.startswith("torch."):
        return replace(run.world_size(), dotted=dotted)
    return _plain_attribute(run, base, name, dotted)


def _plain_attribute(run: Run, base: Value, name: str, dotted: str) -> Value:
    key = ("attr", base.key, name)
    if name in names.SHAPES:
        return Value(key, tags=frozenset({SHAPE} if base.own else ()), dotted=dotted)
    tags = set(base.tags & {OUTPUT, PARAMETER}) if name not in ("config", "training") else set()
    if kind := run.source.wrapped_attributes.get(name):
        from whichrank.lint.inline import wrapped_tags

        tags |= wrapped_tags(run, kind)
    elif f".{name}" in run.source.unwrapped_in(run.source.tree):
        tags.add(DDP)
    if "stop" in name and (fed := run.state.attributes.get((base.key, FED))):
        return Value(key, own=fed.own, dotted=dotted)
    if names.ITERATED.search(name):
        tags.add(LOADER)
    if name in ("accelerator", "fabric", "_accelerator"):
        tags.add(ACCELERATOR)
    if name in ("trainer", "_trainer"):
        tags.add(TRAINER)
    own = base.own if name not in ("grad", "config", "device", "device_mesh") else None
    return Value(key, own=own, tags=frozenset(tags), dotted=dotted)


def method_of(run: Run, cls: str, name: str, deep: int = 0) -> Function | None:
    """A method of a class of the file, also inherited within it."""
    known = run.source.classes.get(cls)
    if known is None or deep > 8:
        return None
    if name in known.methods:
        return Function(known.methods[name], cls)
    for base in known.bases:
        if found := method_of(run, base.lstrip("$"), name, deep + 1):
            return found
    return None


def _method(run: Run, base: Value, method: Function, name: str, node: ast.AST) -> Value:
    bound = replace(method, bound=base)
    decorators = {
        run.source.dotted(each).rsplit(".", 1)[-1].lstrip("$") for each in getattr(method.node, "decorator_list", [])
    }
    if decorators & {"property", "cached_property"}:
        from whichrank.lint.inline import call_function

        return call_function(run, bound, [], {}, node)
    return Value(("method", base.key, name), function=bound, dotted=f"{base.dotted or '$'}.{name}")


def _subscript(run: Run, node: ast.Subscript) -> Value:
    base = evaluate(run, node.value)
    if isinstance(node.slice, ast.Slice):
        return _sliced(run, base, node.slice, node)
    index = evaluate(run, node.slice)
    if base.dotted == "os.environ" and isinstance(index.const, str):
        return environment(run, index.const, ("env", index.const))
    if base.items is not None and isinstance(index.const, int) and -len(base.items) <= index.const < len(base.items):
        return run.seen(base.items[index.const])
    if base.known and index.known:
        try:
            return constant(base.const[index.const], base.tags & ORIGIN)
        except Exception:  # whatever the file's own values do
            pass
    tags = set(base.tags & {OUTPUT, SHAPE, METRIC, PARAMETER})
    if SPLIT in base.tags and RANK in index.tags and not run.even:
        tags.add(STRIDED)
    if isinstance(index.const, str):
        if base.own and names.MAY_LACK.search(index.const):
            tags.add(MAY_LACK)
        if kind := names.dimension(index.const):
            return Value(("item", base.key, index.key), own=base.own, tags=frozenset(tags), group=kind)
    own = (base.own if base.own != FILE_SYSTEM else None) or index.own
    if RANK in index.tags:
        tags.add(BY_RANK)
    return Value(("item", base.key, index.key), own=own, tags=frozenset(tags), dotted=f"{base.dotted or '$'}[]")


def _sliced(run: Run, base: Value, part: ast.Slice, node: ast.AST) -> Value:
    lower, upper, step = (evaluate(run, each) if each else None for each in (part.lower, part.upper, part.step))
    tags = set(base.tags & (LENGTHS | {OUTPUT}))
    if upper and RANK_CHOSEN in upper.tags:
        tags.add(UNEVEN)
    if lower and step and upper is None and RANK in lower.tags and WORLD in step.tags and not run.even:
        tags.add(UNEVEN if LENGTHS & base.tags else STRIDED)
    keys = tuple(each.key if each else None for each in (lower, upper, step))
    return Value(("slice", base.key, keys), own=base.own, tags=frozenset(tags))


def environment(run: Run, name: str, key: Any) -> Value:
    if kind := names.RANK_VARIABLES.get(name):
        return constant(str(run.coordinates[kind]), frozenset({RANK}))
    if name in names.WORLD_VARIABLES:
        return constant(str(run.world), frozenset({WORLD}))
    return Value(key)


def _binary(run: Run, node: ast.BinOp) -> Value:
    left, right = evaluate(run, node.left), evaluate(run, node.right)
    if (
        isinstance(node.op, ast.FloorDiv | ast.Mod | ast.Div)
        and WORLD in right.tags
        and not left.tags & {RANK, LOOP_VARIABLE, OUTPUT}
    ):
        run.frame.even = True
        if run.frame.owner:
            run.even_owners.add(run.frame.owner)
    return binary(node.op, left, right)


def binary(op: ast.operator, left: Value, right: Value) -> Value:
    tags = (left.tags | right.tags) & (ORIGIN | {OUTPUT, SHAPE, LOOP_VARIABLE, RANK_CHOSEN, PARAMETER})
    if left.known and right.known and type(op) in _BINARY:
        a, b = left.const, right.const
        if isinstance(a, int | str) and isinstance(b, int | str) and not (isinstance(a, str) and isinstance(b, int)):
            try:
                if len(str(made := _BINARY[type(op)](a, b))) < 200:
                    return constant(made, tags)
            except Exception:  # a division by zero, a wrong type: the file's own trouble
                pass
    if isinstance(op, ast.Mod) and RANK in left.tags and left.known and left.const == 0:
        return constant(0, tags)  # rank 0 of however many
    key = ("binary", type(op).__name__, left.key, right.key)
    return Value(key, own=left.own or right.own, tags=tags)


def _unary(run: Run, node: ast.UnaryOp) -> Value:
    value = decision(run, node.operand) if isinstance(node.op, ast.Not) else evaluate(run, node.operand)
    if value.known:
        try:
            made = {ast.Not: operator.not_, ast.USub: operator.neg}[type(node.op)](value.const)
            return constant(made, value.tags & ORIGIN)
        except Exception:
            pass
    return Value(("unary", type(node.op).__name__, value.key), own=value.own, tags=value.tags & {RANK, OUTPUT, SHAPE})


def _boolean(run: Run, node: ast.BoolOp) -> Value:
    stops_at = isinstance(node.op, ast.Or)
    value = decision(run, node.values[0])
    for each in node.values[1:]:
        known = truth(value)
        if known is stops_at:
            return value
        if known is not None:
            with run.under(replace(value, own=None)):
                other = decision(run, each)
            value = replace(other, tags=other.tags | (value.tags & {RANK}))
            continue
        value = _either_way(run, value, each, stops_at)
    return value


def _either_way(run: Run, value: Value, node: ast.expr, stops_at: bool) -> Value:
    """`value and node` where the first is unknown."""
    found: list[Value] = []
    with run.under(value):
        steps = run.collected(lambda: found.append(decision(run, node)))
    if matters(steps):
        run.steps.append(Branch(steps, (), place_of(node), run.frame.depth, value.own))
    other = found[0]
    tags = (value.tags | other.tags) & {RANK}
    if truth(other) is stops_at:
        return replace(other, tags=other.tags | tags)
    if truth(other) is not None:
        return replace(value, tags=value.tags | tags, const=NOT_KNOWN)
    return Value(("bool", stops_at, value.key, other.key), own=value.own or other.own, tags=tags)


def _compare(run: Run, node: ast.Compare) -> Value:
    left = evaluate(run, node.left)
    result: Value | None = None
    for op, each in zip(node.ops, node.comparators, strict=True):
        right = evaluate(run, each)
        one = compared(op, left, right)
        if result is None or (truth(result) is True):
            result = one if result is None else replace(one, tags=one.tags | (result.tags & {RANK}))
        elif truth(result) is None:
            result = one if truth(one) is False else Value(
                ("chain", result.key, one.key), own=result.own or one.own, tags=(result.tags | one.tags) & {RANK}
            )  # fmt: skip
        left = right
    return result or constant(None)


def compared(op: ast.cmpop, left: Value, right: Value) -> Value:
    tags = (left.tags | right.tags) & ORIGIN
    if left.known and right.known:
        try:
            return constant(bool(_COMPARE[type(op)](left.const, right.const)), tags)
        except Exception:
            pass
    for one, other in ((left, right), (right, left)):
        # `rank == src`: whoever src is, it is one rank. A loop over all ranks makes each of them the one in turn.
        if (
            (
                one.known
                and RANK in one.tags
                and not other.known
                and not other.own
                and not isinstance(one.const, str | bool)
            )
            and isinstance(op, ast.Eq | ast.NotEq)
            and not other.tags & {LOOP_VARIABLE, RANK, WORLD}
            and other.dotted
        ):
            return constant((one.const == 0) is isinstance(op, ast.Eq), tags)
    if (
        isinstance(op, ast.In | ast.NotIn)
        and RANK in left.tags
        and left.known
        and not right.own
        and not isinstance(left.const, str)
    ):
        return constant((left.const == 0) is isinstance(op, ast.In), tags)  # some ranks are in it, others are not
    key = ("compare", type(op).__name__, left.key, right.key)
    own = _own_comparison(op, left, right)
    if own is None and RANK in tags and not isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn):
        own = ITS_RANK  # `step % n == rank`: true of another rank at another time
    return Value(key, own=own)


def _own_comparison(op: ast.cmpop, left: Value, right: Value) -> str | None:
    """Why a comparison may turn out otherwise on another rank."""
    if isinstance(op, ast.Is | ast.IsNot):
        if left.tags & LENGTHS:
            return PART
        return left.own if left.tags & {ELEMENT, CALLED, MAY_LACK, UNEVEN} else None
    if isinstance(op, ast.In | ast.NotIn):
        if isinstance(left.const, str) and right.own and names.MAY_LACK.search(left.const):
            return right.own
        return left.own
    for one, other in ((left, right), (right, left)):
        if SHAPE in one.tags and other.known and other.const in (0, 1) and other.const is not True:
            return "its batch"
        if one.own and (isinstance(other.const, str) or SHAPE in other.tags):
            return None
    return left.own or right.own


def _conditional(run: Run, node: ast.IfExp) -> Value:
    condition = decision(run, node.test)
    known = truth(condition)
    if known is not None:
        with run.under(condition):
            value = evaluate(run, node.body if known else node.orelse)
        if RANK in condition.tags:
            return value.tagged(RANK if value.known else RANK_CHOSEN)
        return value
    values: list[Value] = []
    with run.under(condition):
        then = run.collected(lambda: values.append(evaluate(run, node.body)))
        orelse = run.collected(lambda: values.append(evaluate(run, node.orelse)))
    if matters(then) or matters(orelse):
        run.steps.append(Branch(then, orelse, place_of(node), run.frame.depth, condition.own))
    first, second = values
    return joined(("if", condition.key, first.key, second.key), first, second, condition.own)


def _sequence(run: Run, node: ast.List | ast.Tuple | ast.Set) -> Value:
    items = tuple(evaluate(run, each) for each in node.elts)
    own = next((each.own for each in items if each.own), None)
    tags = tags_of(items, frozenset({OUTPUT, METRIC, UNEVEN}))
    if any(isinstance(each, ast.Starred) for each in node.elts):
        return Value(("sequence", place_of(node)), own=own, tags=tags)
    key = ("sequence", place_of(node), tuple(each.key for each in items))
    known = tuple(each.const for each in items) if all(each.known for each in items) else NOT_KNOWN
    return run.fresh(Value(key, known, own=own, tags=tags | tags_of(items, ORIGIN) | {CONTAINER}, items=items))


def _dict(run: Run, node: ast.Dict) -> Value:
    values = [evaluate(run, each) for each in node.values]
    for each in node.keys:
        if each is not None:
            evaluate(run, each)
    own = next((each.own for each in values if each.own), None)
    tags = tags_of(values, frozenset({OUTPUT, METRIC})) | {CONTAINER}
    return run.fresh(Value(("dict", place_of(node)), own=own, tags=tags))


def _text(run: Run, node: ast.JoinedStr) -> Value:
    parts = [evaluate(run, each.value if isinstance(each, ast.FormattedValue) else each) for each in node.values]
    tags = tags_of(parts, frozenset({RANK}))
    if all(part.known for part in parts) and not any(
        isinstance(each, ast.FormattedValue) and each.format_spec for each in node.values
    ):
        return constant("".join(str(part.const) for part in parts)[:200], tags)
    return Value(("text", tuple(part.key for part in parts)), tags=tags)


def _comprehension(run: Run, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
    from whichrank.lint.statements import bind_element

    outer = dict(run.state.variables)
    tags: set[str] = set()
    made: list[Value] = []

    first = evaluate(run, node.generators[0].iter)  # once, before the loop

    def body() -> None:
        for at, each in enumerate(node.generators):
            iterable = evaluate(run, each.iter) if at else first
            tags.update(iterable.tags & LENGTHS)
            bind_element(run, each.target, iterable, each.iter)
            for condition in each.ifs:
                value = evaluate(run, condition)
                if picks_own(condition, run):
                    tags.add(STRIDED)
                elif tags & LENGTHS and not value.known:
                    tags.add(UNEVEN)
                if (value.own and value.own != FILE_SYSTEM) or (iterable.own == "its batch" and not value.known):
                    tags.add(OWN_LENGTH)
        if isinstance(node, ast.DictComp):
            evaluate(run, node.key)
        made.append(evaluate(run, node.value if isinstance(node, ast.DictComp) else node.elt))

    steps = run.collected(body)
    run.state.variables = outer
    if matters(steps):
        run.steps.append(Loop(steps, place_of(node), run.frame.depth, uneven=bool(tags & LENGTHS) and not run.joins))
    if run.even:
        tags.discard(STRIDED)
    if not isinstance(node, ast.GeneratorExp):
        tags |= {CONTAINER} | ({OWN_LENGTH} if tags & LENGTHS else set())
    return Value(("comprehension", place_of(node)), own=made[0].own, tags=frozenset(tags) | (made[0].tags & {OUTPUT}))


def picks_own(condition: ast.expr, run: Run) -> bool:
    """`… % world_size == rank`: a part of the data per rank."""
    if (
        not isinstance(condition, ast.Compare)
        or len(condition.ops) != 1
        or not isinstance(condition.ops[0], ast.Eq | ast.NotEq)
    ):
        return False
    sides = [condition.left, condition.comparators[0]]
    for one, other in (sides, sides[::-1]):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod):
            return WORLD in evaluate(run, one.right).tags and RANK in evaluate(run, other).tags
    return False


def _lambda(run: Run, node: ast.Lambda) -> Value:
    return Value(("lambda", place_of(node)), function=Function(node, closure=run.state.variables))


def _named(run: Run, node: ast.NamedExpr) -> Value:
    from whichrank.lint.statements import assign

    value = evaluate(run, node.value)
    assign(run, node.target, value)
    return value


def _call(run: Run, node: ast.Call) -> Value:
    from whichrank.lint.calls import call

    return call(run, node)


def _yield(run: Run, node: ast.Yield | ast.YieldFrom) -> Value:
    from whichrank.lint.trace import Yield

    value = evaluate(run, node.value)
    run.frame.yielded = value
    run.steps.append(Yield())
    if isinstance(node, ast.YieldFrom):
        run.lengths |= value.tags & LENGTHS
    if run.whys and run.whys[-1] != FILE_SYSTEM:
        run.lengths.add(UNEVEN)
    return Value(("sent", place_of(node)))


def forward_op(value: Value) -> str:
    """What the forward of a wrapped module is called in a trace."""
    return "forward of a sharded model" if SHARDED in value.tags else "forward of a DDP model"


def is_wrapped(value: Value) -> bool:
    return bool(value.tags & WRAPPED) and bool(value.tags & {DDP, SHARDED, ENGINE})


_HANDLERS: dict[type, Callable[[Run, Any], Value]] = {
    ast.Constant: lambda run, node: constant(node.value),
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _conditional,
    ast.List: _sequence,
    ast.Tuple: _sequence,
    ast.Set: _sequence,
    ast.Dict: _dict,
    ast.JoinedStr: _text,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _comprehension,
    ast.Lambda: _lambda,
    ast.NamedExpr: _named,
    ast.Call: _call,
    ast.Await: lambda run, node: evaluate(run, node.value),
    ast.Starred: lambda run, node: evaluate(run, node.value),
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
}
