"""Asynchronous collectives and sends whose work nobody waits for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whichrank.lint import names
from whichrank.lint.diverge import Parting
from whichrank.lint.run import place_of
from whichrank.lint.source import FunctionNode, Source

KEEPS = (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp, ast.IfExp, ast.Starred)
ADDS = frozenset(["append", "extend", "clear", "add"])


def partings(source: Source) -> Iterator[Parting]:
    parents = {child: node for node in ast.walk(source.tree) for child in ast.iter_child_nodes(node)}
    starters = _starters(source)
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.Call)
            and (name := _asynchronous(source, node) or _started(source, node, starters))
            and _dropped(node, parents, source)
        ):
            yield Parting("handle-not-waited", place_of(node), name)


def _starters(source: Source) -> dict[str, str]:
    """Functions of the file that return the work of a collective that they start."""
    found = {}
    for node in ast.walk(source.tree):
        if not isinstance(node, FunctionNode):
            continue
        started = {
            target.id: name
            for each in ast.walk(node) if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call)
            for target in each.targets if isinstance(target, ast.Name) and (name := _asynchronous(source, each.value))
        }  # fmt: skip
        for each in ast.walk(node):
            if (
                isinstance(each, ast.Return)
                and isinstance(each.value, ast.Call)
                and (name := _asynchronous(source, each.value))
            ):
                found[node.name] = name
            elif isinstance(each, ast.Return) and isinstance(each.value, ast.Name) and each.value.id in started:
                found[node.name] = started[each.value.id]
    return found


def _started(source: Source, node: ast.Call, starters: dict[str, str]) -> str:
    if isinstance(node.func, ast.Name):
        return starters.get(node.func.id, "") if node.func.id in source.functions else ""
    own = (
        isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "self"
    )
    return starters.get(node.func.attr, "") if own and isinstance(node.func, ast.Attribute) else ""


def _asynchronous(source: Source, node: ast.Call) -> str:
    name = source.dotted(node.func)
    last = name.rsplit(".", 1)[-1].lstrip("$")
    if name.startswith("$") and last in source.functions:
        return ""
    if last in names.ASYNC and name.startswith(names.TORCH):
        return last
    if last not in names.ANYWHERE | names.FUNCTIONS or not names.DISTRIBUTED.search(name):
        return ""
    later = any(word.arg == "async_op" and getattr(word.value, "value", None) is True for word in node.keywords)
    return last if later else ""


def _dropped(node: ast.Call, parents: dict[ast.AST, ast.AST], source: Source) -> bool:
    """Whether the work can't be waited for, or is kept where nobody looks."""
    scope = _scope(node, parents)
    if _synchronizes(scope, node):
        return False
    parent = parents.get(node)
    while isinstance(parent, KEEPS):
        parent = parents.get(parent)
    if isinstance(parent, ast.Expr):
        return True
    if isinstance(parent, ast.Assign | ast.AnnAssign):
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        return len(targets) == 1 and _unread(targets[0], scope, source, parents)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr in ADDS:
        return isinstance(parents.get(parent), ast.Expr) and _unread(parent.func.value, scope, source, parents)
    return False


def _scope(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> ast.AST:
    while node in parents and not isinstance(node, FunctionNode | ast.Lambda):
        node = parents[node]
    return node


def _synchronizes(scope: ast.AST, node: ast.Call) -> bool:
    """The whole device is waited for afterwards."""
    return any(
        isinstance(each, ast.Attribute) and each.attr == "synchronize" and each.lineno > node.lineno
        for each in ast.walk(scope)
    )


def _unread(target: ast.expr, scope: ast.AST, source: Source, parents: dict[ast.AST, ast.AST]) -> bool:
    """Nothing is ever taken from a variable or attribute but its adding and clearing."""
    if isinstance(target, ast.Name):
        if isinstance(scope, FunctionNode) and target.id in {
            each.arg for each in [*scope.args.args, *scope.args.kwonlyargs]
        }:
            return False
        if any(isinstance(each, ast.Global | ast.Nonlocal) and target.id in each.names for each in ast.walk(scope)):
            scope = source.tree
        same = [each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id == target.id]
        if all(isinstance(each.ctx, ast.Load) for each in same):  # a list of an outer function
            same = [each for each in ast.walk(source.tree) if isinstance(each, ast.Name) and each.id == target.id]
        return not any(_read(each, parents) for each in same)
    if isinstance(target, ast.Subscript):
        return isinstance(target.value, ast.Name | ast.Attribute) and _unread(target.value, scope, source, parents)
    if isinstance(target, ast.Attribute):
        if not (isinstance(target.value, ast.Name) and target.value.id == "self"):
            return False
        others = [
            each for each in ast.walk(source.tree) if isinstance(each, ast.Attribute) and each.attr == target.attr
        ]
        return not any(_read(each, parents) for each in others)
    return False


def _read(node: ast.Name | ast.Attribute, parents: dict[ast.AST, ast.AST]) -> bool:
    if not isinstance(node.ctx, ast.Load):
        return False
    parent = parents.get(node)
    if isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store):
        return False
    return not (isinstance(parent, ast.Attribute) and parent.attr in ADDS)
