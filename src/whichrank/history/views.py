"""What the page draws of a history: each incident in time against its node, rank, data, step and hour of the day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import NamedTuple

from whichrank.history.answer import Why
from whichrank.history.incident import Incident
from whichrank.report.printable import cut, many, printable

ROWS = 12  # nodes, ranks … with a row of their own
YEAR = 365 * 86400.0  # before that: a time of day, of a day that nobody told
LONGEST = 80  # characters of a name


class Mark(NamedTuple):
    """An incident in a picture. row: how far down, in rows; pattern: which of the answer's patterns has it, -1 for none."""

    at: float
    row: float
    pattern: int
    place: int  # in the history
    incident: Incident


@dataclass(frozen=True, slots=True)
class View:
    """labels: (how far down in rows, text); `rows`: how many there are; `whole`: marks stand in rows, not between them;
    `rest`: the last row is of all others.

    untold: incidents of which this is not known, or no time.
    """

    name: str
    title: str
    labels: tuple[tuple[float, str], ...]
    rows: int
    marks: tuple[Mark, ...]
    untold: int
    whole: bool = True
    rest: bool = False


class Point(NamedTuple):
    place: int
    incident: Incident
    pattern: int


def points(why: Why) -> list[Point]:
    """The incidents in time order, each with the first pattern that explains it."""
    of = {place: number for number, pattern in reversed(list(enumerate(why.patterns))) for place in pattern.incidents}
    found = [
        Point(place, one, of.get(place, -1)) for place, one in enumerate(why.history.incidents) if one.cause != "none"
    ]
    return sorted(found, key=lambda point: point.incident.order)


def says(one: Incident) -> str:
    """ "2026-03-02 14:10, rank 12 on hx07: gpu_fault, reading part_00417.bin"."""
    data = name(one.sample or one.shard or "")
    parts = [f"reading {data}" if data else "", f"step {one.step}" if one.step is not None else ""]
    told = ", ".join(filter(None, [one.cause, *parts]))
    return f"{when(one.at)}, {who(one)}: {told}"


def when(at: float | None) -> str:
    if at is None:
        return "no time"
    found = datetime.fromtimestamp(at, timezone.utc)
    return found.strftime("%H:%M" if at < YEAR * 2 else "%Y-%m-%d %H:%M")


def who(one: Incident) -> str:
    rank = f"rank {one.rank}" if one.rank is not None else ""
    return " ".join(filter(None, [rank, f"on {name(one.host)}" if one.host and rank else name(one.host or "")])) or (
        "nobody named"
    )


def name(text: str) -> str:
    return cut(printable(text), LONGEST)


def views(told: Sequence[Point]) -> list[View]:
    """The pictures for which there is something to draw."""
    found = [
        _by_name("node", "Node", "nodes", told, lambda one: one.host),
        _by_name("rank", "Rank", "ranks", told, lambda one: None if one.rank is None else f"rank {one.rank}"),
        _by_name("data", "Data", "others", told, lambda one: one.sample or one.shard),
        _by_step(told),
        _by_hour(told),
    ]
    return [view for view in found if view.marks]


def _by_name(key: str, title: str, others: str, told: Sequence[Point], of: Callable[[Incident], str | None]) -> View:
    """A row for each of those with most incidents, first those of the patterns; one for all others."""
    known = [(point, value) for point in told if point.incident.at is not None and (value := of(point.incident))]
    counts = Counter(value for _, value in known)
    best = Counter(value for point, value in known if point.pattern == 0)
    order = sorted(counts, key=lambda value: (-best[value], -counts[value], value))
    shown = order if len(order) <= ROWS + 1 else order[:ROWS]
    row = {value: number for number, value in enumerate(shown)}
    labels = [(number + 0.5, name(value)) for value, number in row.items()]
    if len(order) > len(shown):
        labels.append(
            (len(shown) + 0.5, f"{len(order) - len(shown):,} other {others}".replace("other others", "others"))
        )
    marks = [
        Mark(point.incident.at or 0.0, row.get(value, len(shown)) + 0.5, point.pattern, point.place, point.incident)
        for point, value in known
    ]
    return View(
        key, title, tuple(labels), len(labels), tuple(marks), len(told) - len(known), rest=len(order) > len(shown)
    )


def _by_step(told: Sequence[Point]) -> View:
    known = [point for point in told if point.incident.at is not None and point.incident.step is not None]
    most = max((point.incident.step or 0 for point in known), default=0) or 1
    top = _round_up(most)
    rows = 10

    def down(step: float) -> float:
        return rows * (1 - step / top)

    marks = [
        Mark(point.incident.at or 0.0, down(point.incident.step or 0), point.pattern, point.place, point.incident)
        for point in known
    ]
    labels = [(down(top * part / 4), f"step {top * part // 4:,}") for part in range(5)]
    return View("step", "Step", tuple(labels), rows, tuple(marks), len(told) - len(known), whole=False)


def _round_up(most: int) -> int:
    """
    >>> _round_up(7), _round_up(41217), _round_up(8000)
    (8, 60000, 8000)
    """
    size = int(10 ** max(0, len(str(most)) - 1))
    return next(size * factor for factor in (1, 2, 4, 6, 8, 10) if size * factor >= most)


def _by_hour(told: Sequence[Point]) -> View:
    """The hour of the day, UTC: a window is a band across."""
    known = [point for point in told if point.incident.at is not None]
    marks = [
        Mark(
            point.incident.at or 0.0,
            ((point.incident.at or 0.0) % 86400) / 7200,
            point.pattern,
            point.place,
            point.incident,
        )
        for point in known
    ]
    labels = [(hour / 2, f"{hour:02}:00") for hour in range(0, 25, 4)]
    return View("hour", "Hour of the day", tuple(labels), 12, tuple(marks), len(told) - len(known), whole=False)


class Blame(NamedTuple):
    """Incidents by node and cause. cells: (how many, share of the most)."""

    causes: tuple[str, ...]
    rows: tuple[tuple[str, int, tuple[tuple[int, float], ...]], ...]
    left: str


def blame(incidents: Iterable[Incident], rows: int = 15, columns: int = 8) -> Blame | None:
    """Which nodes are blamed for what; None where no node is."""
    counts = Counter((one.host, one.cause) for one in incidents if one.host and one.cause != "none")
    if not counts:
        return None
    nodes, causes = Counter[str](), Counter[str]()
    for (host, cause), count in counts.items():
        nodes[host or ""] += count
        causes[cause] += count
    shown = sorted(nodes, key=lambda host: (-nodes[host], host))[:rows]
    kinds = [cause for cause, _ in causes.most_common(columns)]
    most = max(counts.values())
    left = [many(len(nodes) - len(shown), "more node") if len(nodes) > len(shown) else "",
            many(len(causes) - len(kinds), "more cause") if len(causes) > len(kinds) else ""]  # fmt: skip
    return Blame(
        tuple(kinds),
        tuple((name(host), nodes[host], tuple((counts[host, cause], counts[host, cause] / most) for cause in kinds)) for host in shown),
        " and ".join(filter(None, left)),
    )  # fmt: skip
