"""How late ranks are in truth, for jobs that only straggle."""

from __future__ import annotations

import numpy as np

from lab.simulate.engine import Rank
from lab.simulate.ops import COLLECTIVE, Op


def lateness(ranks: list[Rank]) -> dict[str, dict[str, float]]:
    """How late each rank is, in seconds: of each step its worst lateness in a collective, and of those the median.

    Lateness is against the median of the call's members. "issued": when the host made the call, which is what the
    recorder sees; "ready": when the GPU got to it.
    """
    calls: dict[tuple[int, int], list[tuple[int, Op]]] = {}
    counts: dict[tuple[int, int], int] = {}
    for rank in ranks:
        for op in rank.ops:
            if op.kind == COLLECTIVE and op.group and op.start is not None:
                key = (rank.number, op.group.index)
                counts[key] = counts.get(key, -1) + 1
                calls.setdefault((op.group.index, counts[key]), []).append((rank.number, op))
    worst: dict[str, dict[tuple[int, int], float]] = {"issued": {}, "ready": {}}
    for members in calls.values():
        for what, times in (("issued", [op.created for _, op in members]), ("ready", [op.ready for _, op in members])):
            middle = sorted(t or 0.0 for t in times)[len(times) // 2]
            for (number, op), time in zip(members, times, strict=True):
                key = (number, op.step)
                worst[what][key] = max(worst[what].get(key, 0.0), (time or 0.0) - middle)
    table: dict[str, dict[str, float]] = {}
    for what, found in worst.items():
        by_rank: dict[int, list[float]] = {}
        for (number, _), late in found.items():
            by_rank.setdefault(number, []).append(late)
        table[what] = {str(rank): round(float(np.median(late)), 4) for rank, late in sorted(by_rank.items())}
    return table
