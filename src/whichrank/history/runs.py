"""A folder of several runs' evidence: told apart by folder or by file, each diagnosed by itself.

Groups of files are runs, and not nodes or ranks of one run, where the same ranks speak in several of them at different
times or on different hosts, or where they are called so. What lies outside of the groups (a table of jobs, kernel logs of
nodes) goes with every run, as far as its stamps fit.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from whichrank.diagnosis import report_on
from whichrank.evidence import Evidence, read
from whichrank.evidence.parallel import Workers
from whichrank.facts import Fact, Said, Source, slashed
from whichrank.job.model import both, when
from whichrank.model import Report

DEEP = 4  # folders below what all share
_ENDING = re.compile(r"\.(?:log|out|err|txt|gz|xz|zst)\b")
DATED = 20 * 366 * 86400e9  # ns since 1970; what has no year is before that
SLACK = 3600e9  # ns around a run within which a kernel's or scheduler's line may be about it
_RUN = re.compile(
    r"(?:.*[_.-])?(?:runs?|jobs?|exp|experiment|trial|attempt|try|incident|night|day|failure|crash|hang|week|case|restart|r|n|t)[_-]?\d+"
    r"|\d{3,}|(?:slurm|job)[_-]?\d+.*|\d{4}-?\d\d-?\d\d.*|.*[_.-]\d{4,}|(?:mon|tues|wednes|thurs|fri|satur|sun)day.*|(?:mon|tue|wed|thu|fri|sat|sun)",
    re.I,
)
_PART = re.compile(
    r"(?:rank|node|host|worker|pod|gpu|local|task|proc|server|trainer|master|launcher|agent|shard)s?[_-]?\d*"
    r"|logs?|stacks?|dmesg|kernel|kern|slurm|pyspy|py-spy|metrics|nccl|fabric|nic|dumps?|stdout|stderr|k8s|events?|attempt_\d+",
    re.I,
)


def reports(
    paths: Sequence[str], progress: Callable[[str], None] | None = None, workers: Workers = None
) -> list[Report]:
    """One report for each run under `paths`; several arguments may be several runs, or parts of one."""
    found = []
    for name, part in apart(read(paths, progress, workers)):
        report = report_on(part)
        found.append(report if report.label or report.incidents else replace(report, label=name))
    return found


def apart(evidence: Evidence) -> list[tuple[str, Evidence]]:
    """The evidence of each run under its name, in time order; all of it as one where nothing tells runs apart."""
    groups = runs_of(evidence)
    if not groups:
        return [("", evidence)]
    inside = {source.path for own in groups.values() for source in own}
    facts, said = _by_path(evidence.facts), _by_path(evidence.said)
    shared = [source for source in evidence.sources if source.path not in inside]
    parts = []
    for name, own in groups.items():
        paths = {source.path for source in own}
        part = Evidence(
            [fact for source in own for fact in facts[source.path]], [line for source in own for line in said[source.path]],
            list(own), [gap for gap in evidence.gaps if gap.what in paths],
        )  # fmt: skip
        _with_shared(part, shared, facts, said)
        parts.append((name, part))
    return sorted(parts, key=lambda part: (min(_times(both(part[1].facts, part[1].said)), default=0), part[0]))


def runs_of(evidence: Evidence) -> dict[str, list[Source]]:
    """Name -> sources of each run; empty where it is one run."""
    by_path = _by_path(both(evidence.facts, evidence.said))
    hosts = {item.who.host.lower() for items in by_path.values() for item in items if item.who.host}
    for groups in _groupings(evidence.sources):
        if len(groups) >= 2 and (found := _are_runs(groups, by_path, hosts)):
            return found
    return {}


def _by_path(items: Iterable[Fact | Said]) -> dict[str, list]:  # type: ignore[type-arg]
    found: dict[str, list[Fact | Said]] = defaultdict(list)
    for item in items:
        found[item.spot.source.path].append(item)
    return found


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


def _are_runs(
    groups: Mapping[str, list[Source]], by_path: Mapping[str, list[Fact | Said]], hosts: set[str]
) -> dict[str, list[Source]]:
    """Those of the groups that are runs of their own; none if they are parts of one."""
    speaking = {}
    for name, own in groups.items():
        items = [
            item for source in own if source.kind in ("training", "unknown") for item in by_path.get(source.path, ())
        ]
        if items and any(source.kind == "training" for source in own):
            speaking[name] = items
    last = {name: name.rpartition("/")[2] for name in speaking}
    if len(speaking) < 2 or sum(
        bool(_PART.fullmatch(word)) or word.lower() in hosts for word in last.values()
    ) * 2 > len(last):
        return {}
    ranks = {name: {item.who.rank for item in items if item.who.rank is not None} for name, items in speaking.items()}
    spans = sorted((min(times), max(times), name) for name, items in speaking.items() if (times := _times(items)))
    apart_in_time = len(spans) == len(speaking) and all(one[1] < other[0] for one, other in itertools.pairwise(spans))
    everyone = [found for found in ranks.values() if found]
    often = Counter(itertools.chain.from_iterable(everyone))
    same_ranks = len(everyone) >= 2 and all(any(often[rank] > 1 for rank in found) for found in everyone)
    called_runs = sum(bool(_RUN.fullmatch(word)) for word in last.values()) * 2 > len(last)
    others = [
        {(item.who.host, item.who.pid) for item in items if item.who.host and item.who.rank is not None}
        for items in speaking.values()
    ]
    elsewhere = all(others) and sum(map(len, others)) == len(set().union(*others))
    if called_runs or (same_ranks and (apart_in_time or elsewhere)) or (apart_in_time and not everyone):
        return {name: groups[name] for name in speaking}
    return {}


def _times(items: Iterable[Fact | Said]) -> list[int]:
    """Stamps with a date and a year: without them nothing is put in order."""
    return [at for item in items if (at := when(item)) is not None and at > DATED]


def _with_shared(
    part: Evidence, shared: Sequence[Source], facts: Mapping[str, list[Fact]], said: Mapping[str, list[Said]]
) -> None:
    """What lies beside the runs, as far as it may be about this one."""
    times = _times(both(part.facts, part.said))
    begin, end = (min(times) - SLACK, max(times) + SLACK) if times else (0.0, float("inf"))
    for source in shared:
        stamped = _times(both(facts.get(source.path, []), said.get(source.path, [])))
        if stamped and not any(begin <= at <= end for at in stamped):
            continue
        part.sources.append(source)
        part.facts += [fact for fact in facts.get(source.path, ()) if _fits(fact, begin, end)]
        part.said += [line for line in said.get(source.path, ()) if _fits(line, begin, end)]


def _fits(item: Fact | Said, begin: float, end: float) -> bool:
    at = when(item)
    return at is None or at < DATED or begin <= at <= end
