"""Drawings of a history as SVG text: incidents over time, and who was there when somebody was blamed.

Few incidents are a mark each, which leads to its row in the table; many are counted into cells. Everything that is put
in is escaped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from html import escape
from typing import Any

import numpy as np

from whichrank.history.views import YEAR, Mark, View, name, says, when
from whichrank.report.printable import cut, many

WIDE, LEFT, HIGH, TOP, BOTTOM = 1100, 170, 27, 8, 30
MOST = 400  # marks; more are counted
CELLS = 96  # columns of counted ones
LABEL = 22  # characters
HOSTS = 20  # of the picture of who was there
APART = 11.0  # pixels between the middles of two marks
STEPS = (
    300,
    900,
    1800,
    3600,
    3 * 3600,
    6 * 3600,
    12 * 3600,
    86400,
    2 * 86400,
    7 * 86400,
    14 * 86400,
    30 * 86400,
    91 * 86400,
    182 * 86400,
    365 * 86400,
)


def over_time(view: View, patterns: Sequence[str], linked: Collection[int] = ()) -> str:
    """A view with time across. patterns: their names; linked: the incidents that have a row in the table."""
    height = TOP + HIGH * view.rows + BOTTOM
    begin, end = _span(view.marks)
    body = [_rule(TOP + HIGH * down, text) for down, text in view.labels]
    body += _ticks(begin, end, TOP + HIGH * view.rows)

    def across(at: float) -> float:
        return LEFT + 14 + (WIDE - LEFT - 28) * (at - begin) / (end - begin)

    if len(view.marks) <= MOST:
        body += _marks(view, across, linked)
    else:
        body += _cells(view, begin, end, patterns)
    told = f"Incidents over time by {view.title.lower()}: {many(len(view.marks), 'incident')}"
    return (
        f'<svg class="plot times" viewBox="0 0 {WIDE} {height}" role="group" aria-label="{escape(told)}">'
        + "".join(body)
        + "</svg>"
    )


def _span(marks: Sequence[Mark]) -> tuple[float, float]:
    times = [mark.at for mark in marks]
    begin, end = min(times), max(times)
    least = 3600.0
    return (begin, end) if end - begin >= least else ((begin + end - least) / 2, (begin + end + least) / 2)


def _rule(y: float, text: str) -> str:
    label = cut(text, LABEL)
    whole = f"<title>{escape(text)}</title>" if label != text else ""
    return (
        f'<line class="rule" x1="{LEFT}" x2="{WIDE}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="what" text-anchor="end" x="{LEFT - 10}" y="{y + 4:.1f}">{whole}{escape(label)}</text>'
    )


def _ticks(begin: float, end: float, bottom: float) -> Iterator[str]:
    """At round times: hours, days, months, years."""
    step = next((step for step in STEPS if (end - begin) / step <= 9), STEPS[-1] * 2)
    first = datetime.fromtimestamp(begin, timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    at = first
    while at.timestamp() <= end:
        x = LEFT + 14 + (WIDE - LEFT - 28) * (at.timestamp() - begin) / (end - begin)
        if x >= LEFT + 14:
            dated = begin >= 2 * YEAR
            text = at.strftime(
                "%H:%M"
                if step < 86400 and (at.hour or at.minute or not dated)
                else "%d %b"
                if end - begin < YEAR
                else "%b %Y"
            )
            if begin < 2 * YEAR and step >= 86400:
                text = ""
            yield (
                f'<line class="rule" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
                f'<text class="what" text-anchor="middle" x="{x:.1f}" y="{bottom + 19}">{text.lstrip("0") if "%" not in text and " " in text else text}</text>'
            )
        at += timedelta(seconds=step)


def _marks(view: View, across: Any, linked: Collection[int]) -> Iterator[str]:
    """The marks in time order: a disc, a square, a diamond for those of a pattern, a ring for others."""
    placed: list[tuple[float, float]] = []
    for number, mark in enumerate(sorted(view.marks, key=lambda mark: (mark.at, mark.row))):
        x, y = across(mark.at), TOP + HIGH * mark.row
        near = [other for other in placed[-24:] if abs(other[0] - x) < APART and abs(other[1] - y) < HIGH * 0.45]
        if view.whole and near:  # beside those that hide it
            y += (7, -7, 3.5, -3.5)[(len(near) - 1) % 4]
        placed.append((x, TOP + HIGH * mark.row))
        shape = _shape(mark.pattern, x, y)
        stop = "0" if number == 0 else "-1"
        inner = f"<title>{escape(says(mark.incident))}</title>{shape}"
        if mark.place in linked:
            yield f'<a class="mark" href="#i{mark.place}" tabindex="{stop}">{inner}</a>'
        else:
            yield f'<g class="mark" tabindex="{stop}" role="img">{inner}</g>'


def _shape(pattern: int, x: float, y: float) -> str:
    if pattern == 0:
        return f'<circle class="p0" cx="{x:.1f}" cy="{y:.1f}" r="6"/>'
    if pattern == 1:
        return f'<rect class="p1" x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10"/>'
    if pattern > 1:
        return f'<path class="p2" d="M{x:.1f} {y - 6.5:.1f}l6.5 6.5l-6.5 6.5l-6.5 -6.5z"/>'
    return f'<circle class="other" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'


def key(pattern: int) -> str:
    """The mark of a pattern for the legend."""
    return f'<svg class="key" viewBox="0 0 16 16" aria-hidden="true">{_shape(pattern, 8, 8)}</svg>'


def _cells(view: View, begin: float, end: float, patterns: Sequence[str]) -> Iterator[str]:
    """Counted into cells: the fuller, the darker; in the colour of the pattern that has most of it."""
    rows = view.rows if view.whole else 2 * view.rows
    high = HIGH * view.rows / rows
    wide = (WIDE - LEFT) / CELLS
    at = np.array([mark.at for mark in view.marks])
    column_of = np.minimum(CELLS - 1, (CELLS * (at - begin) / (end - begin)).astype(np.int64))
    row_of = np.clip((np.array([mark.row for mark in view.marks]) * rows / view.rows).astype(np.int64), 0, rows - 1)
    pattern_of = np.array([mark.pattern for mark in view.marks])
    full = np.bincount(row_of * CELLS + column_of, minlength=rows * CELLS).reshape(rows, CELLS)
    own = [
        np.bincount((row_of * CELLS + column_of)[pattern_of == number], minlength=rows * CELLS).reshape(rows, CELLS)
        for number in range(len(patterns))
    ]
    named = rows - 1 if view.rest else rows  # all others together are no measure for one of them
    most = max(1, int(full[:named].max(initial=0)))
    for number, (row, column) in enumerate(np.argwhere(full).tolist()):
        count = int(full[row, column])
        of = [int(counts[row, column]) for counts in own]
        pattern = next((place for place, hits in enumerate(of) if hits * 2 > count), -1)
        since, until = (when(begin + (end - begin) * (column + more) / CELLS) for more in (0, 1))
        label = f"{view.labels[row][1]}, " if view.whole else ""
        mine = [f"{hits:,} of {patterns[place]}" for place, hits in enumerate(of) if hits]
        told = f"{label}{since} to {until}: {many(count, 'incident')}" + (f", {', '.join(mine)}" if mine else "")
        dark = 0.15 + 0.85 * min(1.0, count / most) ** 0.6
        stop = "0" if number == 0 else "-1"
        yield (
            f'<g class="mark" tabindex="{stop}" role="img"><title>{escape(told)}</title>'
            f'<rect class="{"c" if pattern < 0 else f"p{min(pattern, 2)}"}" x="{LEFT + column * wide:.1f}" '
            f'y="{TOP + row * high + 1:.1f}" width="{wide - 1:.1f}" height="{high - 2:.1f}" opacity="{dark:.2f}"/></g>'
        )


def presence(heat: dict[str, Any], places: Sequence[int], linked: Collection[int]) -> str:
    """Nodes down, incidents across: blamed, took part, was not there. "" where placements are not known.

    heat: as `answer.heat` makes it; places: those of its incidents in the history.
    """
    hosts, cells, incidents = heat["hosts"][:HOSTS], heat["cells"][:HOSTS], heat["incidents"]
    if not hosts or not any(cell == 1 for row in cells for cell in row):
        return ""
    size = max(12.0, min(26.0, (WIDE - LEFT) / len(incidents)))
    height = TOP + size * len(hosts) + 8
    body = []
    for row, host in enumerate(hosts):
        y = TOP + size * row
        label = cut(name(host), LABEL)
        body.append(
            f'<text class="what" text-anchor="end" x="{LEFT - 10}" y="{y + size / 2 + 4:.1f}">{escape(label)}</text>'
        )
        for column, (cell, one) in enumerate(zip(cells[row], incidents, strict=True)):
            x, inner = LEFT + size * column, size - 2
            where = f'x="{x:.1f}" y="{y:.1f}" width="{inner:.1f}" height="{inner:.1f}" rx="2"'
            if cell != 2:
                body.append(f'<rect class="{"there" if cell else "away"}" {where}/>')
                continue
            told = escape(f"{when(one['at'])}: {name(host)} blamed for {one['cause']}")
            shape = f'<title>{told}</title><rect class="blamed" {where}/><circle class="dot" cx="{x + inner / 2:.1f}" cy="{y + inner / 2:.1f}" r="{size / 6:.1f}"/>'
            place = places[column]
            body.append(f'<a href="#i{place}" tabindex="-1">{shape}</a>' if place in linked else shape)
    width = max(LEFT + size * len(incidents) + 4, 420)
    told = f"Who took part in {many(len(incidents), 'incident')}, and who was blamed"
    return (
        f'<svg class="plot presence" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="group" '
        f'aria-label="{escape(told)}">{"".join(body)}</svg>'
    )
