"""all_reduce_perf of nccl-tests, on each node by itself, where it is installed: do the GPUs of one node carry it?

It measures what a process group over all nodes cannot: one node alone, over NVLink. Its output is read by the reader of
evidence (evidence/nccl_tests.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from whichrank.preflight import collective, limits
from whichrank.preflight.answer import Finding
from whichrank.preflight.roster import Roster

PROGRAM = "all_reduce_perf"
SIZES = ("-b", "512M", "-e", "512M", "-n", "10", "-w", "3")
SECONDS = 20.0
Told = Mapping[str, Mapping[str, Any]]  # node -> what run() found


def run(gpus: int) -> dict[str, Any]:
    """In the first rank of a node with so many GPUs. {} where the program is not installed."""
    if gpus < 2 or shutil.which(PROGRAM) is None:
        return {}
    text = limits.command([PROGRAM, *SIZES, "-g", str(gpus)], SECONDS)
    if text is None:
        return {"failed": True, "gpus": gpus}
    from whichrank.evidence.network_tools import READER
    from whichrank.evidence.sample import facts

    for fact in facts(READER, text):
        if fact.kind == "bandwidth" and fact["busbw"]:
            names = ("busbw", "size", "wrong", "gpus", "gpu")
            return {name: fact[name] for name in names}
    return {"failed": True, "gpus": gpus}


def judge(told: Told, roster: Roster) -> Iterator[Finding]:
    measured = {node: one for node, one in told.items() if one.get("busbw")}
    best = max((one["busbw"] for one in measured.values()), default=0.0)
    for node, one in told.items():
        if one.get("failed"):
            yield _finding(
                "gpu_perf_fails",
                f"{PROGRAM} over the {one['gpus']} GPUs of {node} did not come through in {SECONDS:.0f} s.",
                f"on {node}: NCCL_DEBUG=WARN {PROGRAM} {' '.join(SIZES)} -g {one['gpus']}",
                node,
                roster,
            )
    for node, one in measured.items():
        if one["wrong"]:
            yield _finding(
                "gpu_wrong_values",
                f"{PROGRAM} on {node} gave {one['wrong']} wrong values: data is corrupted on its GPUs or links.",
                f"leave {node} out; dcgmi diag -r 3, nvidia-smi nvlink -e there",
                node,
                roster,
            )
        known = collective.expected(str(one["gpu"] or ""), 1, one["gpus"] or 0, one["size"] or 0)
        bar = max(collective.SHARE * best, collective.SHARE * known[0] if known else 0.0)
        if one["busbw"] < bar:
            than = f"{best:.3g} on the best node" if one["busbw"] < collective.SHARE * best else ""
            usual = f"{known[0]:.3g} reached by others ({known[1]})" if known else ""
            yield _finding(
                "gpu_slow",
                f"The GPUs of {node} reach a busbw of {one['busbw']:.3g} GB/s among themselves, against {than or usual}.",
                f"leave {node} out; nvidia-smi topo -m, nvidia-smi nvlink --status, nvidia-smi -q -d PERFORMANCE there",
                node,
                roster,
            )


def _finding(id: str, says: str, do: str, node: str, roster: Roster) -> Finding:
    return Finding("gpus", "stop", id, says, do, (node,), tuple(roster.ranks_of(node)))
