"""Who called late, and by how much: what the plot of lateness shows, in bars and in words."""

from __future__ import annotations

from whichrank.findings.dumps.lateness import NOISE, Lateness
from whichrank.ranges import ranks as rank_ranges
from whichrank.report.html.draw import Bar
from whichrank.report.printable import lasting

LATEST = 12  # ranks that are told of in words


def says(late: Lateness) -> str:
    """The conclusion in a sentence."""
    over = f"over {late.calls:,} collectives, clocks aligned by when they ended"
    if late.what == "rank":
        who = f"Rank{'s' if len(late.ranks) > 1 else ''} {rank_ranges(late.ranks, 80)} came late again and again"
        return f"{who}, {over}."
    if late.what == "moving":
        return f"Ranks that change from call to call came late: the work is uneven, no rank is bad ({over})."
    return f"No rank was late again and again by more than the noise of {NOISE:g} s ({over})."


def bars(late: Lateness) -> list[Bar]:
    """A bar for each rank that could be compared."""
    ever = {one.rank: one for one in late.late}
    found = []
    for rank, usual in sorted(late.median_s.items()):
        one = ever.get(rank)
        text = f"rank {rank}: usually {lasting(max(0.0, usual))} after the median of its group"
        if one is not None:
            text += f"; late in {one.late} of {one.of} calls, at worst by {lasting(one.worst_s)}"
        found.append(Bar(rank, max(0.0, usual), max(0.0, usual, one.worst_s if one else 0.0), text))
    return found


def rows(late: Lateness) -> list[tuple[int, str, str, str]]:
    """The latest ranks: rank, late in how many of its calls, their median, the worst."""
    return [
        (one.rank, f"{one.late:,} of {one.of:,}", lasting(one.median_s), lasting(one.worst_s))
        for one in late.late[:LATEST]
    ]
