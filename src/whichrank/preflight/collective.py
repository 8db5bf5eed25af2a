"""Collectives as the job would run them: a sweep over all ranks, then over halves, until the slow node is alone.

The process group is made anew in a process of its own for each rank (sweep.py), with the job's environment.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from whichrank.findings.fabric import REACHED, SLOW
from whichrank.preflight import limits
from whichrank.preflight.answer import Finding, names_text, ranks_text
from whichrank.preflight.roster import Roster

SHARE = SLOW  # of a figure that others have reached: below it something is wrong
GLOO = (1 << 10, 1 << 20, 16 << 20)  # bytes
NCCL = (1 << 10, 1 << 20, 64 << 20, 512 << 20)
Told = Mapping[int, Mapping[str, Any]]  # rank -> {"stage", "rows", "error", "late", "gpu"}
Measure = Callable[[Sequence[tuple[str, ...]]], Sequence[float | None]]


def run(told: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """In a rank. told: as sweep.py wants it."""
    said, code = limits.told(
        "whichrank.preflight.sweep", [json.dumps(told)], seconds, {**os.environ, "OMP_NUM_THREADS": "1"}
    )
    found: dict[str, Any] = {"stage": "starting", "rows": {}, "late": code is None}
    for row in said:
        if "size" in row:
            found["rows"][str(row["size"])] = row["seconds"]
        else:
            found.update(row)
    if code and "error" not in found:
        found["error"] = f"the process ended with {code}"
    return found


def busbw(size: int, seconds: float, world: int) -> float:
    """GB/s.

    >>> busbw(10**9, 1.0, 4)
    1.5
    """
    return size / seconds / 1e9 * 2 * (world - 1) / world


def failures(told: Told, roster: Roster, backend: str, seconds: float) -> list[Finding]:
    """Who did not come through, and where each stopped."""
    missing = [rank for rank in roster.ranks if rank not in told]
    stuck = {rank: one for rank, one in told.items() if one["stage"] != "done"}
    if not stuck and not missing:
        return []
    slow = [rank for rank, one in stuck.items() if one["late"] and one["stage"] in ("starting", "importing torch")]
    if slow and len(slow) == len(stuck) and not missing:
        return [
            Finding(
                "collective", "warn", "torch_slow", f"Importing torch took longer than {seconds:.0f} s on {roster.where(slow)}: collectives were not tried.",
                "run this again when the nodes are idle, with more --seconds; if it stays so, look at where Python's packages lie", roster.nodes_of(slow), tuple(slow),
            )
        ]  # fmt: skip
    return [_failure(stuck, missing, slow, roster, backend, seconds)]


def _failure(
    stuck: Told, missing: Sequence[int], slow: Sequence[int], roster: Roster, backend: str, seconds: float
) -> Finding:
    """Who stopped first holds up the others: the earliest stage counts, an error before a wait."""
    errors = {rank: str(one["error"]) for rank, one in stuck.items() if "error" in one}
    own = {
        rank: text
        for rank, text in errors.items()
        if not re.search(r"[Tt]imed? ?out|Connection (?:closed|reset)|closed by peer", text)
    }
    ranks = list(missing) or list(slow) or sorted(own) or sorted(errors) or sorted(stuck)
    if missing or slow:
        why = "did not start in time"
    elif own or errors:
        why = f"failed in {stuck[ranks[0]]['stage']}: {(own or errors)[ranks[0]]}"
    else:
        why = f"hung in {stuck[ranks[0]]['stage']} for {seconds:.0f} s"
    return Finding(
        "collective", "stop", "collective_fails", f"A {backend} process group over all ranks does not work: {roster.where(ranks)} {why}.",
        f"run it again with {'NCCL_DEBUG=INFO' if backend == 'nccl' else 'TORCH_DISTRIBUTED_DEBUG=INFO'} and look at the output of {ranks_text(ranks[:4])}",
        roster.nodes_of(ranks), tuple(ranks),
    )  # fmt: skip


def rows(told: Told, backend: str, nodes: Sequence[str]) -> list[dict[str, Any]]:
    """One for each size: microseconds, algbw and busbw in GB/s."""
    world = len(told)
    first: Mapping[str, Any] = next(iter(told.values()), {"rows": {}})
    made = []
    for size, seconds in first["rows"].items():
        made.append(
            {"backend": backend, "nodes": list(nodes), "ranks": world, "bytes": int(size), "us": round(seconds * 1e6, 1),
             "algbw_gbs": round(int(size) / seconds / 1e9, 3), "busbw_gbs": round(busbw(int(size), seconds, world), 3)}
        )  # fmt: skip
    return made


def expected(gpu: str, nodes: int, ranks: int, size: int) -> tuple[float, str] | None:
    """busbw in GB/s that such machines reach, and who says so; None: no figure for this kind.

    >>> expected("NVIDIA H200", 1, 8, 512 << 20)
    (456, 'stas00/ml-engineering')
    """
    fits = [
        one
        for one in REACHED
        if re.search(rf"\b{one.gpu}\b", gpu)
        and one.nodes == nodes
        and one.per_node * nodes == ranks
        and one.size <= size
    ]
    best = max(fits, key=lambda one: one.size, default=None)
    return (best.busbw, best.source) if best else None


def halve(nodes: Sequence[str], measure: Measure, least: float) -> Iterator[tuple[str, ...]]:
    """Nodes, or pairs of nodes, behind a slow collective. least: busbw in GB/s below which a group is slow.

    measure: busbw of groups that run at the same time, None where it did not work. Each half is measured; a slow one
    is halved again. Where both halves are fast the fault lies between them: partners across are measured in pairs.
    A single node is measured by its ranks together with one fast node.
    """
    groups = [tuple(nodes)]
    fast: set[str] = set()
    while groups:
        halves = [
            half for group in groups for half in (group[: len(group) // 2], group[len(group) // 2 :]) if len(half) > 1
        ]
        values = dict(zip(halves, measure(halves), strict=True)) if halves else {}
        slow = [half for half, value in values.items() if value is None or value < least]
        fast.update(node for half, value in values.items() if half not in slow for node in half)
        across = [group for group in groups if not any(set(half) <= set(group) for half in slow)]
        for group in across:
            yield from _across(group, measure, least, [*sorted(fast), *(node for node in nodes if node not in fast)])
        groups = slow


def _across(
    group: tuple[str, ...], measure: Measure, least: float, helpers: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    """Both halves are fast, or too small to be measured: pairs of one node of each half, then which of the two it is.

    helpers: to be measured together with each of the two, those that are known to be fast first.
    """
    half = len(group) // 2
    left, right = group[:half], group[half:]
    pairs = [(left[place % half], node) for place, node in enumerate(right)] if half else []
    slow = []
    for turn in range(-(-len(right) // max(half, 1))):  # pairs that share no node
        now = pairs[turn * half : (turn + 1) * half]
        slow += [pair for pair, value in zip(now, measure(now), strict=True) if value is None or value < least]
    for pair in slow:
        helper = next((node for node in helpers if node not in pair), None)
        if helper is None:
            yield pair
            continue
        alone = [(node, helper) for node in pair]
        bad = [one[0] for one in alone if (value := measure([one])[0]) is None or value < least]
        yield (bad[0],) if len(bad) == 1 else pair


def slow(
    last: Mapping[str, Any],
    bar: float,
    source: str,
    culprits: Sequence[tuple[str, ...]],
    finished: bool,
    roster: Roster,
) -> Finding:
    """last: the row of the largest size. finished: halving came to its end before the time did."""
    nodes = tuple(dict.fromkeys(node for group in culprits for node in group))
    if culprits:
        who = f"by halving: {', '.join(' with '.join(group) for group in culprits[:4])} {'is' if len(culprits) == 1 else 'are'} slow"
    elif not finished:
        who = "the time was over before the slow part was found, see --seconds"
    else:
        who = "no part of it is slow by itself" if len(roster.names) > 1 else "all on one node"
    look = (
        "nvidia-smi topo -m, nvidia-smi nvlink -e, ibstat, NCCL_DEBUG=INFO (which NET is used?)"
        if last["backend"] == "nccl"
        else "ethtool IFACE, tc qdisc show, top (who else uses the processors?)"
    )
    return Finding(
        "collective",
        "stop",
        "collective_slow",
        f"all_reduce of {last['bytes'] >> 20} MiB over all ranks: busbw {last['busbw_gbs']:.3g} GB/s, {bar:.3g} wanted ({source}); {who}.",
        f"leave {names_text(nodes)} out, or look there: {look}" if nodes else f"look at {look}",
        nodes,
        tuple(rank for node in nodes for rank in roster.ranks_of(node)),
    )
