"""Several runs in one folder, several attempts of one run: told apart before anything is concluded.

Sequence numbers restart with an attempt and ranks may be renumbered; evidence of hosts belongs to all of them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

from whichrank.facts import Fact, Said, Source, slashed
from whichrank.job.asides import HOST_KINDS, beside, homes, undated
from whichrank.job.model import Told, both, when
from whichrank.job.runs import APART, by_path, dated, runs_of

Segment = tuple[str, "int | None", list[Source], list[Fact], list[Said]]


def segments(facts: list[Fact], said: list[Said], sources: Sequence[Source], told: Told) -> list[Segment]:
    folders = _folders(facts, said, sources)
    if not folders and told.attempt is None and len(sources) > 1:
        folders = runs_of(sources, by_path(both(facts, said)), sure=True)
    if folders and told.attempt is None:
        return _apart(folders, facts, said, sources, told)
    worlds = _worlds(facts, said)
    found: list[Segment] = []
    by_world = {
        world: [item for item in both(facts, said) if item.spot.source.identity.world == world]
        for world in worlds
        if world is not None
    }
    # A stack whose name holds no run's number is of one run all the same.
    shown = {
        path: name
        for path, name in homes(both(facts, said), by_world).items()
        if not any(source.path == path and source.identity.world in by_world for source in sources)
    }

    def belongs(source: Source, world: str | None) -> bool:
        return shown[source.path] == world if source.path in shown else _belongs(source, world, worlds)

    for world in worlds:
        some_facts = [fact for fact in facts if belongs(fact.spot.source, world)]
        some_said = [line for line in said if belongs(line.spot.source, world)]
        found.extend(_attempts(world or "", [s for s in sources if belongs(s, world)], some_facts, some_said, told))
    return found


def _apart(
    folders: dict[str, list[Source]], facts: list[Fact], said: list[Said], sources: Sequence[Source], told: Told
) -> list[Segment]:
    """Each folder's runs, and with them what lies outside of these folders and tells of them."""
    folder = {source.path: name for name, own in folders.items() for source in own}
    items = both(facts, said)
    runs = {name: [item for item in items if folder.get(item.spot.source.path) == name] for name in sorted(folders)}
    outside = [source for source in sources if source.path not in folder]
    tells = beside(outside, [item for item in items if item.spot.source.path not in folder], runs, APART)
    found: list[Segment] = []
    begun = {name: min(dated(own), default=0) for name, own in runs.items()}
    for name, own in sorted(folders.items(), key=lambda folder: (begun[folder[0]], folder[0])):
        mine = [fact for fact in facts if folder.get(fact.spot.source.path) == name]
        lines = [line for line in said if folder.get(line.spot.source.path) == name]
        more = {path for path, names in tells.items() if name in names}
        for label, attempt, some, some_facts, some_said in segments(mine, lines, own, told):
            found.append(
                (
                    label or name,
                    attempt,
                    [*some, *(source for source in outside if source.path in more)],
                    [*some_facts, *(fact for fact in facts if fact.spot.source.path in more)],
                    [*some_said, *(line for line in said if line.spot.source.path in more)],
                )
            )
    return found


OWN = ("training", "dump")  # what only the ranks of a job leave


def _folder_of(sources: Sequence[Source]) -> dict[str, str]:
    """Each source's first folder below what all share; "" for one that lies beside the folders."""
    parts = {source.path: slashed(source.path).split("/") for source in sources}
    depth = 0
    while len({tuple(own[: depth + 1]) for own in parts.values()}) == 1 and all(
        len(p) > depth + 1 for p in parts.values()
    ):
        depth += 1
    return {path: own[depth] if len(own) > depth + 1 else "" for path, own in parts.items()}


def _folders(facts: Sequence[Fact], said: Sequence[Said], sources: Sequence[Source]) -> dict[str, list[Source]]:
    """Folders that hold the logs of jobs of their own: the same ranks speak in each, hours or days apart."""
    folder = _folder_of(sources)
    times: dict[str, list[int]] = defaultdict(list)
    ranks: dict[str, set[int]] = defaultdict(set)
    for item in both(facts, said):
        source = item.spot.source
        if source.kind in OWN and (at := when(item)) is not None:
            times[folder[source.path]].append(at)
        if source.kind in OWN and item.who.rank is not None:
            ranks[folder[source.path]].add(item.who.rank)
    spans = sorted((min(found), max(found), name) for name, found in times.items() if name and ranks[name])
    if len(spans) < 2 or "" in times:
        return {}
    for (_, end, one), (begin, _, other) in itertools.pairwise(spans):
        if begin - end < APART or not ranks[one] & ranks[other]:
            return {}
    apart = {name for _, _, name in spans}
    return {name: [source for source in sources if folder[source.path] == name] for name in apart}


def _belongs(source: Source, world: str | None, worlds: Sequence[str | None]) -> bool:
    """Is this evidence of that run? What carries no run's name belongs to all."""
    return world is None or source.identity.world == world or source.identity.world not in worlds


def _worlds(facts: Sequence[Fact], said: Sequence[Said]) -> list[str | None]:
    """Job ids in file names separate runs only if the same rank speaks under more than one of them.

    Stacks and tables without a stamp have no run of their own beside the logs of ranks: a number in their names may be
    a time of day.
    """
    items = both(facts, said)
    aside = undated(items)
    logs = [item for item in items if item.spot.source.path not in aside]
    ranks = _ranks_of_worlds(logs) or _ranks_of_worlds(items)
    shared = [world for world in ranks if any(ranks[world] & ranks[other] for other in ranks if other != world)]
    if len(shared) < 2:
        return [None]
    return [*sorted(shared)]


def _ranks_of_worlds(items: Iterable[Fact | Said]) -> dict[str, set[int]]:
    ranks: dict[str, set[int]] = defaultdict(set)
    for item in items:
        world = item.spot.source.identity.world
        rank = (
            item.who.rank
            if item.who.rank is not None
            else item["rank_in_comm"]
            if isinstance(item, Fact) and item.kind == "init_complete"
            else None
        )
        if world and rank is not None:
            ranks[world].add(rank)
    return ranks


def _attempts(label: str, sources: list[Source], facts: list[Fact], said: list[Said], told: Told) -> list[Segment]:
    """Split by attempt_N in paths and by restart lines; evidence of hosts goes to every attempt."""
    marks = _restart_marks(facts)
    named = {source.path: source.identity.attempt for source in sources if source.identity.attempt is not None}

    def attempt_of(item: Fact | Said) -> int | None:
        path = item.spot.source.path
        if path in named:
            return named[path]
        if item.spot.source.kind in HOST_KINDS:
            return None
        current = None
        for line, number in marks.get(path, ()):
            if item.spot.place < line:
                break
            current = number
        if current is None and path in marks:
            return marks[path][0][1] - 1 if marks[path][0][1] > 0 else 0
        return current

    buckets: dict[int | None, tuple[list[Fact], list[Said]]] = defaultdict(lambda: ([], []))
    for fact in facts:
        buckets[attempt_of(fact)][0].append(fact)
    for line in said:
        buckets[attempt_of(line)][1].append(line)
    numbers = sorted(number for number in buckets if number is not None and _has_substance(*buckets[number]))
    if told.attempt is not None and told.attempt in numbers:
        numbers = [told.attempt]
    elif len(numbers) < 2:
        return [(label, numbers[0] if numbers and len(buckets) == 1 else None, sources, facts, said)]
    common_facts, common_said = buckets[None]
    # A stack shows the attempt whose processes it names, and of several the last.
    by_number = {str(number): both(*buckets[number]) for number in numbers}
    shown = homes(both(common_facts, common_said), by_number)
    common_facts = [
        *common_facts,
        *(
            fact
            for fact in facts
            if fact.kind == "member" and fact.spot.source.kind == "note" and fact.spot.source.path in named
        ),
    ]
    starts = {
        number: min((item.at_ns for items in buckets[number] for item in items if item.at_ns), default=None)
        for number in numbers
    }
    segments: list[Segment] = []
    for number in numbers:
        own = {item.spot.source.path for item in both(*buckets[number])}
        theirs = {path for path, name in shown.items() if name != str(number)}
        windowed = [
            fact
            for fact in common_facts
            if fact.spot.source.path not in theirs and _within(fact, starts, number, numbers)
        ]
        segments.append(
            (
                label,
                number,
                [
                    s
                    for s in sources
                    if s.path in own or s.kind in HOST_KINDS or (s.path not in named and s.path not in theirs)
                ],
                [*buckets[number][0], *windowed],
                [*buckets[number][1], *(line for line in common_said if line.spot.source.path not in theirs)],
            )
        )
    return segments


def _within(fact: Fact, starts: dict[int, int | None], number: int, numbers: list[int]) -> bool:
    """Does a fact of the host, by its time, belong to this attempt rather than to the next or the one before?"""
    if fact.at_ns is None or fact.clock == "boot":
        return True
    follower = next((start for n in numbers if n > number and (start := starts[n])), None)
    if follower is not None and fact.at_ns >= follower:
        return False
    mine = starts[number]
    return mine is None or number == numbers[0] or fact.at_ns >= mine


def _has_substance(facts: list[Fact], said: list[Said]) -> bool:
    """An attempt that only shows its launcher's farewell is none."""
    telling = [
        fact
        for fact in facts
        if fact.kind not in ("restart", "rendezvous_complete", "launcher_stop", "config", "exit", "member")
    ]
    return bool(telling) or len(said) > 3


def _restart_marks(facts: Iterable[Fact]) -> dict[str, list[tuple[int, int]]]:
    """For each source the lines at which a new attempt begins, with its number."""
    marks: dict[str, list[tuple[int, int]]] = defaultdict(list)
    failed: dict[str, int] = {}  # source -> line of the last launcher's report of a failure
    for fact in sorted(facts, key=lambda fact: (fact.spot.source.path, fact.spot.place)):
        path, line = fact.spot.source.path, fact.spot.place
        number: int | None = None
        if fact.kind == "rendezvous_complete" and isinstance(fact["restart_count"], int):
            number = fact["restart_count"]
        elif fact.kind == "restart":
            told = fact["attempt"]
            number = told if isinstance(told, int) else (marks[path][-1][1] + 1 if marks[path] else 1)
        elif fact.kind == "exit" and fact["root"]:
            failed[path] = line
        elif fact.kind == "restored" and path in failed and not (marks[path] and marks[path][-1][0] > failed[path]):
            # A wrapper started it again by itself: the launcher had reported its end, then a checkpoint was loaded.
            line, number = failed[path] + 1, (marks[path][-1][1] + 1 if marks[path] else 1)
        if number is not None and not (marks[path] and marks[path][-1][1] == number):
            if marks[path] and number < marks[path][-1][1]:
                number = marks[path][-1][1] + 1
            marks[path].append((line, number))
    return {path: found for path, found in marks.items() if found}
