"""What the placement cannot tell apart: if rank 12 always ran on node-03, no count says which of the two it is.

Two candidates are told apart by the incidents that one names and the other does not, and by the runs that held one
and spared it. How many ranks each has does not count here: that a node has eight is no evidence against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whichrank.history.columns import Columns
from whichrank.history.model import SHARES, Weighed

if TYPE_CHECKING:
    from whichrank.history.why import Pattern

APART = np.log(6.0)  # of likelihood: less tells nothing apart
PHYSICAL = ("node", "gpu", "domain")
LOGICAL = ("rank", "place", "local_rank", "role")


def settle(table: Columns, patterns: list[Pattern], weighed: Weighed) -> Iterator[Pattern]:
    """The patterns of places, each with its rivals; those that cannot be told apart share their posterior."""
    if not patterns:
        return
    best = max(patterns, key=lambda pattern: pattern.posterior)
    kinds = {pattern.kind: pattern for pattern in patterns}
    node, gpu = kinds.get("node"), kinds.get("gpu")
    if node and gpu and best.kind == "gpu" and gpu.posterior < 0.9 and set(gpu.incidents) <= set(node.incidents):
        # the GPU, or its whole node: in either case that node
        best = replace(node, posterior=min(1.0, node.posterior + gpu.posterior))
    elif node and gpu and best.kind == "node" and gpu.name.endswith(f" of {node.name}"):
        best = replace(node, posterior=min(1.0, node.posterior + gpu.posterior))
    rivals = _rivals(table, best, weighed)
    if rivals:
        best = replace(
            best,
            confounded=tuple(name for name, _ in rivals),
            posterior=min(1.0, best.posterior + sum(p for _, p in rivals)),
        )
    yield best
    for pattern in patterns:
        if pattern.kind != best.kind and pattern.name not in best.confounded:
            yield pattern


def _rivals(table: Columns, best: Pattern, weighed: Weighed) -> list[tuple[str, float]]:
    """(name, posterior) of the candidates of the other sort that explain the same incidents as well."""
    if best.kind not in PHYSICAL + LOGICAL:
        return []
    mine = np.isin(table.place, np.array(best.incidents))
    if not mine.any():
        return []
    others = LOGICAL if best.kind in PHYSICAL else ("node", "gpu")
    found = []
    own = _count(best.hits, best.of)
    for number, kind in enumerate(weighed.kinds):
        if kind.name not in others or kind.note:
            continue
        named = kind.hit[mine]
        named = named[named >= 0]
        if not len(named):
            continue
        candidate = int(np.bincount(named).argmax())
        hits = float((kind.hit == candidate).sum())
        if (named == candidate).sum() < 0.8 * mine.sum():
            continue
        if kind.name == "local_rank" and best.kind == "node":
            continue  # the first rank of a node speaks for it
        if {kind.name, best.kind} == {"local_rank", "gpu"} and _others_have_one(table, mine) >= APART:
            continue  # every node has that local rank, and it was always this one's
        if own - _count(hits, max(hits, float(kind.present[candidate]))) < APART:
            found.append((kind.labels[candidate], _posterior(weighed, number, candidate)))
    return found[:2]


def _others_have_one(table: Columns, mine: NDArray[np.bool_]) -> float:
    """log-likelihood that a local rank to blame was each time on one and the same of its run's nodes."""
    spread = table.placed.hosts[table.run[mine]]
    return float(np.log(np.maximum(1, spread)).sum())


def _count(hits: float, of: float) -> float:
    """log-likelihood of so many hits of so many, whatever a hit is worth."""
    logs = hits * np.log(SHARES) + max(0.0, of - hits) * np.log1p(-SHARES)
    return float(logs.max() + np.log(np.exp(logs - logs.max()).mean()))


def _posterior(weighed: Weighed, number: int, candidate: int) -> float:
    place = np.flatnonzero((weighed.kind == number) & (weighed.candidate == candidate))
    return float(weighed.posterior[place[0]]) if len(place) else 0.0
