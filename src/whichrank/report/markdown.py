"""The report for an issue or a chat: the verdict as a short list, the proof folded away.

Log text is data here too: what GitHub would turn into links, mentions, formulas or HTML is escaped or put in code,
and raw lines stand in fences longer than any run of backticks in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from whichrank.model import Check, Proof, Report, Verdict
from whichrank.ranges import ranks as rank_ranges
from whichrank.report.condense import like_gaps, like_proofs, rank_groups, telling_moments
from whichrank.report.printable import clock, cut, printable
from whichrank.report.summary import grades, named, stopgaps, summary, where

# What was written as code; and what would become a link: an address, a mention, a reference to an issue
# ("ALLREDUCE #1842" is none), the name of an emoji.
_CODE = re.compile(
    r"(?<!`)`(?P<written>[^`]+)`(?!`)|(?:https?://|www\.)\S+|[\w.+-]*@[\w./-]+"
    r"|(?:[A-Z_]{3,} |[\w/.-]+)?#\d+|\bGH-\d+|:(?=[\w+-]*[a-z])[\w+-]+:"
)
_SPECIAL = re.compile(r"([\\`*\[\]<>~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;))")


def render(report: Report, *, all: bool = False) -> str:
    """The report as GitHub-flavoured Markdown."""
    return "\n".join(_lines(report, all)).rstrip("\n") + "\n"


def inline(text: str) -> str:
    """Text that a Markdown renderer shows as it is."""
    text = printable(text)
    parts = []
    at = 0
    for match in _CODE.finditer(text):
        parts += [_SPECIAL.sub(r"\\\1", text[at : match.start()]), code(match["written"] or match[0])]
        at = match.end()
    return "".join([*parts, _SPECIAL.sub(r"\\\1", text[at:])])


def code(text: str) -> str:
    """A code span, whatever backticks the text holds."""
    text = printable(text)
    ticks = "`" * (_longest_ticks(text) + 1)
    pad = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{ticks}{pad}{text}{pad}{ticks}" if text.strip() else ""


def fenced(lines: Sequence[str], language: str = "text", indent: str = "") -> Iterator[str]:
    """Lines as they are, in a fence that none of them can close."""
    lines = [line for text in lines for line in printable(text, keep_lines=True).splitlines()]
    fence = "`" * max(3, _longest_ticks("\n".join(lines)) + 1)
    yield f"{indent}{fence}{language}"
    yield from (indent + line for line in lines)
    yield indent + fence


def _longest_ticks(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _lines(report: Report, all: bool) -> Iterator[str]:
    if not report.verdicts:
        yield "**Nothing that could be read tells of a training job.**"
        yield from _missing(report, all)
        yield from _footnotes(report)
        return
    verdict = report.verdicts[0]
    yield f"**{inline(verdict.says).strip()}**"
    yield ""
    yield from _verdict(verdict)
    if report.incidents:
        yield from ("", "Incidents:", "")
    for incident in report.incidents:
        yield from _incident(incident)
    if shared := report.extra.get("shared"):
        yield from ("", f"What they share: {inline(str(shared['says']))} {inline(str(shared['action']))}")
    yield from _alternatives(report)
    yield from _ranks(report, all)
    yield from _proof(report, verdict, all)
    yield from _checks(verdict, all)
    yield from _missing(report, all)
    if all:
        yield from _weighed(report)
    yield ""
    yield f"{inline(report.tool or 'whichrank')}: {inline(summary(report))}"
    yield from _footnotes(report)


def _footnotes(report: Report) -> Iterator[str]:
    for note in report.footnotes:
        yield from ("", f"*{inline(note)}*")


def _verdict(verdict: Verdict) -> Iterator[str]:
    if verdict.cause == "none":
        yield f"- healthy: {verdict.grade}"
    else:
        yield f"- cause: {code(verdict.cause)} ({verdict.grade})"
        yield f"- rank: {inline(named(verdict)) or 'none named'} ({verdict.rank_grade})"
    if place := where(verdict):
        yield f"- where: {inline(place)}"
    action = verdict.action
    if action.do != "none" or action.commands:
        yield f"- now: {inline(action.says)}"
        if action.commands:
            yield from fenced(action.commands, "sh", "  ")
    yield from (f"- fix: {inline(fix)}" for fix in verdict.fix)
    yield from (f"- {label}: {inline(text)}" for label, text in stopgaps(verdict.stopgap))


def _alternatives(report: Report) -> Iterator[str]:
    """Other verdicts, where the first is not certain."""
    if report.verdicts[0].grade == "proven" or len(report.verdicts) < 2:
        return
    yield from ("", "It may also be:", "")
    for other in report.verdicts[1:4]:
        yield f"- {code(other.cause)} ({other.grade}): {inline(other.says)}"


def _incident(incident: Report) -> Iterator[str]:
    verdict = incident.verdicts[0] if incident.verdicts else None
    name = " ".join(filter(None, [incident.label, clock(incident.summary.at, with_date=True)])) or "incident"
    if verdict is None:
        yield f"- {inline(name)}: nothing could be read"
    else:
        sure = ", ".join(f"{what} {grade}" for what, grade in grades(verdict))
        yield f"- {inline(name)}: {inline(verdict.says)} {code(verdict.cause)} ({sure})"


def _ranks(report: Report, all: bool) -> Iterator[str]:
    groups = rank_groups(report, per_state=64 if all else 4)
    if not groups:
        return
    yield from ("", "| state | ranks | nodes | where |", "|---|---|---|---|")
    for group in groups:
        ranks = rank_ranges(group.ranks, None if all else 60)
        yield f"| {group.state} | {ranks} | {_cell(inline(group.where))} | {_cell(inline(group.what))} |"


def _proof(report: Report, verdict: Verdict, all: bool) -> Iterator[str]:
    shown = like_proofs(verdict.because, 16 if all else 4)
    against = like_proofs(verdict.against, 16 if all else 4)
    if not shown and not against:
        return
    yield from ("", f"<details><summary>Proof ({len(shown) + len(against)})</summary>", "")
    for item, alike in shown:
        yield from _one_proof(item, alike, "")
    for item, alike in against:
        yield from _one_proof(item, alike, "against: ")
    yield from _timeline(report, verdict, all)
    yield "</details>"


def _one_proof(item: Proof, alike: int, label: str) -> Iterator[str]:
    place = item.source + ("" if item.line is None else f":{item.line}")
    more = f" (and {alike} more like it)" if alike else ""
    yield f"{label}{inline(item.says)}, {code(place)}{more}"
    yield ""
    if item.excerpt.strip():
        yield from fenced([cut(printable(item.excerpt), 500)])
        yield ""


def _timeline(report: Report, verdict: Verdict, all: bool) -> Iterator[str]:
    steps, left = telling_moments(report, verdict, most=200 if all else 8)
    if not steps:
        return
    yield from ("| time | who | what |", "|---|---|---|")
    for step, more in steps:
        who = f"rank {step.rank}" if step.rank is not None else step.host or ""
        who += f" (+{more})" if more else ""
        yield f"| {_cell(inline(clock(step.at, with_date=True)))} | {_cell(inline(who))} | {_cell(inline(step.says))} |"
    if left:
        yield f"| | | … {left:,} more |"
    yield ""


def _checks(verdict: Verdict, all: bool) -> Iterator[str]:
    if not verdict.checks or (verdict.grade == verdict.rank_grade == "proven" and not all):
        return
    yield from ("", "To be sure:", "")
    for check in verdict.checks:
        yield from _check(check)


def _check(check: Check) -> Iterator[str]:
    where = f" (on {inline(check.where)})" if check.where else ""
    yield f"- {inline(check.says)}{where}"
    if check.command:
        yield from fenced([check.command], "sh", "  ")


def _missing(report: Report, all: bool) -> Iterator[str]:
    gaps = like_gaps(report.gaps)
    shown = gaps if all else gaps[:8]
    if not shown:
        return
    yield from ("", "Missing:", "")
    for gap in shown:
        texts = [f"{inline(gap.what)}: {inline(gap.why)}" if gap.why else inline(gap.what), inline(gap.would_help)]
        yield f"- {'; '.join(filter(None, texts))}"
        if gap.command:
            yield from fenced([gap.command], "sh", "  ")
    if len(gaps) > len(shown):
        yield f"- … {len(gaps) - len(shown)} more"


def _weighed(report: Report) -> Iterator[str]:
    if not report.weighed:
        return
    yield from ("", "<details><summary>Every cause that was weighed</summary>", "")
    yield from ("| cause | confidence | score | for (+) and against (-) |", "|---|---|---|---|")
    for cause in report.weighed:
        clues = "; ".join(f"{score:+.1f} {inline(clue.says)}" for score, clue in cause.clues)
        yield f"| {code(cause.cause)} | {cause.confidence:.3f} | {cause.score:+.1f} | {_cell(clues)} |"
    yield from ("", "</details>")
