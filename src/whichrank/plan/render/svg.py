"""Plots as SVG, to stand inside a page: curves, stacked bars, schedules. No scripts, no outside resources.

Colours are CSS variables of the page (--c0 …), so that they follow a dark or a light theme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from whichrank.plan.answer import Bars, Chart, Lines, Schedule
from whichrank.plan.quantities import digits

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 28, 44
KINDS = {"F": 0, "B": 2, "W": 3}
NAMES = {"F": "forward", "B": "backward", "W": "weights"}


def draw(chart: Chart) -> str:
    """An <svg> element with a title that screen readers read."""
    if isinstance(chart, Lines):
        return _lines(chart)
    if isinstance(chart, Bars):
        return _bars(chart)
    return _schedule(chart)


def _svg(title: str, height: float, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title, quote=True)}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>{"".join(body)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "label") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def ticks(most: float, count: int = 5) -> list[float]:
    """Round numbers from 0 to at least `most`."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw * 0.999)
    return [step * i for i in range(math.ceil(most / step * 0.999) + 1)]


def _tick(value: float) -> str:
    text = digits(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _lines(chart: Lines) -> str:
    points = [point for series in chart.series for point in series.points]
    xs = sorted({x for x, _ in points})
    marks = ticks(max(y for _, y in points))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(x: float) -> float:
        low, high, at = (math.log2(v) if chart.log else v for v in (xs[0], xs[-1], x))
        return LEFT + (right - LEFT) * ((at - low) / (high - low) if high > low else 0.5)

    def up(y: float) -> float:
        return bottom - (bottom - TOP) * y / marks[-1]

    body = [_line(LEFT, up(y), right, up(y), "grid") + _text(LEFT - 8, up(y) + 4, _tick(y), "end") for y in marks]
    body += [_text(across(x), bottom + 18, _tick(x), "middle") for x in xs]
    body.append(_text((LEFT + right) / 2, HEIGHT - 6, chart.x, "middle"))
    body.append(_text(12, TOP - 14, chart.y))
    ends = []
    for place, series in enumerate(chart.series):
        at: int | str = "x" if series.faint else place
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in series.points)
        body.append(f'<polyline points="{path}" class="curve s{at}"/>')
        body += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="2.5" class="dot f{at}"/>' for x, y in series.points]
        ends.append((up(series.points[-1][1]), at, series.name))
    below = -math.inf
    for y, at, name in sorted(ends):  # names beside the curves' ends, moved apart
        below = max(y + 4, below + 14)
        body.append(f'<text x="{right + 10}" y="{below:.1f}" class="label t{at}">{escape(name)}</text>')
    return _svg(chart.title, HEIGHT, body)


def _bars(chart: Bars) -> str:
    names = list(dict.fromkeys(name for _, parts in chart.rows for name, _ in parts))
    totals = [sum(value for _, value in parts) for _, parts in chart.rows]
    marks = ticks(max([*totals, chart.limit or 0.0]))
    left, right, row = 110, WIDTH - 20, 30
    legend = 20 * -(-len(names) // 3) if len(names) > 1 else 0
    height = TOP + row * len(chart.rows) + 38 + legend

    def across(value: float) -> float:
        return left + (right - left) * value / marks[-1]

    bottom = TOP + row * len(chart.rows)
    body = [
        _line(across(mark), TOP, across(mark), bottom, "grid") + _text(across(mark), bottom + 16, _tick(mark), "middle")
        for mark in marks
    ]
    for at, (label, parts) in enumerate(chart.rows):
        top, begin = TOP + row * at + 5, 0.0
        body.append(_text(left - 8, top + 14, label, "end"))
        for name, value in parts:
            where = f'x="{across(begin):.1f}" y="{top}" width="{across(value) - left:.1f}" height="{row - 10}"'
            told = f"<title>{escape(label)}, {escape(name)}: {digits(value)} {escape(chart.unit)}</title>"
            body.append(f'<rect {where} class="f{names.index(name)}">{told}</rect>')
            begin += value
    if chart.limit is not None:
        body.append(_line(across(chart.limit), TOP - 6, across(chart.limit), bottom, "limit"))
    for at, name in enumerate(names if legend else []):
        x, y = left + 200 * (at % 3), bottom + 38 + 20 * (at // 3)
        body.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" class="f{at}"/>' + _text(x + 15, y, name))
    return _svg(chart.title, height, body)


def _schedule(chart: Schedule) -> str:
    end = max((block.end for block in chart.blocks), default=1.0)
    row = 22
    left, right = 70, WIDTH - 10
    height = TOP + row * len(chart.lanes) + 30
    body = [_text(left - 8, TOP + row * at + 15, lane, "end") for at, lane in enumerate(chart.lanes)]
    for block in chart.blocks:
        x = left + (right - left) * block.start / end
        width = (right - left) * (block.end - block.start) / end
        y = TOP + row * block.lane + 2
        told = f"<title>{NAMES[block.kind]} of microbatch {escape(block.label)}</title>"
        where = f'x="{x:.2f}" y="{y}" width="{width:.2f}" height="{row - 4}"'
        body.append(f'<rect {where} class="block f{KINDS[block.kind]}">{told}</rect>')
        if width > 7 * len(block.label):
            body.append(_text(x + width / 2, y + 13, block.label, "middle", "inside"))
    for at, kind in enumerate("FBW"):
        x = left + 110 * at
        body.append(
            f'<rect x="{x}" y="{height - 20}" width="10" height="10" class="f{KINDS[kind]}"/>'
            + _text(x + 15, height - 11, NAMES[kind])
        )
    return _svg(chart.title, height, body)
