"""The answer over many runs as one page that needs nothing else: the conclusion first, pictures, the incidents.

It shares its frame with the page of a diagnosis (report/html/frame.py). Names come from logs and are hostile: the
template escapes all of it, drawings are escaped where they are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from whichrank import __version__
from whichrank.history import pictures, words
from whichrank.history.answer import WIDEST, Why, heat
from whichrank.history.sources import href, short
from whichrank.history.views import YEAR, Point, View, blame, name, points, views, when, who
from whichrank.history.why import FEWEST, SURE, Pattern
from whichrank.report.html import frame
from whichrank.report.html.sections import Pill, Row
from whichrank.report.printable import cut, many, printable

TABLE = 200  # incidents in the table
WEIGHED = 12
SAYS = 300  # characters of a verdict's sentence


class Weighed(NamedTuple):
    """One candidate: its posterior as a share, "sure", "likely" or ""; `answer`: number of the pattern, -1 for none."""

    kind: str
    name: str
    hits: str
    expected: str
    posterior: float
    grade: str


class Happened(NamedTuple):
    place: int
    pattern: int
    at: str
    who: str
    cause: str
    grade: str
    what: str
    says: str
    source: str
    short: str
    href: str
    run: str


def render(why: Why, base: Path | None = None) -> bytes:
    """The page in UTF-8. base: the folder that it will lie in; links to evidence that is there are relative to it."""
    from markupsafe import Markup

    told = points(why)
    best = why.patterns[0] if why.patterns else None
    shown, left = _chosen(told)
    linked = {point.place for point in shown}
    names = [name(pattern.name) for pattern in why.patterns]
    drawn = [(view, Markup(pictures.over_time(view, names, linked)), _untold(view)) for view in views(told)]
    there = heat(why.history) if len(told) <= WIDEST else None  # of many the last few tell little
    labels = {run.id: run.label for run in why.history.runs}
    return frame.render(
        {
            "views": drawn,
            "first": _first(why, drawn),
            "legend": [(Markup(pictures.key(number)), text) for number, text in enumerate(names)] if names else [],
            "plain": Markup(pictures.key(-1)) if not all(point.pattern >= 0 for point in told) else "",
            "counted": len(told) > pictures.MOST,
            "presence": Markup(pictures.presence(there, [point.place for point in told], linked)) if there else "",
            "blame": blame(why.history.incidents),
            "weighed": _weighed(why),
            "table": [_happened(point, base, labels) for point in shown],
            "total": len(told),
            "left": left,
            "keys": {number: Markup(pictures.key(number)) for number in range(-1, len(names))},
        },
        title=printable(words.title(best, why.findings) if best else words.nothing_title(why.findings)),
        summary=_summary(why, told),
        tool=f"whichrank {__version__}",
        pills=_pills(why),
        answer=_answer(why),
        template="why.html.j2",
        package=__package__ or "whichrank.history",
        style="why.css",
        script="why.js",
    )


def _summary(why: Why, told: Sequence[Point]) -> str:
    found = why.findings
    seen = f"{many(found.incidents, 'incident')} in {many(found.runs, 'run')} on {many(found.hosts, 'node')}"
    times = [point.incident.at for point in told if point.incident.at is not None and point.incident.at > 2 * YEAR]
    if times:
        seen += f", {when(min(times))[:10]} to {when(max(times))[:10]}"
    if found.coalesced:
        seen += f"; {many(found.coalesced, 'repeat')} of the same failure counted once"
    return seen


def _pills(why: Why) -> list[Pill]:
    if not why.patterns:
        return [Pill("", "undecided")]
    best = why.patterns[0]
    if best.confounded:
        return [Pill(_kind(best), "confounded")]
    return [Pill(f"{_kind(best)}, {best.posterior:.0%}", "sure" if best.posterior >= SURE else "likely")]


def _kind(pattern: Pattern) -> str:
    return (pattern.domain or pattern.kind).replace("_", " ")


def _answer(why: Why) -> list[Row]:
    best = why.patterns[0] if why.patterns else None
    rows = [Row("why", printable(why.says))] if best or why.findings.incidents >= FEWEST else []
    rows.append(Row("now", printable(why.action), why.commands))
    if best and best.confounded:
        rows.append(
            Row(
                "confounded",
                printable(f"{best.name} and {' and '.join(best.confounded)} were never apart in these runs."),
            )
        )
    if best and best.also:
        rows.append(Row("shared too", printable(", ".join(best.also))))
    rows += [
        Row("also", printable(f"{words.says(pattern, why.findings)} {words.action(pattern)}"))
        for pattern in why.patterns[1:]
    ]
    return rows


def _first(why: Why, drawn: Sequence[tuple[View, Any, str]]) -> str:
    """The view that shows the answer best."""
    of = {
        "rank": "rank",
        "role": "rank",
        "local_rank": "rank",
        "shard": "data",
        "sample": "data",
        "step": "step",
        "window": "hour",
    }
    wanted = of.get(why.patterns[0].kind, "node") if why.patterns else "node"
    names = [view.name for view, _, _ in drawn]
    return wanted if wanted in names else names[0] if names else ""


def _untold(view: View) -> str:
    return (
        f"{many(view.untold, 'incident')} without a known {view.title.lower()} or time: not drawn."
        if view.untold
        else ""
    )


def _weighed(why: Why) -> list[Weighed]:
    found: dict[tuple[str, str], Weighed] = {}
    for pattern in (*why.patterns, *why.findings.weighed):
        expected = f"{pattern.expected:.1f}" if pattern.expected < 10 else f"{pattern.expected:,.0f}"
        answer = pattern in why.patterns
        found.setdefault((pattern.kind, pattern.name), Weighed(
            _kind(pattern), name(pattern.name), f"{pattern.hits:,} of {pattern.of:,}", expected, pattern.posterior,
            "sure" if answer and pattern.posterior >= SURE else "likely" if answer else "",
        ))  # fmt: skip
    rows = list(found.values())
    return [row for number, row in enumerate(rows) if number < 5 or row.posterior >= 0.005][:WEIGHED]


def _chosen(told: Sequence[Point]) -> tuple[list[Point], int]:
    """Those of the table, the latest first: where there are too many, two thirds are of patterns."""
    if len(told) <= TABLE:
        return list(reversed(told)), 0
    mine = [point for point in told if point.pattern >= 0][-TABLE * 2 // 3 :]
    others = [point for point in told if point.pattern < 0][-(TABLE - len(mine)) :]
    shown = sorted((*mine, *others), key=lambda point: point.incident.order, reverse=True)
    return shown, len(told) - len(shown)


def _happened(point: Point, base: Path | None, labels: dict[str, str]) -> Happened:
    one = point.incident
    parts = [
        one.sample,
        one.shard,
        f"step {one.step}" if one.step is not None else None,
        one.site,
        one.service,
        one.gpu,
    ]
    return Happened(
        point.place, point.pattern, when(one.at), who(one), one.cause, one.grade,
        ", ".join(name(part) for part in parts if part), cut(printable(one.says), SAYS),
        printable(one.source or ""), name(short(one.source or "")), href(one.source, base), name(labels.get(one.run, "")),
    )  # fmt: skip
