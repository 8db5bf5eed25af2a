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
from dataclasses import dataclass

from whichrank import actions
from whichrank.causes import CAUSES, Cause
from whichrank.causes.base import Clue, several
from whichrank.facts import Fact, Said
from whichrank.findings import Findings
from whichrank.job.clocks import span
from whichrank.job.model import Job
from whichrank.model import FAMILY, Check, Culprit, Grade, Mechanism, Proof, Verdict, Weighed

UNDECIDED = 1.0  # the score that a cause must beat
PROVEN, LIKELY, POSSIBLE = 0.95, 0.75, 0.4
_MUTE = {"none", "undecided"}


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
        clues = tuple(cause.weigh(job, found))
        scores.append(Score(cause, cause.prior + _sum(clues), clues))
    return sorted(scores, key=lambda score: -score.total)


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


def decide(job: Job, found: Findings) -> tuple[list[Verdict], tuple[Weighed, ...]]:
    """The verdicts, best first (at most three), and every cause weighed."""
    scores = weigh(job, found)
    sure = confidences(scores)
    best = scores[0]
    weighed = tuple(_weighed(score, sure[score.cause.id]) for score in scores if score.clues)
    if best.total <= UNDECIDED or sure[best.cause.id] < POSSIBLE:
        return [_undecided(job, found, scores, sure)], weighed
    verdicts = [_verdict(job, found, best, sure[best.cause.id])]
    for score in scores[1:3]:
        if score.total > UNDECIDED and sure[score.cause.id] > 0.05:
            verdicts.append(_verdict(job, found, score, sure[score.cause.id], lead=False))
    return verdicts, weighed


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


def _grade(score: Score, confidence: float) -> tuple[Grade, float]:
    """The cause's grade: what the confidence allows, and what the evidence carries."""
    kinds = {clue.kind for clue in score.support if clue.weight >= 0.8}
    decisive = any(clue.decisive for clue in score.support)
    against = any(clue.weight <= -1.5 for clue in score.contrary)
    strong = decisive or len(kinds) >= 2
    if confidence >= PROVEN and (not strong or against):
        confidence = 0.94 if not against else 0.9
    return grade_of(confidence), confidence


# --- who ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accused:
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    confidence: float


def accuse(job: Job, found: Findings, score: Score | None) -> Accused:
    """The ranks that the cause's clues name; else those that a report names or that did not arrive."""
    arrived = found.arrived
    if score is not None and not score.cause.blames_ranks:
        hosts = tuple(dict.fromkeys(host for clue in score.support[:3] for host in clue.hosts))
        return Accused((), hosts, 0.0)
    if score is not None:
        naming = [clue for clue in score.support if clue.ranks and clue.weight >= 1.0]
        if naming:
            lead = naming[0]
            sure = lead.sure_of_ranks
            same = [clue for clue in naming[1:] if set(clue.ranks) == set(lead.ranks)]
            if same:
                sure = 1 - (1 - sure) * 0.4
            if arrived.waits and set(lead.ranks) & arrived.waiting and not same:
                sure = min(sure, 0.85)
            if _named(found, lead.ranks):
                sure = max(sure, 0.96)
            hosts = (
                tuple(dict.fromkeys(host for host in (job.host_of(rank) for rank in lead.ranks) if host)) or lead.hosts
            )
            return Accused(tuple(sorted(lead.ranks)), hosts, min(sure, 0.98))
        hosts = tuple(dict.fromkeys(host for clue in score.support[:3] for host in clue.hosts))
    else:
        hosts = ()
    ranks, sure = _not_arrived(job, found)
    if score is not None and score.cause.id in (
        "exception",
        "gradient_checkpointing",
        "timeout_not_applied",
        "timeout_too_short",
        "init_rendezvous",
        "p2p_shm",
        "desync_order",
        "version_mismatch",
    ):
        # These say nothing of who was late: only a firm absence names somebody.
        if sure < 0.7 or score.cause.id in ("init_rendezvous", "p2p_shm", "exception"):
            ranks, sure = (), 0.0
    if score is not None and score.cause.id.startswith("desync"):
        ranks, sure = (), 0.0
    hosts = hosts or tuple(dict.fromkeys(host for host in (job.host_of(rank) for rank in ranks) if host))
    return Accused(ranks, hosts, sure)


def _named(found: Findings, ranks: Sequence[int]) -> bool:
    return any(set(named.ranks) == set(ranks) for named in found.arrived.named)


def _not_arrived(job: Job, found: Findings) -> tuple[tuple[int, ...], float]:
    """Who did not reach the collective, by reports that name them or by silence, and how sure that is."""
    arrived = found.arrived
    if arrived.named:
        best = max(arrived.named, key=lambda named: named.sure)
        return best.ranks, best.sure
    if found.stacks.odd and all(stack.rank is not None for stack in found.stacks.odd):
        return tuple(sorted(stack.rank for stack in found.stacks.odd if stack.rank is not None)), 0.85
    if not arrived.waits or not job.world_size or found.sides is not None:
        return (), 0.0
    suspects = arrived.suspects
    if not suspects or len(suspects) * 2 > job.world_size or len(arrived.waiting) < 2:
        return (), 0.0
    sure = 0.85 if job.world_told else 0.6
    if arrived.doubtful:
        sure -= 0.2
    if suspects - arrived.heard:
        sure = min(sure, 0.7 if len(arrived.waiting) >= 3 else 0.5)
    if arrived.lossy:
        sure = min(sure, 0.55)
    if len(suspects) > 1:
        sure = min(sure, 0.7)
    return tuple(sorted(suspects)), sure


# --- what it says ----------------------------------------------------------------------------------------------------


def _verdict(job: Job, found: Findings, score: Score, confidence: float, lead: bool = True) -> Verdict:
    grade, confidence = _grade(score, confidence)
    accused = accuse(job, found, score)
    mechanism = _mechanism(found, score)
    main = found.arrived.main
    culprits = tuple(_culprit(job, rank) for rank in accused.ranks)
    victims = _victims(job, found, accused)
    says = sentence(job, found, score, accused)
    hosts = accused.hosts
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
        group=main.group if main else None,
        group_ranks=tuple(sorted(found.arrived.waiting))
        if main and not culprits
        else tuple(sorted(found.arrived.waiting | set(accused.ranks)))
        if main
        else (),
        seq=main.seq if main else None,
        op=main.op if main else None,
        because=_proofs(score.support),
        against=_proofs(score.contrary),
        checks=tuple(_filled(check, job, accused) for check in score.cause.settles) if lead else (),
        fix=tuple(_fill(text, job, accused, score) for text in score.cause.fix),
        stopgap=_fill(_stopgap(score.cause), job, accused, score),
        action=actions.decide(job, found, score.cause, grade, accused.ranks, hosts, score.support),
    )


def _stopgap(cause: Cause) -> str:
    """The stopgap, and on a line of its own what not to do."""
    return "\n".join(part for part in (cause.stopgap, f"Don't {cause.dont}." if cause.dont else "") if part)


def _undecided(job: Job, found: Findings, scores: Sequence[Score], sure: dict[str, float]) -> Verdict:
    accused = accuse(job, found, None)
    main = found.arrived.main
    proofs: list[Proof] = []
    for named in found.arrived.named[:2]:
        proofs.append(_proof(f"{named.by} names {several(named.ranks)}", named.fact))
    if main is not None:
        proofs.append(
            _proof(
                f"{several(sorted(found.arrived.waiting)) if found.arrived.waiting else 'a rank'} waited in {main.op or 'a collective'}{f' #{main.seq}' if main.seq is not None else ''}",
                main.fact,
            )
        )
    if found.sides is not None:
        for ranks, wait in found.sides.parties[:3]:
            proofs.append(
                _proof(f"{several(ranks)} waited in {wait.op} #{wait.seq} ({wait.size[0]} elements)", wait.fact)
            )
    best = scores[0]
    confidence = round(
        max(sure["undecided"], 1 - sure[best.cause.id]) if best.total > UNDECIDED else max(0.6, sure["undecided"]), 3
    )
    return Verdict(
        cause="undecided",
        family="undecided",
        grade="undecided",
        confidence=confidence,
        mechanism="desync" if found.sides is not None and found.sides.what in ("seq", "op") else "undecided",
        culprits=tuple(_culprit(job, rank) for rank in accused.ranks),
        hosts=accused.hosts,
        rank_grade=grade_of(accused.confidence) if accused.ranks else "undecided",
        rank_confidence=round(accused.confidence if accused.ranks else 0.0, 3),
        says=_undecided_says(job, found, accused, best),
        victims=_victims(job, found, accused),
        group=main.group if main else None,
        group_ranks=tuple(sorted(found.arrived.waiting)) if main else (),
        seq=main.seq if main else None,
        op=main.op if main else None,
        because=tuple(dict.fromkeys(proofs)),
        against=(),
        checks=tuple(_filled(check, job, accused) for check in _next_checks(job, found, accused)),
        fix=("Collect the evidence below first; a change without it is a guess.",),
        stopgap="Restart from the last checkpoint with TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 so that the next hang names its rank.",
        action=actions.undecided(job, found, accused.ranks),
    )


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


def _culprit(job: Job, rank: int) -> Culprit:
    info = job.ranks.get(rank)
    return Culprit(rank, info.host if info else None, info.pid if info else None)


def _victims(job: Job, found: Findings, accused: Accused) -> tuple[int, ...]:
    if not accused.ranks and not found.arrived.waiting:
        return ()
    everyone = job.everyone() if accused.ranks else found.arrived.waiting
    return tuple(sorted(set(everyone) - set(accused.ranks)))


def sentence(job: Job, found: Findings, score: Score, accused: Accused) -> str:
    """ "Rank 17 on node-03 was killed by … 29 min before the first timeout; 63 ranks waited in ALLREDUCE #1842." """
    cause = score.cause
    if cause.id == "none":
        return "No hang here: " + (score.support[0].says if score.support else "nothing went wrong") + "."
    where = (
        f" on {accused.hosts[0]}"
        if len(accused.hosts) == 1
        else f" on {', '.join(accused.hosts[:4])}"
        if accused.hosts
        else ""
    )
    if not cause.blames_ranks:
        verb = cause.verb.format(host=accused.hosts[0] if accused.hosts else "some ranks")
        text = f"{verb[0].upper()}{verb[1:]}" + (
            "" if "{host}" in cause.verb or not accused.hosts else f" ({', '.join(accused.hosts[:4])})"
        )
    else:
        who = (
            several(accused.ranks).capitalize()
            if accused.ranks
            else ("A process" if cause.id == "exception" else "Some rank")
        )
        text = f"{who}{where} {cause.verb}"
        if len(accused.ranks) > 1 and text.count(" was "):
            text = text.replace(" was ", " were ", 1)
    detail = score.support[0].says if score.support else ""
    if detail:
        text += f": {detail}"
    waiting = found.arrived.waiting - set(accused.ranks)
    main = found.arrived.main
    if main is not None and waiting:
        place = f"{main.op or 'the collective'}{f' #{main.seq}' if main.seq is not None else ''}"
        text += f"; {len(waiting)} {'rank' if len(waiting) == 1 else 'ranks'} waited in {place}"
        if main.timeout_s:
            text += f" for {span(main.timeout_s)}"
    return text + "."


def _undecided_says(job: Job, found: Findings, accused: Accused, best: Score) -> str:
    main = found.arrived.main
    parts = []
    if accused.ranks:
        where = f" on {', '.join(accused.hosts[:3])}" if accused.hosts else ""
        parts.append(
            f"{several(accused.ranks).capitalize()}{where} did not reach the collective; why is not in the evidence"
        )
    elif found.sides is not None:
        told = "; ".join(f"{several(ranks)} in {wait.op} #{wait.seq}" for ranks, wait in found.sides.parties[:3])
        parts.append(f"The ranks wait in different collectives ({told}); which side is wrong is not in the evidence")
    elif main is not None:
        who = several(sorted(found.arrived.waiting)).capitalize() if found.arrived.waiting else "A rank"
        parts.append(
            f"{who} waited in {main.op or 'a collective'}{f' #{main.seq}' if main.seq is not None else ''} for ranks that are not in the evidence"
            if found.arrived.absent or not job.world_told
            else f"{who} all waited in {main.op or 'a collective'}; nothing shows what held it"
        )
    elif best.support:
        parts.append(f"Something is wrong ({best.support[0].says}), and the evidence cannot say why")
    else:
        parts.append("The evidence does not show what happened")
    return parts[0] + "."


def _next_checks(job: Job, found: Findings, accused: Accused) -> list[Check]:
    who = several(accused.ranks) if accused.ranks else "the ranks that printed no timeout"
    return [
        Check(f"the stack of {who} during the hang", "py-spy dump --nonblocking --pid PID", "{host}"),
        Check(f"the output and exit code of {who} (torchrun --log-dir keeps one file a rank)"),
        Check(
            "the hosts' kernel log at that time",
            "dmesg -T | grep -iE 'killed process|Xid|not responding|blocked for|link'",
            "{host}",
        ),
        Check(
            "Flight Recorder dumps of all ranks: set this for the next run, then give the files to whichrank",
            "export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1",
        ),
    ]


def _proof(says: str, item: Fact | Said) -> Proof:
    return Proof(says, item.spot.source.path, item.spot.line, item.spot.excerpt)


def _proofs(clues: Sequence[Clue]) -> tuple[Proof, ...]:
    """One proof a line; clues without any line say nothing."""
    found: dict[tuple[str, int | None], Proof] = {}
    for clue in clues:
        for item in clue.facts:
            found.setdefault((item.spot.source.path, item.spot.line), _proof(clue.says, item))
    return tuple(found.values())[:12]


def _weighed(score: Score, confidence: float) -> Weighed:
    clues = tuple(
        (round(clue.weight, 2), _proof(clue.says, clue.facts[0]) if clue.facts else Proof(clue.says, "", None, ""))
        for clue in sorted(score.clues, key=lambda clue: -abs(clue.weight))
    )
    return Weighed(score.cause.id, round(confidence, 4), round(score.total, 2), clues)


def _fill(text: str, job: Job, accused: Accused, score: Score | None = None) -> str:
    """Put the user's own hosts, ranks and pids into a text."""
    culprit = _culprit(job, accused.ranks[0]) if accused.ranks else None
    site = next(
        (
            str(fact["site"])
            for clue in (score.support if score else [])
            for fact in clue.facts
            if isinstance(fact, Fact) and fact["site"]
        ),
        "the line that raised it",
    )
    values = {
        "{host}": (accused.hosts[0] if accused.hosts else None) or (culprit.host if culprit else None) or "HOST",
        "{rank}": str(culprit.rank) if culprit and culprit.rank is not None else "RANK",
        "{pid}": str(culprit.pid) if culprit and culprit.pid else "PID",
        "{site}": site,
    }
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _filled(check: Check, job: Job, accused: Accused) -> Check:
    where = _fill(check.where, job, accused) if check.where else None
    return Check(
        _fill(check.says, job, accused), _fill(check.command, job, accused), None if where == "HOST" else where
    )


__all__ = ["Score", "accuse", "confidences", "decide", "grade_of", "weigh"]
