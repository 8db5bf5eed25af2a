"""truth.json: what happened, in the words of the report and with the fields that bench/score.py judges by."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lab.faults.fault import Drawn, Fault


def truth(fault: Fault, drawn: Drawn, began_ns: int, started_ns: int) -> dict[str, Any]:
    """`drawn` and `began_ns` (wall clock, 0 in a healthy job) are the lab's own."""
    known = fault.truth(drawn)
    culprits = None if known.culprits is None else sorted(known.culprits)
    return {
        "id": f"{fault.name}-w{drawn.world}-s{drawn.seed}",
        "cause": known.cause,
        "also_acceptable": [*known.also, *(() if drawn.watched else known.bare_also)],
        "mechanism": [*known.mechanism],
        "culprit_ranks": culprits,
        "culprit_ranks_also": [sorted(ranks) for ranks in known.culprits_also],
        "culprit_host": known.host,
        "victim_ranks": sorted(set(range(drawn.world)) - set(culprits or [])),
        "difficulty": "medium",
        "provenance": "lab",
        "why": known.why,
        "began_ns": began_ns,
        "started_ns": started_ns,
        "drawn": asdict(drawn),
    }
