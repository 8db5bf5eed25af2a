"""The report for a terminal: five lines that answer, then what proves them.

Read by someone tired: the answer first, one thing to do now, everything else below it. Without colour the text is
the same and pastes as it is. Log text is made printable before it gets here, and is never read as markup.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from whichrank.model import Report, Verdict
from whichrank.report import sections
from whichrank.report.columns import GRADE_STYLE, aligned, command, hanging, show, wrapped
from whichrank.report.printable import clock, printable
from whichrank.report.summary import grades, stopgaps, summary, where

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST, WIDEST = 50, 120
INCIDENTS = 8  # shown without --all


def render(report: Report, console: Console, *, width: int | None = None, all: bool = False) -> None:
    """Print a report. `width` defaults to the console's, within what reads well."""
    show(lines(report, width or min(WIDEST, console.width), all=all), console)


def plain(report: Report, width: int = 80, *, all: bool = False) -> str:
    """The report as text without colours: for files, pipes and chats."""
    return "".join(line.plain.rstrip() + "\n" for line in lines(report, width, all=all))


def lines(report: Report, width: int = 80, *, all: bool = False) -> Iterator[Text]:
    """The report, line by line."""
    width = max(NARROWEST, width)
    yield from wrapped(Text(summary(report), "dim"), width)
    yield Text()
    if not report.verdicts:
        yield from hanging("", Text("Nothing that could be read tells of a training job.", "bold"), width, 2)
        yield from sections.missing(report, width)
        yield from footnotes(report, width)
        return
    verdict = report.verdicts[0]
    yield from headline(verdict, width)
    yield from answer(verdict, width)
    yield from incidents(report, width, all)
    for section in (
        sections.proof(verdict, width, all),
        sections.against(verdict, width, all),
        sections.rank_table(report, width, all),
        sections.timeline(report, width, all),
        sections.alternatives(report, width, all),
        sections.to_be_sure(verdict, width, all),
        sections.missing(report, width, all),
        sections.weighed(report, width) if all else (),
        footer(report, width, all),
        footnotes(report, width),
    ):
        yield from section


def headline(verdict: Verdict, width: int) -> Iterator[Text]:
    """What happened, with how sure that is at the right."""
    sure = [
        Text.assemble((f"{name}: ".rjust(7), "dim"), (grade, GRADE_STYLE[grade])) for name, grade in grades(verdict)
    ]
    right = max(grade.cell_len for grade in sure)
    left = list(wrapped(Text(printable(verdict.says), "bold"), width - right - 4))
    for place in range(max(len(left), len(sure))):
        line = Text("  ") + (left[place] if place < len(left) else Text())
        if place < len(sure):
            line.pad_right(width - right - line.cell_len)
            line += sure[place]
        yield line


def answer(verdict: Verdict, width: int) -> Iterator[Text]:
    """Where (if no rank can be named), what to do now, what for good, what not to do."""
    action = verdict.action
    rows: list[tuple[str, str]] = []
    if place := where(verdict):
        rows.append(("where", place))
    if action.do != "none" or action.commands:
        rows.append(("now", printable(action.says)))
    rows += [("" if number else "fix", printable(fix)) for number, fix in enumerate(verdict.fix)]
    rows += stopgaps(verdict.stopgap)
    if rows:
        yield Text()
    indent = max((len(label) for label, _ in rows), default=0) + 4
    for label, text in rows:
        yield from hanging(label, text, width, indent, label_style="bold cyan" if label == "now" else "bold")
        for line in action.commands if label == "now" else ():
            yield from command(line, indent)


def incidents(report: Report, width: int, all: bool) -> Iterator[Text]:
    """One short block for each incident or attempt."""
    if not report.incidents:
        return
    yield Text()
    yield Text("incidents", "bold")
    shown = report.incidents if all else report.incidents[:INCIDENTS]
    for number, incident in enumerate(shown, 1):
        yield from _incident(number, incident, width)
    if len(shown) < len(report.incidents):
        yield Text(f"  … {len(report.incidents) - len(shown)} more: --all", "dim")
    if shared := report.extra.get("shared"):
        yield from sections.title("what they share")
        yield from hanging("", printable(str(shared["says"])), width, 2)
        yield from hanging("", printable(str(shared["action"])), width, 2)


def _incident(number: int, incident: Report, width: int) -> Iterator[Text]:
    verdict = incident.verdicts[0] if incident.verdicts else None
    title = Text.assemble(f"  {number}  ", (printable(incident.label) or f"incident {number}", "bold"))
    if incident.summary.at:
        title.append(f"  {clock(incident.summary.at, with_date=True)}", "dim")
    if verdict is None:
        yield title + Text("  nothing could be read")
        return
    for name, grade in grades(verdict):
        title.append(f"  {verdict.cause if name == 'cause' else name}: ", "dim").append(grade, GRADE_STYLE[grade])
    yield from hanging("", title[5:], width, 5, first=f"  {number}  ")
    yield from hanging("", printable(verdict.says), width, 5)


def footer(report: Report, width: int, all: bool) -> Iterator[Text]:
    """Where to read more."""
    verdict = report.verdicts[0]
    hints = []
    if verdict.cause not in ("none", "undecided"):
        hints.append((f"whichrank explain {verdict.cause}", "what this cause is and how to prove it"))
    if report.weighed and not all:
        hints.append(("--all", "every cause that was weighed, and all proof"))
    if hints:
        yield from sections.title("more")
        yield from aligned([(Text(name, "dim"), Text(text, "dim")) for name, text in hints], width)


def footnotes(report: Report, width: int) -> Iterator[Text]:
    """What a reader has to know of the report itself."""
    for note in report.footnotes:
        yield Text()
        yield from wrapped(Text(printable(note), "dim"), width)
