"""What the page says in words: the sections of the terminal report as plain data for the template.

Every text is made printable here; the template escapes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from whichrank.model import Around, Check, Proof, Report, Verdict
from whichrank.ranges import ranks as rank_ranges
from whichrank.report.condense import all_gaps, cited, later, like_gaps, like_proofs, rank_groups, telling_moments
from whichrank.report.printable import clock, cut, moment, printable
from whichrank.report.summary import grades, stopgaps, where

PROOFS, MOMENTS, INCIDENTS, GAPS = 200, 400, 64, 200  # more than that and nobody reads it
EXCERPT = 2000


@dataclass(frozen=True, slots=True)
class Row:
    """A label and its text, with commands to copy."""

    label: str
    text: str
    commands: tuple[str, ...] = ()


class Pill(NamedTuple):
    """How sure something is."""

    name: str
    grade: str


class Line(NamedTuple):
    """A line of evidence: what it says, where it stands, how many say the same of others, the lines around it."""

    says: str
    place: str
    excerpt: str
    alike: int
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Step(NamedTuple):
    at: str
    later: str
    who: str
    says: str
    place: str


class Ranks(NamedTuple):
    state: str
    ranks: str
    many: int
    where: str
    what: str


class Told(NamedTuple):
    """One incident of several, or another verdict."""

    name: str
    at: str
    says: str
    pills: tuple[Pill, ...]


class Clues(NamedTuple):
    cause: str
    confidence: float
    score: float
    clues: tuple[tuple[str, str, str], ...]


def pills(verdict: Verdict) -> tuple[Pill, ...]:
    return tuple(Pill(name, grade) for name, grade in grades(verdict))


def answer(verdict: Verdict) -> list[Row]:
    """Where (if no rank can be named), what to do now, what for good, what not to do."""
    action = verdict.action
    rows: list[Row] = []
    if place := where(verdict):
        rows.append(Row("where", place))
    if action.do != "none" or action.commands:
        rows.append(Row("now", printable(action.says), commands(*action.commands)))
    rows += [Row("" if number else "fix", printable(fix)) for number, fix in enumerate(verdict.fix)]
    return rows + [Row(label, text) for label, text in stopgaps(verdict.stopgap)]


def commands(*texts: str) -> tuple[str, ...]:
    return tuple(shown for text in texts if (shown := printable(text, keep_lines=True).strip("\n")))


def incidents(report: Report) -> list[Told]:
    found = []
    for number, incident in enumerate(report.incidents[:INCIDENTS], 1):
        verdict = incident.verdicts[0] if incident.verdicts else None
        name = printable(incident.label) or f"incident {number}"
        says = printable(verdict.says) if verdict else "nothing could be read"
        sure = pills(verdict) if verdict else ()
        if verdict:
            sure = tuple(Pill(verdict.cause if pill.name == "cause" else pill.name, pill.grade) for pill in sure)
        found.append(Told(name, clock(incident.summary.at, with_date=True), says, sure))
    return found


def shared(report: Report) -> list[Row]:
    """What several incidents have in common, and what to do about that."""
    told = report.extra.get("shared")
    if not isinstance(told, dict):
        return []
    return [Row("", printable(str(told.get("says", "")))), Row("now", printable(str(told.get("action", ""))))]


def alternatives(report: Report) -> list[Told]:
    """Other verdicts, where the first is not certain."""
    if not report.verdicts or report.verdicts[0].grade == "proven":
        return []
    return [
        Told(other.cause, f"{other.confidence:.2f}", printable(other.says), (Pill("", other.grade),))
        for other in report.verdicts[1:4]
    ]


def lines(proofs: Sequence[Proof], around: Sequence[Around] = ()) -> list[Line]:
    near = {(each.source, each.line): each for each in around}
    return [
        _line(proof, alike, near.get((proof.source, proof.line or 0)))
        for proof, alike in like_proofs(proofs, alike_from=4)[:PROOFS]
    ]


def _line(proof: Proof, alike: int, near: Around | None = None) -> Line:
    excerpt = cut(printable(proof.excerpt, keep_lines=True).strip("\n"), EXCERPT)
    before, after = (tuple(map(printable, near.before)), tuple(map(printable, near.after))) if near else ((), ())
    return Line(printable(proof.says), cited(proof), excerpt, alike, before, after)


def ranks(report: Report, places: int = 6) -> list[Ranks]:
    """The ranks by state, at most so many places for each."""
    return [
        Ranks(group.state, rank_ranges(group.ranks, 400), len(group.ranks), group.where, group.what)
        for group in rank_groups(report, per_state=places)
    ]


def timeline(report: Report) -> tuple[list[Step], int]:
    """The steps and how many are left out."""
    verdict = report.verdicts[0] if report.verdicts else None
    steps, left = telling_moments(report, verdict, most=MOMENTS)
    start = next((at for step, _ in steps if (at := moment(step.at))), None)
    found = []
    for step, more in steps:
        who = f"rank {step.rank}" if step.rank is not None else printable(step.host or "")
        who += f" (+{more:,})" if more else ""
        time = clock(step.at, with_date=True)
        found.append(Step(time, later(step.at, start), who, printable(step.says), cited(step)))
    return found, left


def checks(verdict: Verdict) -> list[Row]:
    return [_check(check) for check in verdict.checks]


def _check(check: Check) -> Row:
    where = f" (on {printable(check.where)})" if check.where else ""
    return Row("", printable(check.says) + where, commands(check.command))


def missing(report: Report) -> tuple[list[Row], int]:
    """What is not there, and how many more."""
    gaps = like_gaps(all_gaps(report))
    rows = []
    for gap in gaps[:GAPS]:
        text = "; ".join(filter(None, (printable(gap.why), printable(gap.would_help))))
        rows.append(Row(printable(gap.what), text, commands(gap.command)))
    return rows, max(0, len(gaps) - GAPS)


def weighed(report: Report) -> list[Clues]:
    found = []
    for cause in report.weighed:
        clues = [(f"{score:+.1f}", *_line(proof, 0)[:2]) for score, proof in cause.clues]
        found.append(Clues(cause.cause, cause.confidence, cause.score, tuple(clues)))
    return found
