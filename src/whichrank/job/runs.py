"""Groups of files that are runs of their own, and not the nodes or ranks of one: by folder, by number, file by file.

They are where the same ranks speak in several of them at different times or on different hosts.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from whichrank.facts import Fact, Said, Source, slashed
from whichrank.job.model import when
from whichrank.job.names import canon, in_path

Items = Mapping[str, Sequence["Fact | Said"]]  # by the path of their source

DEEP = 4  # folders below what all share
_ENDING = re.compile(r"\.(?:log|out|err|txt|gz|xz|zst)\b")
DATED = 20 * 366 * 86400e9  # ns since 1970; what has no year is before that
APART = 6 * 3600e9  # ns between the evidence of two groups that makes them two jobs
_RUN = re.compile(
    r"(?:.*[_.-])?(?:runs?|jobs?|exp|experiment|trial|attempt|try|incident|night|day|failure|crash|hang|week|case|restart|r|n|t)[_-]?\d+"
    r"|\d{3,}|(?:slurm|job)[_-]?\d+.*|\d{4}-?\d\d-?\d\d.*|.*[_.-]\d{4,}|(?:mon|tues|wednes|thurs|fri|satur|sun)day.*|(?:mon|tue|wed|thu|fri|sat|sun)",
    re.I,
)
_PART = re.compile(
    r"(?:.*[_.-])?(?:rank|node|host|worker|pod|gpu|local|task|proc|server|trainer|master|launcher|agent|shard)s?[_-]?\d*"
    r"|logs?|stacks?|dmesg|kernel|kern|slurm|pyspy|py-spy|metrics|nccl|fabric|nic|dumps?|stdout|stderr|k8s|events?|attempt_\d+",
    re.I,
)


def by_path(items: Iterable[Fact | Said]) -> dict[str, list[Fact | Said]]:
    found: dict[str, list[Fact | Said]] = defaultdict(list)
    for item in items:
        found[item.spot.source.path].append(item)
    return found


def runs_of(sources: Sequence[Source], said: Items, *, sure: bool = False) -> dict[str, list[Source]]:
    """Name -> sources of each run; empty where it is one run. `sure`: a name that looks like a run's is not enough."""
    hosts = {host for items in said.values() for item in items if (host := canon(item.who.host))}
    for groups in _groupings(sources):
        if len(groups) >= 2 and (found := _are_runs(groups, said, hosts, sure)):
            return found
    return {}


def _groupings(sources: Sequence[Source]) -> Iterator[dict[str, list[Source]]]:
    """By folder, from the outermost in; then by the run's number in their names; then file by file."""
    parts = {source.path: slashed(source.path).split("/") for source in sources}
    common = 0
    while (
        parts
        and len({tuple(own[: common + 1]) for own in parts.values()}) == 1
        and all(len(own) > common + 1 for own in parts.values())
    ):
        common += 1
    for at in range(common, common + DEEP):
        yield _lists(
            ("/".join(own[common : at + 1]), source) for source in sources if len(own := parts[source.path]) > at + 1
        )
    numbered = [(source.identity.world or "", source) for source in sources]
    yield _lists(
        (world, source) for world, source in numbered if world and world in "/".join(parts[source.path][common:])
    )
    yield _lists((_ENDING.sub("", parts[source.path][-1]), source) for source in sources)


def _lists(pairs: Iterable[tuple[str, Source]]) -> dict[str, list[Source]]:
    found: dict[str, list[Source]] = defaultdict(list)
    for name, source in pairs:
        found[name].append(source)
    return dict(found)


def _are_runs(groups: Mapping[str, list[Source]], said: Items, hosts: set[str], sure: bool) -> dict[str, list[Source]]:
    """Those of the groups that are runs of their own; none if they are parts of one."""
    speaking = {}
    for name, own in groups.items():
        items = [item for source in own if source.kind in ("training", "unknown") for item in said.get(source.path, ())]
        if items and any(source.kind == "training" for source in own):
            speaking[name] = items
    last = {name: name.rpartition("/")[2] for name in speaking}
    if len(speaking) < 2 or sum(_is_part(word, hosts) for word in last.values()) * 2 > len(last):
        return {}
    ranks = {name: {item.who.rank for item in items if item.who.rank is not None} for name, items in speaking.items()}
    spans = sorted((min(times), max(times), name) for name, items in speaking.items() if (times := dated(items)))
    apart_in_time = len(spans) == len(speaking) and all(one[1] < other[0] for one, other in itertools.pairwise(spans))
    everyone = [found for found in ranks.values() if found]
    often = Counter(itertools.chain.from_iterable(everyone))
    again = [sum(often[rank] > 1 for rank in found) / len(found) for found in everyone]
    same_ranks = len(everyone) >= 2 and min(again) > (0.5 if sure else 0)
    called_runs = sum(bool(_RUN.fullmatch(word)) for word in last.values()) * 2 > len(last)
    # a run directory's processes stand in its rings, not in its output
    others = [_processes(item for source in groups[name] for item in said.get(source.path, ())) for name in speaking]
    elsewhere = all(others) and sum(map(len, others)) == len(set().union(*others))
    if sure:
        gaps = [other[0] - one[1] for one, other in itertools.pairwise(spans)]
        far = apart_in_time and sum(gap >= APART for gap in gaps) * 2 >= len(gaps)  # some start again at once
        return {name: groups[name] for name in speaking} if same_ranks and (far or elsewhere) else {}
    if called_runs or (same_ranks and (apart_in_time or elsewhere)) or (apart_in_time and not everyone):
        return {name: groups[name] for name in speaking}
    return {}


def _is_part(name: str, hosts: set[str]) -> bool:
    """Is it called like a rank, a node or a kind of log?"""
    return bool(_PART.fullmatch(name)) or in_path(name, hosts) is not None


def _processes(items: Iterable[Fact | Said]) -> set[tuple[str, int | None]]:
    """(host, pid) of ranks; (host, None) where no pid is told."""
    found = {(item.who.host, item.who.pid) for item in items if item.who.host and item.who.rank is not None}
    return {one for one in found if one[1] is not None} or found


def dated(items: Iterable[Fact | Said]) -> list[int]:
    """Stamps with a date and a year: without them nothing is put in order."""
    return [at for item in items if (at := when(item)) is not None and at > DATED]
