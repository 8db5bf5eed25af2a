"""Weigh all causes, grade the answer, and say it.

A cause's score is its prior plus its clues, those of one kind counted once at their strongest. The scores and a fixed
score for "undecided" give the confidence (softmax). *Proven* needs two independent kinds of evidence, or one that
decides alone, and nothing strong against.

The ranks are graded apart from the cause: records often prove who did not arrive and leave open why.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from whichrank.causes import CAUSES, Cause
from whichrank.causes.base import Clue
from whichrank.findings import Findings
from whichrank.job.model import Job
from whichrank.model import Grade
from whichrank.ranges import several

UNDECIDED = 1.0  # the score that a cause must beat
PROVEN, LIKELY, POSSIBLE = 0.95, 0.75, 0.4


@dataclass(frozen=True, slots=True)
class Score:
    cause: Cause
    total: float
    clues: tuple[Clue, ...]

    @property
    def support(self) -> list[Clue]:
        return sorted((clue for clue in self.clues if clue.weight > 0), key=lambda clue: -clue.weight)

    @property
    def contrary(self) -> list[Clue]:
        return sorted((clue for clue in self.clues if clue.weight < 0), key=lambda clue: clue.weight)


def weigh(job: Job, found: Findings) -> list[Score]:
    """All causes, the best first."""
    scores = []
    for cause in CAUSES:
        clues = tuple(_alive(cause, found, clue) for clue in cause.weigh(job, found))
        scores.append(Score(cause, cause.prior + _sum(clues), clues))
    return sorted(scores, key=lambda score: -score.total)


def _alive(cause: Cause, found: Findings, clue: Clue) -> Clue:
    """Who reported itself that it waited with the others had not died: whatever says so speaks of something else."""
    accused = set(clue.ranks)
    if cause.mechanism != "dead" or clue.weight <= 0 or not accused or not found.arrived.suspects:
        return clue
    if not accused <= found.arrived.waiting:
        return clue
    waited = [wait.fact for wait in found.arrived.waits if wait.rank in accused]
    says = f"{clue.says}; but {several(sorted(accused))} waited with the others, alive"
    return replace(clue, weight=-min(2.0, clue.weight), says=says, facts=(*clue.facts, *waited[:1]), ranks=())


def _sum(clues: Sequence[Clue]) -> float:
    """Clues of one kind count once, at their strongest, for and against apart."""
    best: dict[tuple[str, bool], float] = defaultdict(float)
    for clue in clues:
        key = (clue.kind, clue.weight > 0)
        best[key] = max(best[key], clue.weight) if clue.weight > 0 else min(best[key], clue.weight)
    return sum(best.values())


def confidences(scores: Sequence[Score]) -> dict[str, float]:
    """Softmax over the causes and "undecided"."""
    exps = {score.cause.id: math.exp(min(score.total, 30.0)) for score in scores}
    exps["undecided"] = math.exp(UNDECIDED)
    total = sum(exps.values())
    return {name: value / total for name, value in exps.items()}


def grade_of(confidence: float) -> Grade:
    return (
        "proven"
        if confidence >= PROVEN
        else "likely"
        if confidence >= LIKELY
        else "possible"
        if confidence >= POSSIBLE
        else "undecided"
    )


def grade(score: Score, confidence: float) -> tuple[Grade, float]:
    """The cause's grade: what the confidence allows, and what the evidence carries."""
    kinds = {clue.kind for clue in score.support if clue.weight >= 0.8 and clue.kind != "hint"}
    decisive = any(clue.decisive for clue in score.support)
    against = any(clue.weight <= -1.5 for clue in score.contrary)
    strong = decisive or len(kinds) >= 2
    if confidence >= PROVEN and (not strong or against):
        confidence = 0.94 if not against else 0.9
    return grade_of(confidence), confidence
