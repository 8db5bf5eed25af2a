"""One file: every function followed on several ranks, and what comes of comparing them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from whichrank.lint import diverge, handles, inline, names, peers, saves, settings, source
from whichrank.lint.rules import BY_NAME
from whichrank.lint.run import STATEMENTS, WORLD_SIZE, Frame, Run, State, TooMuch, place_of
from whichrank.lint.source import Source
from whichrank.lint.statements import block
from whichrank.lint.trace import Peer, Trace, walk
from whichrank.lint.values import NOT_KNOWN, Function, Value

PEERS = re.compile(r"\bi?(send|recv)\b")
GROUPS = re.compile(
    r"\b_?(\w+?)_(?:rank|group|pg)\b|get_(\w+)_(?:rank|group)\b|is_(pipeline)_\w+|get_(?:local_rank|group)\(\s*[\"'](\w+)[\"']"
)
DIMENSIONS = ("dp", "tp", "pp", "cp", "ep")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    line: int
    column: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank to follow: its numbers, and the groups that it shares with rank 0."""

    coordinates: dict[str, int]
    groups: frozenset[str]


def ranks(text: str) -> list[Rank]:
    """Rank 0, others of one group, and one in another place of each dimension that the file speaks of."""
    zero = dict.fromkeys(("rank", "local", *DIMENSIONS), 0)
    found = [Rank(zero, frozenset())]
    found += [
        Rank({**zero, "rank": n, "local": n}, frozenset({"world", *DIMENSIONS}))
        for n in ((1, 2, 3) if PEERS.search(text) else (1, 3))
    ]
    found.append(Rank({**zero, "rank": 4, "local": 0}, frozenset({"world", *DIMENSIONS})))  # the first of another node
    spoken = {names.dimension(word) for words in GROUPS.findall(text) for word in words if word}
    found += [
        Rank({**zero, "rank": 1, "local": 1, kind: 1}, frozenset({"world", kind}))
        for kind in DIMENSIONS
        if kind in spoken
    ]
    return found


def check(tree: ast.Module, text: str) -> list[Finding]:
    """All findings of one file, in order of line."""
    read = source.read(tree)
    found: dict[tuple[int, str], Finding] = {}  # one for a line and rule, however many ranks and callers show it
    for parting in _all(read, text):
        rule = BY_NAME[parting.kind]
        message = rule.says.format(name=parting.name or "a collective", why=parting.why)
        new = Finding(*parting.place, rule.code, message)
        known = found.setdefault((new.line, new.code), new)
        if not parting.name or known == new:
            continue
        if "a collective" in known.message or new < known:
            found[new.line, new.code] = new
    return sorted(found.values())


def _all(read: Source, text: str) -> Iterator[diverge.Parting]:
    yield from settings.partings(read)
    yield from handles.partings(read)
    chosen = ranks(text)
    for root in roots(read):
        yield from _partings(read, root, text, chosen)


def roots(read: Source) -> Iterator[Function | None]:
    yield None
    for node in read.functions.values():
        yield Function(node)
    methods: set[ast.AST] = set()
    for name, each in read.classes.items():
        for method in each.methods.values():
            methods.add(method)
            yield Function(method, name)
    for inner in ast.walk(read.tree):  # those inside of others, as hooks are
        if (
            isinstance(inner, source.FunctionNode)
            and inner not in methods
            and read.functions.get(inner.name) is not inner
        ):
            yield Function(inner)


def _partings(read: Source, root: Function | None, text: str, chosen: list[Rank]) -> Iterator[diverge.Parting]:
    traces: list[tuple[Rank, Trace]] = []
    try:
        for rank in chosen:
            traces.append((rank, follow(read, root, rank, text)))
    except (TooMuch, RecursionError):
        return
    first = traces[0][1]
    for _, trace in traces:
        yield from diverge.by_data(trace)
    yield from saves.partings(first)
    if root is None or getattr(root.node, "name", "") not in read.called:
        if PEERS.search(text) and any(isinstance(step, Peer) for _, trace in traces for step in walk(trace)):
            yield from peers.partings(read, [trace for _, trace in traces[:WORLD_SIZE]])
            two = [follow(read, root, rank, text, world=2) for rank, _ in traces[:2]]
            yield from peers.partings(read, two)
    for rank, trace in traces[1:]:
        yield from diverge.by_rank(first, trace, rank.groups)


def follow(read: Source, root: Function | None, rank: Rank, text: str, world: int = WORLD_SIZE) -> Trace:
    run = Run(read, rank.coordinates, text=text, world=world)
    run.left = min(STATEMENTS, read.left)
    try:
        return _followed(run, read, root, rank, world)
    finally:
        read.left -= max(0, min(STATEMENTS, read.left) - max(run.left, 0))


def _followed(run: Run, read: Source, root: Function | None, rank: Rank, world: int) -> Trace:
    numbers = (tuple(rank.coordinates.values()), world)
    if root is None:
        run.frames.append(Frame(read.tree, 0))
        trace = block(run, read.tree.body)
        read.globals[numbers] = {
            name: value if name not in read.rebound or not value.known else replace(value, const=NOT_KNOWN)
            for name, value in run.state.variables.items()
        }
        return trace
    run.module = read.globals.get(numbers, {})
    run.frames.append(Frame(root.node, 0, owner=root.owner))
    if root.owner:
        key = (root.owner, *numbers)
        if key not in read.attributes:
            read.attributes[key] = _attributes(run, root.owner)
        run.state.attributes = dict(read.attributes[key])
    run.state.variables = inline.parameters(run, root)
    return inline.body_of(run, root)


def _attributes(run: Run, owner: str) -> dict:  # type: ignore[type-arg]
    """What a class's methods leave in `self`: what __init__ sets, or either of that and what others set."""
    this = Value(("self", owner), cls=owner, dotted="$self")
    known = run.source.classes[owner]
    state, frames = run.state, len(run.frames)
    methods = sorted(known.methods.values(), key=lambda each: each.name != "__init__")
    for at, method in enumerate(methods):
        if not any(isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) for each in ast.walk(method)):
            continue
        function = Function(method, owner, this)
        before = state.attributes
        run.state = State(inline.parameters(run, function), dict(before))
        run.left = STATEMENTS // 10
        run.frames.append(Frame(method, 0, owner=owner))
        try:
            run.collected(partial(block, run, method.body))
        except TooMuch:
            continue
        finally:
            del run.frames[frames:]
        after = run.state.attributes
        merged = State({}, before).merged(State({}, after), place_of(method), None).attributes if at else after
        state.attributes = merged
    run.state, run.left = state, STATEMENTS
    return {key: value for key, value in state.attributes.items() if key[0] == this.key}
