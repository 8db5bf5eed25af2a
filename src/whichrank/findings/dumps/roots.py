"""From the waiting ranks to what they wait for in the end: the sinks of the wait-for graph.

Nodes are ranks and the calls that hold them; a call leads to the members that keep it from ending. Members of whom
nobody knows anything are followed only where a call has no other explanation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from whichrank.dump import NEVER
from whichrank.findings.dumps.waits import Call, Waits

Kind = Literal["idle", "behind", "met", "unknown", "cycle"]


@dataclass(frozen=True, slots=True)
class Root:
    """One end of all waiting.

    idle     a rank with nothing unfinished that did not make a call for which others wait: it is in host code
    behind   a rank held by a call that others finished, and by nothing else: its own GPU
    met      a call that all members made and none finishes
    unknown  ranks without a dump, behind a call that nothing else explains
    cycle    ranks that wait for each other
    """

    kind: Kind
    ranks: tuple[int, ...]
    call: Call | None
    reach: frozenset[int]  # ranks whose waiting ends here, its own included


def roots(waits: Waits) -> list[Root]:
    """All ends, the one that most ranks wait for first."""
    edges = _edges(waits)
    components, number = _components(edges)
    sinks = [
        at
        for at, component in enumerate(components)
        if not any(number[after] != at for node in component for after in edges.get(node, ()))
    ]
    reach = _reach(edges, components, number, sinks)
    found = [root for at in sinks if (root := _root(waits, components[at], reach[at])) is not None]
    return sorted(_pairs(waits, found), key=lambda root: (-len(root.reach), root.ranks))


def _pairs(waits: Waits, found: list[Root]) -> list[Root]:
    """Sends and receives that met are one root, not one for each end."""
    ends: dict[int, Root] = {
        root.ranks[0]: root for root in found if root.kind == "met" and root.call and root.call[2] != NEVER
    }
    kept = [root for root in found if root.ranks[0] not in ends or ends[root.ranks[0]] is not root]
    while ends:
        rank, root = ends.popitem()
        together, reach, todo = {rank}, set(root.reach), [rank]
        while todo:
            for peer in waits.standing(todo.pop()).stands:
                if (other := ends.pop(peer, None)) is not None:
                    together.add(peer)
                    reach |= other.reach
                    todo.append(peer)
        kept.append(replace(root, ranks=tuple(sorted(together)), reach=frozenset(reach)))
    return kept


Node = tuple[int, int, int] | int  # a call, or a rank


def _edges(waits: Waits) -> dict[Node, tuple[Node, ...]]:
    edges: dict[Node, tuple[Node, ...]] = {rank: (call,) for rank, call in waits.call_of.items()}
    for call, standing in waits.calls.items():
        edges[call] = standing.blockers or standing.doubts
    return edges


def _root(waits: Waits, component: list[Node], reach: frozenset[int]) -> Root | None:
    ranks = tuple(sorted(node for node in component if isinstance(node, int)))
    calls = [node for node in component if not isinstance(node, int)]
    if len(component) > 1:
        return Root("cycle", ranks, None, reach)
    if ranks:
        rank = ranks[0]
        return Root("unknown" if rank in waits.missing else "idle", ranks, None, reach)
    call = calls[0]
    standing = waits.calls[call]
    holders = tuple(sorted(waits.holders(call)))
    return Root("behind" if standing.done else "met", holders, call, reach)


def _components(edges: dict[Node, tuple[Node, ...]]) -> tuple[list[list[Node]], dict[Node, int]]:
    """Strongly connected components (Tarjan 1972), without recursion: chains of waiting ranks are long."""
    order: dict[Node, int] = {}
    low: dict[Node, int] = {}
    number: dict[Node, int] = {}
    components: list[list[Node]] = []
    stack: list[Node] = []
    for start in list(edges):
        if start in order:
            continue
        work = [(start, iter(edges.get(start, ())))]
        order[start] = low[start] = len(order)
        stack.append(start)
        while work:
            node, rest = work[-1]
            for after in rest:
                if after not in order:
                    order[after] = low[after] = len(order)
                    stack.append(after)
                    work.append((after, iter(edges.get(after, ()))))
                    break
                if after not in number:
                    low[node] = min(low[node], order[after])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    component: list[Node] = []
                    while not component or component[-1] != node:
                        component.append(stack.pop())
                        number[component[-1]] = len(components)
                    components.append(component)
    return components, number


def _reach(
    edges: dict[Node, tuple[Node, ...]], components: list[list[Node]], number: dict[Node, int], sinks: list[int]
) -> dict[int, frozenset[int]]:
    """The ranks that end in each sink: backwards from it, each node once."""
    before: dict[Node, list[Node]] = {}
    for node, afters in edges.items():
        for after in afters:
            before.setdefault(after, []).append(node)
    reach: dict[int, frozenset[int]] = {}
    for sink in sinks:
        seen = set(components[sink])
        todo = list(seen)
        while todo:
            for node in before.get(todo.pop(), ()):
                if node not in seen:
                    seen.add(node)
                    todo.append(node)
        reach[sink] = frozenset(node for node in seen if isinstance(node, int))
    return reach
