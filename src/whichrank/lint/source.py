"""A file's own names: its imports, functions, classes, and what signal handlers set."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

from whichrank.lint.names import WRAPPERS

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
T = TypeVar("T")
MODEL = re.compile(r"model|net$|engine|policy|critic|actor|student|module|transformer")
QUESTIONS = frozenset({"hasattr", "isinstance", "getattr"})


@dataclass(slots=True)
class Class:
    node: ast.ClassDef
    bases: tuple[str, ...]
    methods: dict[str, FunctionNode] = field(default_factory=dict)

    def inherits(self, name: str) -> bool:
        return any(base.rsplit(".", 1)[-1] == name for base in self.bases)


@dataclass(slots=True)
class Source:
    """One file, parsed. `set_by_signal`: names of attributes and variables that a signal's handler sets."""

    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    functions: dict[str, FunctionNode] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    set_by_signal: set[str] = field(default_factory=set)
    wrapped_names: dict[str, str] = field(default_factory=dict)
    wrapped_attributes: dict[str, str] = field(default_factory=dict)
    seeds: bool = False
    sharded_trainer: bool = False
    lightning: bool = False
    transformers: bool = False
    deepspeed: bool = False
    nemo: bool = False
    left: int = 1_500_000  # statements that may still be followed; the rest of a very long file is left undecided
    rebound: set[str] = field(default_factory=set)  # globals that functions set
    globals: dict[object, dict[str, Any]] = field(default_factory=dict)  # the module's variables, on each rank
    attributes: dict[object, dict[Any, Any]] = field(default_factory=dict)  # of each class, on each rank
    found: dict[tuple[str, ast.AST], object] = field(default_factory=dict)

    def dotted(self, node: ast.expr) -> str:
        """`dist.all_reduce` as "torch.distributed.all_reduce"; what is no import begins with "$"."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            parts.append(self.imports.get(node.id, f"${node.id}"))
        elif isinstance(node, ast.Call):
            parts.append(f"{self.dotted(node.func)}()")
        else:
            parts.append("$")
        return ".".join(reversed(parts))

    def is_generator(self, node: ast.AST) -> bool:
        return self._once("generator", node, _yields)

    def restarts(self, node: ast.AST) -> bool:
        """A generator that begins anew when it is through."""
        return self._once("restarts", node, _loops_for_ever)

    def unwrapped_in(self, node: ast.AST) -> frozenset[str]:
        """Variables whose `.module` is taken, without a question whether they have one."""
        return self._once("unwrapped", node, _unwrapped)

    def _once(self, what: str, node: ast.AST, find: Callable[[ast.AST], T]) -> T:
        key = (what, node)
        if key not in self.found:
            self.found[key] = find(node)
        return cast(T, self.found[key])


def _yields(node: ast.AST) -> bool:
    todo: list[ast.AST] = list(getattr(node, "body", [])) if not isinstance(node, ast.Lambda) else []
    while todo:
        each = todo.pop()
        if isinstance(each, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(each, FunctionNode | ast.ClassDef | ast.Lambda):
            todo += ast.iter_child_nodes(each)
    return False


def _loops_for_ever(node: ast.AST) -> bool:
    return any(isinstance(each, ast.While) and isinstance(each.test, ast.Constant) for each in ast.walk(node))


def _unwrapped(node: ast.AST) -> frozenset[str]:
    asked, guarded = set(), set()
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and each.attr in ("module", "no_sync"):
            if isinstance(each.value, ast.Name):
                asked.add(each.value.id)
            elif isinstance(each.value, ast.Attribute):
                asked.add(f".{each.value.attr}")
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id in QUESTIONS and each.args:
            first = each.args[0]
            guarded |= {first.id} if isinstance(first, ast.Name) else {f".{getattr(first, 'attr', '')}"}
    return frozenset(asked - guarded)


def read(tree: ast.Module) -> Source:
    source = Source(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                source.imports[name.asname or name.name.partition(".")[0]] = (
                    name.name if name.asname else name.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for name in node.names:
                source.imports[name.asname or name.name] = f"{module}.{name.name}"
    for statement in _statements(tree.body):
        if isinstance(statement, FunctionNode):
            source.functions[statement.name] = statement
        elif isinstance(statement, ast.ClassDef):
            bases = tuple(source.dotted(base) for base in statement.bases)
            methods = {each.name: each for each in statement.body if isinstance(each, FunctionNode)}
            source.classes[statement.name] = Class(statement, bases, methods)
    _facts(source)
    return source


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of the module, also below `if` and `try`."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody"):
            if isinstance(statement, ast.If | ast.Try | ast.With):
                yield from _statements(getattr(statement, name, []))


def _facts(source: Source) -> None:
    source.lightning = any("lightning" in name for name in source.imports.values())
    source.transformers = any(name.startswith(("transformers", "trl")) for name in source.imports.values())
    source.nemo = any(name.startswith("nemo") for name in source.imports.values())
    source.deepspeed = any(name.startswith("deepspeed") for name in source.imports.values())
    source.rebound = {name for node in ast.walk(source.tree) if isinstance(node, ast.Global) for name in node.names}
    handlers: set[str] = set()
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        name = source.dotted(node.func)
        last = name.rsplit(".", 1)[-1].lstrip("$")
        source.called.add(last)
        source.seeds |= "seed" in last
        if name == "signal.signal" and len(node.args) == 2:
            handlers.add(source.dotted(node.args[1]).rsplit(".", 1)[-1].lstrip("$"))
            if isinstance(node.args[1], ast.Lambda):
                source.set_by_signal |= set(_set_in(node.args[1]))
        if last in ("TrainingArguments", "SFTConfig", "Seq2SeqTrainingArguments"):
            source.sharded_trainer |= any(
                word.arg in ("fsdp", "deepspeed", "fsdp_config") and not _empty(word.value) for word in node.keywords
            )
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) or (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            for target, kind in _wraps(source, node):
                if isinstance(target, ast.Name):
                    source.wrapped_names[target.id] = kind
                elif isinstance(target, ast.Attribute):
                    source.wrapped_attributes[target.attr] = kind
        if isinstance(node, FunctionNode) and node.name in handlers:
            source.set_by_signal |= set(_set_in(node))


def _wraps(source: Source, node: ast.Call | ast.Assign) -> Iterator[tuple[ast.expr, str]]:
    """Variables and attributes that the file wraps: `model = DDP(net)`, `fully_shard(self.vision)`, prepare()."""
    call = node if isinstance(node, ast.Call) else node.value
    assert isinstance(call, ast.Call)
    name = source.dotted(call.func)
    last = name.rsplit(".", 1)[-1].lstrip("$")
    targets = node.targets if isinstance(node, ast.Assign) else []
    if last == "fully_shard" and isinstance(node, ast.Call) and call.args:
        yield call.args[0], "sharded"
    elif last in WRAPPERS:
        yield from ((target, WRAPPERS[last]) for target in targets)
    elif name == "deepspeed.initialize" or last in ("prepare", "setup"):
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            for part in parts[:1] if name == "deepspeed.initialize" else parts:
                word = part.id if isinstance(part, ast.Name) else getattr(part, "attr", "")
                if name == "deepspeed.initialize":
                    yield part, "engine"
                elif MODEL.search(word) and "loader" not in word:
                    yield part, "ddp"


def _empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _set_in(function: FunctionNode | ast.Lambda) -> Iterator[str]:
    outer = {name for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in outer:
            yield node.id
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            yield node.value.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "set":
            if isinstance(node.func.value, ast.Name | ast.Attribute):
                yield node.func.value.id if isinstance(node.func.value, ast.Name) else node.func.value.attr
