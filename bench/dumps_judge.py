"""Is an answer about Flight Recorder dumps right? Truth in the words of lab/simulate, answers as the report has them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any

SURE = ("proven", "likely")
MOST_NAMED = 3  # more than this many names are no answer to "which rank"

# Causes that a fault of the simulator can fairly be given, beside undecided: it writes no truth about causes.
CAUSES: dict[str, tuple[str, ...]] = {
    "skipped_collective": ("desync_conditional", "desync_uneven_data"),
    "extra_collective": ("desync_conditional", "desync_uneven_data"),
    "uneven_data": ("desync_uneven_data", "desync_conditional"),
    "missing_send": ("desync_conditional",),
    "missing_recv": ("desync_conditional",),
    "size_mismatch": ("desync_mismatch",),
    "dtype_mismatch": ("desync_mismatch",),
    "op_mismatch": ("desync_mismatch", "desync_conditional"),
    "split_mismatch": ("desync_mismatch",),
    "order_inversion": ("desync_order",),
    "network": ("network",),
    "gpu_hang": ("gpu_fault",),
    "rank0_checkpoint": ("slow_checkpoint", "rank0_only_work", "slow_storage"),
    "timeout_short": ("timeout_too_short",),
    "healthy": ("none",),
    "straggler": ("none", "slow_compute", "slow_data"),
}
# What a mechanism that counts as right stands for: the simulator says of some faults that two words fit.
IMPLIED = {"deadlock": "desync_order", "mismatch": "desync_mismatch", "desync": "desync_conditional"}


@dataclass(slots=True)
class Answer:
    """What somebody said about one folder of dumps. error: why nothing was said (crashed, silent, …)."""

    named: list[int] = field(default_factory=list)
    mechanism: str = "undecided"
    rank_grade: str = "undecided"
    cause: str = "undecided"
    grade: str = "undecided"
    group_ranks: list[int] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Row:
    """One incident, its truth, an answer, and how right that is. None: does not apply to this incident."""

    incident: str
    truth: dict[str, Any]
    answer: Answer
    exact: bool | None  # exactly the culprits; for a fault of no rank: nobody named, and the mechanism
    contained: bool | None  # the culprits are among at most three names
    fair: bool  # nobody named but ranks that look like the culprit in these files
    mechanism: bool
    cause: bool | None
    group: bool | None
    falsely_sure: bool
    names_innocent: bool  # the part of it that sends somebody to the wrong rank
    cause_too_sure: bool  # proven or likely, and not the cause, even where its mechanism counts as right
    claims_hang: bool | None
    folder: str = ""
    modes: list[str] = field(default_factory=list)

    @property
    def missed(self) -> bool:
        """Worth looking at."""
        wrong = self.truth["identifiable"] and self.exact is False
        return bool(wrong or not self.mechanism or self.falsely_sure or self.claims_hang or self.answer.error)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Row:
        return cls(**{**plain, "answer": Answer(**plain["answer"])})


@dataclass(slots=True)
class Scored:
    ours: Row
    peer: Row | None = None

    def plain(self) -> dict[str, Any]:
        return {"whichrank": asdict(self.ours), "torchfrtrace": asdict(self.peer) if self.peer else None}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Scored:
        peer = plain["torchfrtrace"]
        return cls(Row.of(plain["whichrank"]), Row.of(peer) if peer else None)


def judge(incident: str, truth: dict[str, Any], answer: Answer, evidence: str = "dumps") -> Row:
    """Scores one answer. evidence: "dumps", "JSON" (without call sites), "dumps and logs" (which settle more)."""
    also = truth.get({"JSON": "without_frames", "dumps and logs": "with_logs"}.get(evidence, ""), truth)
    culprits, named = set(truth["culprits"]), set(answer.named)
    accepted = {truth["mechanism"], *also.get("also_accepted", [])}
    alive = truth["mechanism"] == "no_hang"
    mechanism = answer.mechanism in accepted
    causes = _causes(truth, also)
    group = truth.get("group_ranks")
    exact = None if alive else named == culprits and (bool(culprits) or mechanism)
    return Row(
        incident=incident,
        truth=truth,
        answer=answer,
        exact=exact,
        contained=culprits <= named and len(named) <= max(MOST_NAMED, len(culprits)) if culprits else None,
        fair=named <= {*culprits, *truth.get("candidates", [])},
        mechanism=mechanism,
        cause=answer.cause in causes if truth.get("cause") else None,
        group=set(answer.group_ranks) == set(group) if group and not culprits else None,
        falsely_sure=_falsely_sure(answer, named - culprits, mechanism, {*causes, *map(IMPLIED.get, accepted)}),
        cause_too_sure=answer.grade in SURE and answer.cause not in causes,
        names_innocent=answer.rank_grade in SURE and bool(named - culprits),
        claims_hang=(bool(named) or answer.mechanism not in ("no_hang", "undecided")) if alive else None,
    )


def _causes(truth: dict[str, Any], also: dict[str, Any]) -> Collection[str]:
    if truth.get("cause"):
        return {truth["cause"], *also.get("also_accepted_causes", [])}
    return {"undecided", *CAUSES.get(truth["kind"], ())}


def _falsely_sure(answer: Answer, innocent: set[int], mechanism: bool, causes: Collection[str | None]) -> bool:
    """An innocent rank, a mechanism or a cause that is wrong, said as proven or likely."""
    wrong_way = not mechanism and answer.mechanism != "undecided"
    of_ranks = answer.rank_grade in SURE and (bool(innocent) or (wrong_way and bool(answer.named)))
    of_cause = answer.grade in SURE and (answer.cause not in causes or wrong_way)
    return of_ranks or of_cause


def modes(truth: dict[str, Any], evidence: str = "dumps") -> list[str]:
    """The rows of the table by mode to which an incident belongs."""
    mode = truth.get("mode", {})
    if evidence == "JSON":
        mode = {**mode, "json": True, "frames": "off"}
    world = truth["world"]
    rows = [
        "all dumps there" if not mode.get("missing") else f"{mode['missing']:.0%} of the innocents' dumps missing",
        f"start events {'on' if mode.get('start_events') else 'off'}",
        f"frames {mode.get('frames')}",
        "ring overflowed" if mode.get("ring_short") else "ring held all",
        f"version {mode.get('version')}",
        "JSON" if mode.get("json") else "pickle",
        f"backend {mode.get('backend')}",
        "dumped by hand" if mode.get("by_hand") else "dumped by the watchdog",
        "world up to 32" if world <= 32 else "world 48 to 64" if world <= 64 else "world 128 and more",
    ]
    rows += ["active entries only"] * bool(mode.get("only_active"))
    rows += ["clocks off by seconds"] * (mode.get("skew") == "loose")
    rows += ["stale dumps of an earlier attempt"] * bool(truth.get("stale_ranks") or truth.get("earlier_attempt"))
    return rows if evidence == "dumps" else [f"evidence: {evidence}", *rows]
