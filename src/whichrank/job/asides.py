"""Evidence taken beside a run: stacks, tables, notes without a stamp. It tells of a run and never is one.

A dump of stacks may lie in a folder of its own, under a name with a number that looks like a job's. Its pids, ranks and
hosts say whose it is; where several runs fit, the last: people look at what hangs now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from whichrank.facts import Fact, Said, Source
from whichrank.job.model import gap, when

HOST_KINDS = {"kernel", "scheduler", "metrics", "note"}
Traits = tuple[set[object], set[object], set[object]]  # pids, ranks, hosts


def undated(items: Iterable[Fact | Said]) -> set[str]:
    """Paths of the stacks and the like in which no line has a stamp."""
    dated: dict[str, bool] = defaultdict(bool)
    for item in items:
        if item.spot.source.kind in HOST_KINDS or item.spot.source.kind == "stack":
            dated[item.spot.source.path] |= when(item) is not None
    return {path for path, stamped in dated.items() if not stamped}


def strays(items: Iterable[Fact | Said]) -> set[str]:
    """Of those the stacks: they show one moment of one run. A table or a note may be true of all."""
    items = list(items)
    kinds = {item.spot.source.path: item.spot.source.kind for item in items}
    return {path for path in undated(items) if kinds[path] == "stack"}


def traits(items: Iterable[Fact | Said]) -> Traits:
    found: Traits = (set(), set(), set())
    for item in items:
        for known, value in zip(found, (item.who.pid, item.who.rank, item.who.host), strict=True):
            if value is not None:
                known.add(value)
        if isinstance(item, Fact) and isinstance(item["rank_in_comm"], int):
            found[1].add(item["rank_in_comm"])
    return found


def home(own: Traits, runs: Sequence[tuple[str, Traits]]) -> str | None:
    """The last of `runs`, which are in time order, that has these pids; else these ranks; else hosts. None: none has."""
    for number, mine in enumerate(own):
        fits = [name for name, theirs in runs if mine & theirs[number]]
        if fits:
            return fits[-1]
    return None


def homes(items: Sequence[Fact | Said], runs: Mapping[str, Sequence[Fact | Said]]) -> dict[str, str]:
    """Path of each undated stack among `items` -> the run that it shows, where it names something of one."""
    paths = strays(items)
    if not paths or not runs:
        return {}
    order = sorted(runs, key=lambda name: max((at for item in runs[name] if (at := when(item))), default=0))
    known = [(name, traits(item for item in runs[name] if item.spot.source.path not in paths)) for name in order]
    by_path = _by_path(item for item in items if item.spot.source.path in paths)
    return {path: name for path, mine in by_path.items() if (name := home(traits(mine), known)) is not None}


def beside(
    sources: Sequence[Source], items: Sequence[Fact | Said], runs: Mapping[str, Sequence[Fact | Said]], near: float
) -> dict[str, set[str]]:
    """Path of each source that lies in none of the folders of `runs` -> the runs that it tells of.

    What has stamps tells of the runs of that time, at most `near` ns away; what has none, of the run that it names or
    else of all. What is of hosts that some of the runs had tells of no other.
    """
    spans = {name: _span(found) for name, found in runs.items()}
    hosts = {name: {item.who.host for item in own if item.who.host} for name, own in runs.items()}
    shown = homes(items, runs)
    by_path = _by_path(items)
    found: dict[str, set[str]] = {}
    for source in sources:
        mine = _span(by_path[source.path])
        if mine is not None:
            found[source.path] = {name for name, span in spans.items() if span is None or gap(mine, span) <= near}
        else:
            found[source.path] = {shown[source.path]} if source.path in shown else set(runs)
        own = {item.who.host for item in by_path[source.path] if item.who.host}
        if there := {name for name in found[source.path] if own & hosts[name]}:
            found[source.path] = there
    return found


def _by_path(items: Iterable[Fact | Said]) -> dict[str, list[Fact | Said]]:
    found: dict[str, list[Fact | Said]] = defaultdict(list)
    for item in items:
        found[item.spot.source.path].append(item)
    return found


def _span(items: Iterable[Fact | Said]) -> tuple[int, int] | None:
    times = [at for item in items if (at := when(item)) is not None]
    return (min(times), max(times)) if times else None
