"""All ranks at a glance: a square each, host by host, in the colour of its state."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from whichrank.model import RankRow, Report
from whichrank.report.condense import STATES
from whichrank.report.printable import many, printable

LEAST, MOST = 8, 32_768  # ranks
WIDE = 1120  # pixels
TOLD = 64  # squares that say their rank when pointed at


def draw(report: Report) -> str:
    """SVG, or nothing where there are too few ranks for a picture to help, or far too many."""
    rows = {row.rank: row for row in report.ranks}
    world = max(report.summary.world_size or 0, max(rows, default=-1) + 1)
    if not rows or not LEAST <= world <= MOST:
        return ""
    size = 14 if world <= 512 else 9 if world <= 4096 else 5
    paths: dict[str, list[str]] = {}
    told: list[str] = []
    bottom = 0.0
    for rank, x, y in _places(rows, world, size):
        row = rows.get(rank)
        state = row.state if row is not None else "no-trace"
        paths.setdefault(state, []).append(f"M{x:g} {y:g}h{size - 2}v{size - 2}h-{size - 2}z")
        bottom = max(bottom, y + size)
        if state in STATES[:4] and row is not None and len(told) < TOLD:
            host = f" on {printable(row.host)}" if row.host else ""
            text = escape(f"rank {rank}{host}: {state}")
            told.append(
                f'<rect class="told" x="{x - 2:g}" y="{y - 2:g}" width="{size + 2}" height="{size + 2}"><title>{text}</title></rect>'
            )
    counted = ", ".join(
        many(len(paths[state]), state).removesuffix("s") for state in (*STATES, "no-trace") if state in paths
    )
    squares = "".join(f'<path class="{state}" d="{"".join(paths[state])}"/>' for state in paths)
    return (
        f'<svg class="cluster" viewBox="0 0 {WIDE} {bottom + 2:g}" role="img" '
        f'aria-label="Ranks by state: {escape(counted)}">{squares}{"".join(told)}</svg>'
    )


def _places(rows: dict[int, RankRow], world: int, size: int) -> Iterator[tuple[int, float, float]]:
    """Where each rank's square stands: hosts beside each other with a gap, or eights where hosts are not known."""
    x, y, before = 2.0, 2.0, None
    for rank in range(world):
        row = rows.get(rank)
        host = (row.host if row is not None else None) or f"\0{rank // 8}"
        if before is not None and host != before:
            x += size / 2
        ahead = 8 * size if host != before else size  # a host is not broken between lines if it fits
        if x + ahead > WIDE:
            x, y = 2.0, y + size + 4
        yield rank, x, y
        x, before = x + size, host
