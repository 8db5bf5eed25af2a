"""What a preflight answers: findings, each with what to do next, and the measurements behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Grade = Literal["stop", "warn", "note"]
State = Literal["passed", "failed", "warned", "skipped"]
SCHEMA_VERSION = 1
MOST = 12  # ranks, or runs of ranks, that a sentence names

# The steps, in order, and what they are called
CHECKS = {
    "ranks": "ranks",
    "settings": "settings",
    "connections": "connections",
    "gpus": "GPUs",
    "storage": "storage",
    "bandwidth": "links",
    "collective": "collectives",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """grade: `stop` makes a no-go. says: one sentence that names who; do: what to change, or where to look next."""

    check: str
    grade: Grade
    id: str
    says: str
    do: str
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A step as it went. says: its result in a few words, or why it was left out."""

    name: str
    state: State
    says: str
    seconds: float


@dataclass(slots=True)
class Answer:
    """Everything that rank 0 knows at the end. `nodes`, `pairs` …: rows for the table and the JSON."""

    world: int
    launcher: str
    master: str
    backend: str
    findings: list[Finding] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    ranks: list[dict[str, Any]] = field(default_factory=list)
    pairs: list[dict[str, Any]] = field(default_factory=list)
    collective: list[dict[str, Any]] = field(default_factory=list)
    storage: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def go(self) -> bool:
        return not any(finding.grade == "stop" for finding in self.findings)

    def graded(self, grade: Grade) -> list[Finding]:
        return [finding for finding in self.findings if finding.grade == grade]


def state_of(findings: Iterable[Finding]) -> State:
    grades = {finding.grade for finding in findings}
    return "failed" if "stop" in grades else "warned" if "warn" in grades else "passed"


def ranks_text(ranks: Iterable[int]) -> str:
    """
    >>> ranks_text([4, 5, 6, 9]), ranks_text([2]), ranks_text([0, 1])
    ('ranks 4-6, 9', 'rank 2', 'ranks 0, 1')
    """
    inside: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if inside and rank == inside[-1][-1] + 1:
            inside[-1].append(rank)
        else:
            inside.append([rank])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in inside]
    return f"rank{'s' if sum(map(len, inside)) > 1 else ''} {names_text(parts, MOST)}"


def names_text(names: Sequence[str], most: int = 6) -> str:
    """
    >>> names_text(["a", "b"]), names_text(list("abcdefgh"), 3)
    ('a, b', 'a, b, c and 5 more')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
