"""Drawings as SVG text: the wait-for graph and the lateness of ranks. Everything that is put in is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from whichrank.report.html.graph import Node
from whichrank.report.printable import clock

WIDTH, HEIGHT = 270, 78  # of a box
GAP, RISE = 22, 54  # between boxes of one layer, between layers
LAYER = 6  # boxes beside each other
TITLE, BODY = 15.5, 12  # font sizes of a box's lines; a title is 14 and bold, which is wider
BUCKETS = 256  # bars of the lateness plot


@dataclass(frozen=True, slots=True)
class Box:
    node: int
    x: float
    y: float


def graph(nodes: Sequence[Node]) -> str:
    """The root on top, who waits for it below, arrows up to what is waited for."""
    boxes = _laid_out(nodes)
    width = max(box.x for box in boxes) + WIDTH + 2
    height = max(box.y for box in boxes) + HEIGHT + 2
    at = {box.node: box for box in boxes}
    lines = [
        _arrow(at[number], at[end], f"to-{nodes[end].role}" if nodes[end].depth < node.depth else "aside")
        for number, node in enumerate(nodes)
        for end in node.to
    ]
    lines.sort(key=lambda line: "aside" not in line)  # what does not lead to the root stays in the background
    drawn = [_box(box, nodes[box.node]) for box in boxes]
    return (
        f'<svg class="graph" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="group" '
        f'aria-label="Who waits for whom: {len(nodes)} nodes, what all wait for on top">'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>' + "".join(lines) + "".join(drawn) + "</svg>"
    )


def _laid_out(nodes: Sequence[Node]) -> list[Box]:
    """Layers by depth; a layer with many boxes takes several rows. Boxes stand near the mean of what they wait for."""
    layers: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        layers.setdefault(node.depth, []).append(number)
    rows: list[list[int]] = []
    place: dict[int, int] = {}
    for depth in sorted(layers):
        layer = sorted(
            layers[depth], key=lambda number: _mean([place[end] for end in nodes[number].to if end in place])
        )
        place.update({number: at for at, number in enumerate(layer)})
        rows += [layer[start : start + LAYER] for start in range(0, len(layer), LAYER)]
    widest = max(len(row) for row in rows)
    full = widest * WIDTH + (widest - 1) * GAP
    return [
        Box(
            number,
            1 + (full - len(row) * WIDTH - (len(row) - 1) * GAP) / 2 + at * (WIDTH + GAP),
            1 + y * (HEIGHT + RISE),
        )
        for y, row in enumerate(rows)
        for at, number in enumerate(row)
    ]


def _mean(places: Sequence[int]) -> float:
    return sum(places) / len(places) if places else 0.0


def _arrow(start: Box, end: Box, kind: str) -> str:
    x1, x2 = start.x + WIDTH / 2, end.x + WIDTH / 2
    if end.y < start.y:
        y1, y2 = start.y, end.y + HEIGHT + 2
        path = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {(y1 + y2) / 2:.0f} {x2:.0f} {(y1 + y2) / 2:.0f} {x2:.0f} {y2:.0f}"
    elif end.y == start.y:  # beside each other: over the top
        y = start.y
        path = f"M{x1:.0f} {y:.0f}C{x1:.0f} {y - 30:.0f} {x2:.0f} {y - 30:.0f} {x2:.0f} {y - 2:.0f}"
    else:
        y1, y2 = start.y + HEIGHT, end.y - 2
        path = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {(y1 + y2) / 2:.0f} {x2:.0f} {(y1 + y2) / 2:.0f} {x2:.0f} {y2:.0f}"
    return f'<path class="edge {kind}" d="{path}" marker-end="url(#arrow)"/>'


_LABEL = {"culprit": "culprit", "root": "all waiting ends here", "no_dump": "no dump", "waiting": "waits"}


def _box(box: Box, node: Node) -> str:
    since = f"since {clock(node.since)}" if node.since and node.role != "no_dump" else ""
    if node.role in ("culprit", "root") and node.what.startswith("made no"):
        since = f"last call at {clock(node.since)}" if node.since else ""
    first, second = _two_lines(node.what)
    texts = [
        f'<text class="title" x="12" y="23">{escape(_cut(node.title, TITLE))}</text>',
        f'<text class="what" x="12" y="42">{escape(first)}</text>',
        f'<text class="what" x="12" y="57">{escape(second or since)}</text>',
    ]
    if second and since:
        texts.append(f'<text class="what" x="12" y="72">{escape(since)}</text>')
    whole = ". ".join(filter(None, (f"{_LABEL[node.role]}: {node.title}", node.what, since)))
    return (
        f'<g class="node {node.role}" transform="translate({box.x:.0f} {box.y:.0f})" tabindex="0" role="button" '
        f'data-node="{box.node}" aria-label="{escape(whole)}"><title>{escape(whole)}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6"/>' + "".join(texts) + "</g>"
    )


def _two_lines(text: str) -> tuple[str, str]:
    end = _fitting(text, BODY)
    if end == len(text):
        return text, ""
    at = text.rfind(" ", 0, end + 1)
    if at < end // 3:  # long names are broken where they have an underscore
        at = text.rfind("_", 0, end - 1) + 1 or end
    return text[:at].rstrip(), _cut(text[at:].lstrip(), BODY)


def _cut(text: str, size: float) -> str:
    end = _fitting(text, size)
    return text if end == len(text) else text[: max(1, end - 1)].rstrip() + "…"


def _fitting(text: str, size: float) -> int:
    """How many characters fit on a line of a box. Fonts differ: these are widths of a wide one, in parts of its size."""
    room = (WIDTH - 22) / size
    for at, character in enumerate(text):
        wide = (
            1.0
            if character in "mwMW@" or character > "\u2e7f"
            else 0.76
            if character.isupper() or character == "_"
            else 0.59
        )
        room -= 0.34 if character in " .,:;ijl'|!()[]" else wide
        if room < 0:
            return at
    return len(text)


@dataclass(frozen=True, slots=True)
class Bar:
    """How late a rank called, in seconds after the median of its group: usually, and at worst. says: the same in words."""

    rank: int
    usual_s: float
    worst_s: float
    says: str


def lateness(rows: Sequence[Bar], blamed: frozenset[int] = frozenset(), noise_s: float = 0.0) -> str:
    """A bar a rank: what is usual solid, the worst pale; where there are many ranks, a bar is several at their worst.

    noise_s: what lies below is not told apart from noise.
    """
    size = max(1, -(-len(rows) // BUCKETS))
    buckets = [rows[start : start + size] for start in range(0, len(rows), size)]
    top = max((row.worst_s for row in rows), default=0.0) or 1.0
    width, height, left, bottom = 900, 220, 60, 26
    step = (width - left) / len(buckets) if buckets else 1.0

    def y(seconds: float) -> float:
        return 10 + (height - 10) * (1 - max(0.0, seconds) / top)

    parts = []
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        label = f"{top * part:.3g} s"
        parts.append(
            f'<line class="rule" x1="{left}" x2="{width}" y1="{y(top * part):.1f}" y2="{y(top * part):.1f}"/>'
            f'<text class="what" text-anchor="end" x="{left - 8}" y="{y(top * part) + 4:.1f}">{label}</text>'
        )
    for at, bucket in enumerate(buckets):
        latest = max(bucket, key=lambda row: row.worst_s)
        kind = "culprit" if any(row.rank in blamed for row in bucket) else ""
        says = latest.says if size == 1 else f"ranks {bucket[0].rank} to {bucket[-1].rank}; the latest: {latest.says}"
        x, wide = left + at * step, max(1.0, step * 0.8)
        parts.append(f'<g class="late {kind}"><title>{escape(says)}</title>')
        for name, seconds in (("worst", latest.worst_s), ("usual", max(row.usual_s for row in bucket))):
            top_of = y(seconds)
            parts.append(
                f'<rect class="{name}" x="{x:.1f}" width="{wide:.1f}" y="{top_of:.1f}" height="{height - top_of:.1f}"/>'
            )
        parts.append("</g>")
        if at % max(1, len(buckets) // 16) == 0:
            parts.append(f'<text class="what" x="{x:.1f}" y="{height + 18}">{bucket[0].rank}</text>')
    if 0 < noise_s < top:
        parts.append(f'<line class="noise" x1="{left}" x2="{width}" y1="{y(noise_s):.1f}" y2="{y(noise_s):.1f}"/>')
    return (
        f'<svg class="plot" viewBox="0 0 {width} {height + bottom}" role="img" '
        f'aria-label="How late each rank came to its collectives, up to {top:.3g} s">{"".join(parts)}</svg>'
    )
