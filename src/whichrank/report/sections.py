"""The sections of a terminal report below the answer. Each is empty where it has nothing to say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.text import Text

from whichrank.model import Check, Moment, Proof, Report, Verdict
from whichrank.ranges import ranks as rank_ranges
from whichrank.report.columns import GRADE_STYLE, STATE_STYLE, aligned, command, hanging, wrapped
from whichrank.report.condense import all_gaps, later, like_gaps, like_proofs, rank_groups, telling_moments
from whichrank.report.printable import clock, cut, day, lead, many, moment, printable, shorter_path

PROOFS = 8  # shown without --all
GAPS = 8


def title(text: str, note: str = "") -> Iterator[Text]:
    yield Text()
    yield Text().append(text, "bold").append(f"  {note}" if note else "", "dim")


def proof(verdict: Verdict, width: int, all: bool = False) -> Iterator[Text]:
    yield from _proofs("proof", verdict.because, width, all)


def against(verdict: Verdict, width: int, all: bool = False) -> Iterator[Text]:
    yield from _proofs("against", verdict.against, width, all)


def _proofs(name: str, proofs: Sequence[Proof], width: int, all: bool) -> Iterator[Text]:
    """Two lines each: where and what it says; below it the line itself, without what stands before its message."""
    if not proofs:
        return
    shown = like_proofs(proofs, alike_from=16 if all else 4)
    rest = shown[PROOFS:] if not all else []
    shown = shown[: len(shown) - len(rest)]
    places = [_place(item, alike, width * 3 // 8) for item, alike in shown]
    column = max(place.cell_len for place in places)
    yield from title(name)
    for place, (item, _) in zip(places, shown, strict=True):
        place.pad_right(column - place.cell_len)
        at = column + 4
        yield from _beside(Text("  ") + place + Text("  "), Text(printable(item.says)), width, at)
        if excerpt := printable(item.excerpt).strip():
            for line in wrapped(Text(lead(excerpt, width - at, 8 if all else 2), "dim"), width - at):
                yield Text(" " * at) + line
    if rest:
        yield Text(f"  … {many(len(rest), 'more line')}: --all", "dim")


def _place(item: Proof, alike: int, width: int) -> Text:
    suffix = f" (+{alike})" if alike else ""
    line = "" if item.line is None else f":{item.line}"
    path = shorter_path(printable(item.source) or "?", max(12, width - len(line) - len(suffix)))
    return Text.assemble((path, "cyan"), (line, "cyan"), (suffix, "dim"))


def _beside(start: Text, body: Text, width: int, at: int) -> Iterator[Text]:
    for place, line in enumerate(wrapped(body, width - at)):
        yield (Text(" " * at) if place else start) + line


def rank_table(report: Report, width: int, all: bool = False) -> Iterator[Text]:
    groups = rank_groups(report, per_state=64 if all else 4)
    if not groups:
        return
    yield from title("ranks")
    room = max(14, width // 3 - 6)
    rows = [
        (
            Text(group.state, STATE_STYLE.get(group.state, "")),
            Text(rank_ranges(group.ranks, room)),
            Text(group.where),
            Text(group.what, "dim" if group.state in ("waiting", "finished", "unknown") else ""),
        )
        for group in groups
    ]
    yield from aligned(rows, width)


def timeline(report: Report, width: int, all: bool = False) -> Iterator[Text]:
    if not report.timeline:
        return
    verdict = report.verdicts[0] if report.verdicts else None
    steps, left = telling_moments(report, verdict, most=200 if all else 8)
    start = next((when for step, _ in steps if (when := moment(step.at))), None)
    days = {day(step.at) for step, _ in steps if step.at}
    yield from title("timeline", days.copy().pop() if len(days) == 1 else "")
    yield from aligned([_moment(step, more, len(days) > 1, start) for step, more in steps], width)
    if left:
        yield Text(f"  … {many(left, 'more moment')}: --all", "dim")


def _moment(step: Moment, more: int, with_date: bool, start: datetime | None) -> tuple[Text, ...]:
    who = f"rank {step.rank}" if step.rank is not None else printable(step.host or "")
    return (
        Text(cut(clock(step.at, with_date), 21)),
        Text(later(step.at, start), "dim"),
        Text.assemble(cut(who, 20), (f" (+{more:,})" if more else "", "dim")),
        Text(printable(step.says)),
    )


def alternatives(report: Report, width: int, all: bool = False) -> Iterator[Text]:
    """Other verdicts, where the first is not certain."""
    others = report.verdicts[1:] if all else report.verdicts[1:4]
    if not others or (report.verdicts[0].grade == "proven" and not all):
        return
    yield from title("it may also be")
    rows = [
        (
            Text(other.cause, "bold"),
            Text(other.grade, GRADE_STYLE[other.grade]),
            Text(f"{other.confidence:.2f}", "dim"),
            Text(printable(other.says)),
        )
        for other in others
    ]
    yield from aligned(rows, width)


def to_be_sure(verdict: Verdict, width: int, all: bool = False) -> Iterator[Text]:
    """What would settle it; nothing more is needed where both answers are proven."""
    if not verdict.checks or (verdict.grade == verdict.rank_grade == "proven" and not all):
        return
    yield from title("to be sure")
    for check in verdict.checks:
        yield from _check(check, width)


def _check(check: Check, width: int) -> Iterator[Text]:
    where = f" (on {printable(check.where)})" if check.where else ""
    yield from hanging("", printable(check.says) + where, width, 4, first="  - ")
    yield from command(check.command, 4)


def missing(report: Report, width: int, all: bool = False) -> Iterator[Text]:
    gaps = like_gaps(all_gaps(report), few=20 if all else 1)
    if not gaps:
        return
    yield from title("missing")
    shown = gaps if all else gaps[:GAPS]
    for gap in shown:
        text = Text().append(printable(gap.what), "bold")
        text.append(f": {printable(gap.why)}" if gap.why else "")
        text.append(f"; {printable(gap.would_help)}" if gap.would_help else "")
        yield from hanging("", text, width, 4, first="  - ")
        yield from command(gap.command, 4)
    if len(shown) < len(gaps):
        yield Text(f"  … {len(gaps) - len(shown)} more: --all", "dim")


def weighed(report: Report, width: int) -> Iterator[Text]:
    """Every cause, with what spoke for it (+) and against it (-), in the unit that is added up."""
    if not report.weighed:
        return
    yield from title("weighed", "prior + strongest clue of each kind")
    for cause in report.weighed:
        head = Text.assemble("  ", (cause.cause.ljust(24), "bold"), f"{cause.confidence:6.3f}")
        yield head.append(f"   score {cause.score:+.1f}", "dim")
        rows = []
        for score, clue in cause.clues:
            line = "" if clue.line is None else f":{clue.line}"
            place = shorter_path(printable(clue.source), width // 3) + line
            rows.append((Text(f"  {score:+5.1f}"), Text.assemble(printable(clue.says), (f"  {place}", "cyan"))))
        yield from aligned(rows, width)
