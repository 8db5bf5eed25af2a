"""What happened, in the words of the report, and what the files of an incident can show of it."""

from __future__ import annotations

from dataclasses import asdict

from lab.gloo.drive import Left
from lab.gloo.plan import Plan

MECHANISM = {
    "stall": "host_stuck",
    "skip": "desync",
    "mismatch": "mismatch",
    "exception": "dead",
    "kill": "dead",
    "healthy": "no_hang",
}
# Without a stack or a word in a log nobody knows what a rank that never came was at.
STALL_CAUSE = {
    "read": "slow_data",
    "decoder": "slow_data",
    "prefetch": "slow_data",
    "arrives": "slow_data",
    "save": "slow_checkpoint",
}
DEFENSIBLE = {"slow_data": ["slow_storage"], "slow_checkpoint": ["slow_storage", "rank0_only_work"]}


def truth(plan: Plan, number: int, seed: int, left: Left) -> dict[str, object]:
    cause, causes = _cause(plan, plan.frames)
    also = {"exception": ["host_stuck", "undecided"], "kill": ["undecided"], "skip": ["mismatch", "deadlock"]}.get(
        plan.fault, []
    )
    if (plan.fault, plan.variant) == ("mismatch", "op"):
        also = ["desync"]  # another call at the same place: both words fit
    if plan.fault in ("skip", "mismatch") and plan.victim in left.missing:
        also = [*also, "dead", "undecided"]
        causes = [*causes, "undecided"]
    if plan.fault == "healthy":  # dumps do not say when they were written, and a call that failed on all looks ended
        also, causes = ["undecided"], ["undecided"]
    # the launcher and the rank's own traceback say what dumps cannot; no log says where a rank stands
    told_also, told_causes = (
        ([], []) if plan.fault in ("exception", "kill") or plan.variant == "finished" else (also, causes)
    )
    identifiable, reason = _identifiable(plan, left)
    group = plan.group()
    return {
        "seed": seed,
        "incident": number,
        "kind": plan.fault,
        "mechanism": MECHANISM[plan.fault],
        "also_accepted": also,
        "cause": cause,
        "also_accepted_causes": causes,
        "with_logs": {"also_accepted": told_also, "also_accepted_causes": told_causes},
        "without_frames": {"also_accepted": also, "also_accepted_causes": [*causes, *_cause(plan, False)[1]]},
        "culprits": [] if plan.victim is None else [plan.victim],
        "group_ranks": group if plan.fault in ("skip", "mismatch") else None,
        "identifiable": identifiable,
        "reason": reason,
        "candidates": [plan.victim] if identifiable and plan.victim is not None else [] if identifiable else group,
        "detail": asdict(plan) | {"exit_status": left.status, "exits": left.exits},
        "lateness_s": {},
        "mode": {
            "start_events": False,
            "frames": "python" if plan.frames else "off",
            "missing": 0.0,
            "ring": plan.ring,
            "ring_short": left.ring_short,
            "version": "2.10",
            "json": False,
            "backend": "gloo",
            "by_hand": plan.when == "request",
            "only_active": False,
            "skew": "none",
            "scheme": "comm_lib_trace",
        },
        "world": plan.world,
        "missing_ranks": left.missing,
        "files": {str(r): f"comm_lib_trace_rank_{r}" for r in range(plan.world) if r not in left.missing},
    }  # fmt: skip


def _cause(plan: Plan, frames: bool) -> tuple[str, list[str]]:
    """The true cause, and what somebody with the dumps alone may answer as well."""
    if plan.fault == "stall":
        cause = STALL_CAUSE[plan.variant]
        return cause, ["undecided", *DEFENSIBLE[cause]]
    if plan.fault == "skip":
        even = ["desync_uneven_data"] if plan.variant == "empty" else []
        return "desync_conditional", [*even, *([] if frames else ["desync_mismatch", "undecided"])]
    if plan.fault == "mismatch":
        return "desync_mismatch", ["desync_conditional"] if plan.variant == "op" else []
    if plan.fault == "healthy":
        return "none", []
    return {"exception": "exception", "kill": "killed"}[plan.fault], ["undecided"]


def _identifiable(plan: Plan, left: Left) -> tuple[bool, str]:
    """Can the dumps that are left name exactly the culprit?"""
    if plan.variant == "running":
        return False, "no dump says when it was written: between two calls a rank looks as if it never came"
    if plan.fault == "healthy":
        return True, "all got on"
    if plan.fault == "kill":
        return True, "the only rank without a dump"
    if plan.fault in ("stall", "exception"):
        return True, "others wait for it and it waits for nothing"
    if plan.victim in left.missing:
        return False, "gloo ended the culprit itself before it could dump"
    present = set(range(plan.world)) - set(left.missing)
    if len(present & set(plan.group())) >= 3:
        return True, "the others of the group agree on what it should have called"
    others = present - set(plan.group())
    if plan.job == "grid" and len(others) >= 2:
        return True, "another group of the same role shows what it should have called"
    return False, "one against one: nothing says which side is wrong"
