"""The answer: causes weighed, ranks named, said in words, with what to do now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from whichrank.causes.base import RECORD, one
from whichrank.findings import Findings
from whichrank.job.clocks import offsets
from whichrank.job.model import Job
from whichrank.model import FAMILY, Check, Mechanism, Proof, Verdict, Weighed
from whichrank.ranges import several
from whichrank.verdict import action, scales
from whichrank.verdict.checks import possible, still_open
from whichrank.verdict.scales import POSSIBLE, UNDECIDED, Score, confidences, grade_of, weigh
from whichrank.verdict.who import Accused, accuse, culprit
from whichrank.verdict.who import victims as waiting_ranks
from whichrank.verdict.words import (
    fill,
    filled,
    next_checks,
    proof,
    proofs,
    sentence,
    stopgap,
    undecided_sentence,
)
from whichrank.verdict.words import weighed as weighed_row

CORRECTED = 0.85  # the most that an order of corrected times is worth
SUPPOSED = 0.7  # the most that a cause is worth which rests on groups that nothing states


def decide(job: Job, found: Findings) -> tuple[list[Verdict], tuple[Weighed, ...]]:
    """The verdicts, best first (at most three), and every cause weighed."""
    scores = weigh(job, found)
    sure = confidences(scores)
    best = scores[0]
    weighed = tuple(weighed_row(score, sure[score.cause.id]) for score in scores if score.clues)
    if best.total <= UNDECIDED or sure[best.cause.id] < POSSIBLE:
        return [_undecided(job, found, scores, sure)], weighed
    verdicts = [_verdict(job, found, best, sure[best.cause.id])]
    for score in scores[1:3]:
        if score.total > UNDECIDED and sure[score.cause.id] > 0.05:
            verdicts.append(_verdict(job, found, score, sure[score.cause.id], lead=False))
    return verdicts, weighed


def _verdict(job: Job, found: Findings, score: Score, confidence: float, lead: bool = True) -> Verdict:
    grade, confidence = scales.grade(score, confidence)
    accused = accuse(job, found, score)
    if _supposed(found, score) and confidence > SUPPOSED:
        confidence, grade = SUPPOSED, grade_of(SUPPOSED)
    if _rests_on_clocks(job, found):
        if confidence > CORRECTED:
            confidence, grade = CORRECTED, grade_of(CORRECTED)
        accused = replace(accused, confidence=min(accused.confidence, CORRECTED))
    mechanism = _mechanism(found, score)
    culprits = tuple(culprit(job, rank) for rank in accused.ranks)
    victims = waiting_ranks(job, found, accused)
    says = sentence(job, found, score, accused)
    hosts = accused.hosts
    place = _place(job, found, accused.ranks)
    return Verdict(
        cause=score.cause.id,
        family=FAMILY[score.cause.id],
        grade=grade,
        confidence=round(confidence, 3),
        mechanism=mechanism,
        culprits=culprits,
        hosts=hosts,
        rank_grade=grade_of(accused.confidence) if accused.ranks else "undecided",
        rank_confidence=round(accused.confidence if accused.ranks else 0.0, 3),
        says=says,
        victims=victims,
        group=place.group,
        group_ranks=place.ranks,
        seq=place.seq,
        op=place.op,
        because=proofs(score.support),
        against=proofs(score.contrary),
        checks=_checks(score.cause.settles, job, found, accused) if lead else (),
        fix=tuple(fill(text, job, accused, score) for text in score.cause.fix),
        stopgap=fill(stopgap(score.cause), job, accused, score),
        action=action.decide(job, found, score.cause, grade, accused.ranks, hosts, score.support),
    )


def _checks(checks: Sequence[Check], job: Job, found: Findings, accused: Accused) -> tuple[Check, ...]:
    left = still_open(possible(checks, job, found, accused), job, found, accused)
    return tuple(filled(check, job, accused) for check in left)


class _Place(NamedTuple):
    """The collective in which most ranks wait, and the ranks of its group."""

    group: str | None
    ranks: tuple[int, ...]
    seq: int | None
    op: str | None


def _place(job: Job, found: Findings, accused: Sequence[int]) -> _Place:
    """Dumps list a group's members; logs show who waited in it."""
    told, main = found.hung, found.arrived.main
    if told is not None and told.traced.group is not None and told.table is not None:
        traced = told.traced
        return _Place(told.table.groups[told.traced.group].title, traced.group_ranks, traced.seq, traced.op)
    if main is None:
        return _Place(None, (), None, None)
    return _Place(main.group, tuple(sorted(found.arrived.waiting | set(accused))), main.seq, main.op)


def _supposed(found: Findings, score: Score) -> bool:
    """Does the cause rest on dumps alone, whose groups or ranks nothing states?"""
    return found.hung is not None and found.hung.supposed and all(clue.kind == "dump" for clue in score.support)


def _rests_on_clocks(job: Job, found: Findings) -> bool:
    """Did several hosts fail, one of them with a clock that is off? Who was first is then told by corrected times."""
    where = {failure.host or job.host_of(failure.rank) for failure in found.failed.roots}
    return len(where) > 1 and bool(where & set(offsets(job.facts)))


def _undecided(job: Job, found: Findings, scores: Sequence[Score], sure: dict[str, float]) -> Verdict:
    accused = accuse(job, found, None)
    told, main = found.hung, found.arrived.main
    place = _place(job, found, ())
    proofs: list[Proof] = []
    for named in found.arrived.named[:2] if told is None else ():
        proofs.append(proof(f"{named.by} names {several(named.ranks)}", named.fact))
    if main is not None and found.sides is None and main.fact.kind != "dump_wait":
        proofs.append(
            proof(
                f"{several(sorted(found.arrived.waiting)) if found.arrived.waiting else 'a rank'} waited in {main.op or 'a collective'}{f' #{main.seq}' if main.seq is not None else ''}",
                main.fact,
            )
        )
    if found.sides is not None:
        for ranks, wait in found.sides.parties[:3]:
            proofs.append(
                proof(f"{several(ranks)} waited in {wait.op} #{wait.seq} ({wait.size[0]} elements)", wait.fact)
            )
    if told is not None:
        proofs = [*(proof(told.says, fact) for fact in told.proofs), *proofs]
    if (seen := found.first_seen) is not None:
        proofs.append(proof(f"torchrun saw {several(one(seen.fact.rank))} end first, by {seen.how}", seen.fact))
    best = scores[0]
    confidence = round(
        max(sure["undecided"], 1 - sure[best.cause.id]) if best.total > UNDECIDED else max(0.6, sure["undecided"]), 3
    )
    return Verdict(
        cause="undecided",
        family="undecided",
        grade="undecided",
        confidence=confidence,
        mechanism=_undecided_mechanism(job, found),
        culprits=tuple(culprit(job, rank) for rank in accused.ranks),
        hosts=accused.hosts,
        rank_grade=grade_of(accused.confidence) if accused.ranks else "undecided",
        rank_confidence=round(accused.confidence if accused.ranks else 0.0, 3),
        says=undecided_sentence(job, found, accused, best),
        victims=waiting_ranks(job, found, accused),
        group=place.group,
        group_ranks=place.ranks,
        seq=place.seq,
        op=place.op,
        because=tuple(dict.fromkeys(proofs)),
        against=(),
        checks=_checks(next_checks(job, found, accused), job, found, accused),
        fix=("None yet: a change without the cause is a guess.",),
        stopgap=_the_next_time(job, told is not None),
        action=action.undecided(job, found, accused.ranks),
    )


def _the_next_time(job: Job, dumps: bool) -> str:
    """What is seen while it hangs is seen by nothing afterwards."""
    if job.of("phase"):  # a recorder was there
        return "Restart from the last checkpoint."
    watched = "Restart from the last checkpoint, under `whichrank run -- COMMAND`: it takes stacks and dumps within seconds of the next hang"
    return f"{watched}." if dumps else f"{watched} (without it, {RECORD} keeps dumps)."


def _undecided_mechanism(job: Job, found: Findings) -> Mechanism:
    """What is plain even where the cause is not."""
    if found.met is not None and not found.failed.roots:
        return "network"
    if found.hung is not None:
        return found.hung.traced.mechanism
    if found.raised is not None or (found.sides is not None and found.sides.what in ("seq", "op")):
        return "desync"
    if found.first_seen is not None and found.first_seen.victim:
        return "undecided"
    if not found.arrived.waits and any(fact["word"] or fact["exitcode"] or fact["signal"] for fact in job.of("exit")):
        return "dead"
    return "undecided"


def _mechanism(found: Findings, score: Score) -> Mechanism:
    for clue in score.support:
        if clue.mechanism is not None:
            return clue.mechanism
    if (
        score.cause.id == "gpu_fault"
        and not found.arrived.waits
        and any(failure.kind == "exception" for failure in found.failed.roots)
    ):
        return "dead"  # it raised and left, nobody hung
    if (
        score.cause.mechanism == "host_stuck"
        and not found.arrived.waits
        and found.ending.alive
        and not found.stacks.mains
    ):
        return "no_hang"  # slow, but it moves
    return score.cause.mechanism


__all__ = ["decide", "grade_of"]
