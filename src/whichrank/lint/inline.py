"""Following a call into a function of the same file."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from whichrank.lint import names
from whichrank.lint.expressions import evaluate, method_of
from whichrank.lint.run import DEEPEST, PROBE, Frame, Run, place_of
from whichrank.lint.source import FunctionNode
from whichrank.lint.trace import Trace, returned
from whichrank.lint.values import (
    ACCELERATOR,
    CALLED,
    DDP,
    LENGTHS,
    LOADER,
    NOT_KNOWN,
    OUTPUT,
    PARAMETER,
    TRAINER,
    UNEVEN,
    Function,
    Value,
    constant,
    joined,
)  # fmt: skip

if TYPE_CHECKING:
    from whichrank.lint.calls import Called


def call_function(run: Run, function: Function, args: list[Value], words: dict[str, Value], node: ast.AST) -> Value:
    """The value that a call returns; its steps are left in the trace."""
    if len(run.frames) > DEEPEST or any(frame.node is function.node for frame in run.frames):
        return Value(("deep", place_of(node)))
    if run.source.is_generator(function.node) and not is_context_manager(run, function.node):
        return _generator(run, function, args, words, node)
    value, trace = follow(run, function, args, words, node)
    run.steps += trace
    return value


def follow(
    run: Run,
    function: Function,
    args: list[Value],
    words: dict[str, Value],
    node: ast.AST,
    yielded: list[Value] | None = None,
) -> tuple[Value, Trace]:
    """The value and the steps of a call, the frames' places included. yielded: gets what a context manager yields."""
    outer, run.state.variables = run.state.variables, bound(run, function, args, words)
    run.sites.append(place_of(node))
    depth = run.frame.depth + 1 if run.frames else 0
    run.frames.append(Frame(function.node, depth, owner=function.owner))
    try:
        trace = returned(body_of(run, function))
        value = _value(run)
        if yielded is not None and run.frame.yielded is not None:
            yielded.append(run.frame.yielded)
    finally:
        run.frames.pop()
        run.sites.pop()
        run.state.variables = outer
    return value, trace


def body_of(run: Run, function: Function) -> Trace:
    """A function's steps in the current frame; none where it is for the first rank and this is another."""
    from whichrank.lint.statements import block

    if isinstance(function.node, ast.Lambda):
        node = function.node
        return run.collected(lambda: run.frame.returns.append((evaluate(run, node.body), None)))
    guarded = first_only(run, function.node)
    if not guarded:
        return block(run, function.node.body)
    if run.coordinates["rank"] != 0:
        run.frame.returns.append((constant(None), None))
        return ()
    run.guards.append(run.frame.depth)
    try:
        return block(run, function.node.body)
    finally:
        run.guards.pop()


def first_only(run: Run, node: FunctionNode) -> bool:
    """Decorated so that only the first rank runs it."""
    for decorator in node.decorator_list:
        plain = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = run.source.dotted(plain)
        if names.FIRST_ONLY.search(name.replace("$", "")):
            return True
        if name.startswith("$") and (own := run.source.functions.get(name[1:])) and not isinstance(decorator, ast.Call):
            if _skips_others(run, own):
                return True
    return False


def _skips_others(run: Run, decorator: FunctionNode) -> bool:
    """Whether a decorator of the file calls what it decorates on the first rank only."""
    inner = next((each for each in decorator.body if isinstance(each, FunctionNode)), None)
    if inner is None or not decorator.args.args:
        return False
    calls = []
    for rank in (0, 1):
        probe = Run(run.source, dict.fromkeys(run.coordinates, rank), run.module, text=run.text, left=2000)
        probe.frames.append(Frame(decorator, 0))
        variables = {decorator.args.args[0].arg: PROBE}
        probe.state.variables = variables
        follow(probe, Function(inner, closure=variables), [], {}, inner)
        calls.append(probe.probed)
    return calls == [True, False]


def bound(run: Run, function: Function, args: list[Value], words: dict[str, Value]) -> dict[str, Value]:
    """Parameters and their values; a parameter without one is a symbol of its own."""
    spec = function.node.args
    parameters = [*spec.posonlyargs, *spec.args]
    found = dict(function.closure or {})
    given = list(args)
    static = any(
        isinstance(each, ast.Name) and each.id == "staticmethod"
        for each in getattr(function.node, "decorator_list", [])
    )
    if function.owner is not None and parameters and not static and (function.bound or len(given) < len(parameters)):
        given.insert(0, function.bound or Value(("self", function.owner), cls=function.owner, dotted="$self"))
    defaults = dict(zip([each.arg for each in parameters][::-1], spec.defaults[::-1], strict=False))
    defaults |= {each.arg: value for each, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value}
    for at, parameter in enumerate([*parameters, *spec.kwonlyargs]):
        name = parameter.arg
        if name in words:
            found[name] = words[name]
        elif at < len(given) and at < len(parameters):
            found[name] = given[at]
        elif name in defaults and isinstance(defaults[name], ast.Constant):
            found[name] = evaluate(run, defaults[name])
        else:
            found[name] = Value(("parameter", place_of(function.node), name), dotted=f"${name}")
    for rest in (spec.vararg, spec.kwarg):
        if rest is not None:
            own = next((value.own for value in [*args, *words.values()] if value.own), None)
            found[rest.arg] = Value(("rest", rest.arg), own=own)
    return found


def _value(run: Run) -> Value:
    """What the frame returned: one value, or either of several."""
    returns = run.frame.returns
    if not returns:
        return constant(None)
    value, _ = returns[0]
    # Where ranks may leave by another return, that tells them apart if it is a plain answer: True, False, None.
    plain = any(value.known and isinstance(value.const, bool | None) for value, _ in returns)
    own = next((why for _, why in returns if why), None) if plain else None
    for other, _ in returns[1:]:
        value = joined(("returned", place_of(run.frame.node), value.key, other.key), value, other, own)
    if own and value.own and not value.known:
        value = value.tagged(CALLED)
    return value


def _generator(run: Run, function: Function, args: list[Value], words: dict[str, Value], node: ast.AST) -> Value:
    """What it was looped over says whether its length differs by rank."""
    tags = lengths_of(run, function, args, words, node)
    return Value(("generator", place_of(node)), tags=frozenset(tags))


def lengths_of(run: Run, function: Function, args: list[Value], words: dict[str, Value], node: ast.AST) -> set[str]:
    """`uneven` where a generator goes over a part per rank and does not start over."""
    if run.source.restarts(function.node):
        return set()
    before, run.lengths = run.lengths, set()
    state = run.state.copy()
    run.collected(lambda: run.lengths.update(follow(run, function, args, words, node)[0].tags & LENGTHS))
    run.state = state
    found, run.lengths = run.lengths, before
    return {UNEVEN} if found & LENGTHS else set()


def is_context_manager(run: Run, node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(run.source.dotted(each).rsplit(".", 1)[-1].lstrip("$") == "contextmanager" for each in decorators)


def construct(run: Run, name: str, called: Called) -> Value:
    """An instance of a class of the file, its __init__ followed."""
    made = Value(("new", place_of(called.node), name), cls=name, tags=frozenset(), dotted=f"${name}()")
    if method := method_of(run, name, "__init__"):
        call_function(run, replace(method, bound=made), list(called.args), called.words, called.node)
    held = [value for (key, _), value in run.state.attributes.items() if key == made.key]
    tags: set[str] = {UNEVEN} if any(value.tags & LENGTHS for value in held) else set()
    if "__len__" in run.source.classes[name].methods and any(value.tags & {"by-rank"} for value in held):
        tags.add(UNEVEN)
    if any(base.endswith(("Dataset", "Sampler")) for base in run.source.classes[name].bases):
        if iterates := method_of(run, name, "__iter__"):
            tags |= lengths_of(run, replace(iterates, bound=made), [], {}, called.node)
    return made.tagged(*tags) if tags else made


def parameters(run: Run, function: Function) -> dict[str, Value]:
    """What the parameters of a function may be, when nobody says what it is called with."""
    found = bound(run, function, [], {})
    spec = function.node.args
    every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    with_default = len(spec.defaults)
    plain = {each.arg for each in [*spec.posonlyargs, *spec.args][: len(every) - len(spec.kwonlyargs) - with_default]}
    name = getattr(function.node, "name", "")
    for each in every:
        if found[each.arg].cls is None:
            found[each.arg] = _parameter(run, function, each, each.arg in plain, name)
    return found


def _parameter(run: Run, function: Function, node: ast.arg, plain: bool, inside: str) -> Value:
    name, key = node.arg, ("parameter", place_of(function.node), node.arg)
    if kind := names.rank_kind(name):
        return run.number(kind)
    if name in names.WORLD_NAMES:
        return run.world_size()
    if names.FIRST.search(name) and name != "should_save":
        return run.first()
    tags: set[str] = set()
    forwards = inside == "forward" and plain and function.owner is not None and not names.NOT_BATCH.search(name)
    own = "its batch" if (names.is_batch(name, inside) or forwards) and not _plain_type(node) else None
    if own and names.MAY_LACK.search(name):
        tags.add("may-lack")
    if names.ITERATED.search(name):
        tags.add(LOADER)
    if name in ("accelerator", "fabric"):
        tags.add(ACCELERATOR)
    if name == "trainer":
        tags.add(TRAINER)
    if plain and not names.AGREED.search(name) and not _plain_type(node) and inside not in run.source.called:
        tags.add(PARAMETER)
    tags |= _wrapped_by_use(run, function, name) | _annotated(run, node)
    return Value(key, NOT_KNOWN, own, frozenset(tags), dotted=f"${name}", group=names.group_kind(name))


def wrapped_tags(run: Run, kind: str) -> set[str]:
    """What a wrapper of a kind makes of a module."""
    if kind == "engine":
        return {"engine", "sharded" if names.ZERO_3.search(run.text) else DDP}
    return {DDP} if kind == "ddp" else {"sharded"} if kind == "sharded" else {"fsdp", "sharded"}


def _annotated(run: Run, node: ast.arg) -> set[str]:
    """What a parameter's type says: a wrapped model, an accelerator, a metric."""
    text = node.annotation.value if isinstance(node.annotation, ast.Constant) else None
    name = str(text) if text else run.source.dotted(node.annotation) if node.annotation else ""
    last = name.rsplit(".", 1)[-1].lstrip("$")
    if last in names.WRAPPERS:
        return wrapped_tags(run, names.WRAPPERS[last])
    if last == "DeepSpeedEngine":
        return wrapped_tags(run, "engine")
    return {
        "Accelerator": {ACCELERATOR},
        "Fabric": {ACCELERATOR},
        "Metric": {"metric"},
        "MetricCollection": {"metric"},
    }.get(last, set())


def _plain_type(node: ast.arg) -> bool:
    """int, str, bool, a callable, a config: no batch, whatever its name."""
    return isinstance(node.annotation, ast.Name) and node.annotation.id in ("int", "str", "bool", "float", "Callable")


def _wrapped_by_use(run: Run, function: Function, name: str) -> set[str]:
    """A model that the file wraps under the same name elsewhere, or whose `.module` is asked for here."""
    here = getattr(function.node, "name", "")
    if here not in run.source.called and (kind := run.source.wrapped_names.get(name)):
        return wrapped_tags(run, kind)
    return {DDP} if name in run.source.unwrapped_in(function.node) else set()


__all__ = ["OUTPUT", "bound", "call_function", "follow", "parameters"]
