"""A folder of several runs' evidence: told apart by folder or by file, each diagnosed by itself.

job/runs.py tells runs from nodes and ranks of one run; here folders that are only called like runs count as such too. What
lies outside of them (a table of jobs, kernel logs of nodes) goes with every run that its stamps and its host fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from whichrank.diagnosis import report_on
from whichrank.evidence import Evidence, read
from whichrank.evidence.parallel import Workers
from whichrank.facts import Fact, Identity, Said, Source
from whichrank.job.model import both, when
from whichrank.job.names import beside_hosts, canon, guess_from_path, in_path
from whichrank.job.runs import DATED, by_path, dated, runs_of
from whichrank.model import Report

SLACK = 3600e9  # ns around a run within which a kernel's or scheduler's line may be about it


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
    evidence = _homed(evidence)
    items = by_path(both(evidence.facts, evidence.said))
    groups = runs_of(evidence.sources, items)
    if not groups:
        return [("", evidence)]
    inside = {source.path for own in groups.values() for source in own}
    shared = [source for source in evidence.sources if source.path not in inside]
    hosts = {name: _hosts(item for source in own for item in items[source.path]) for name, own in groups.items()}
    everywhere = set().union(*hosts.values())
    parts = []
    for name, own in groups.items():
        paths = {source.path for source in own}
        part = Evidence(
            [fact for fact in evidence.facts if fact.spot.source.path in paths],
            [line for line in evidence.said if line.spot.source.path in paths],
            list(own), [gap for gap in evidence.gaps if gap.what in paths],
        )  # fmt: skip
        others = everywhere - hosts[name]
        _with_shared(part, [source for source in shared if _here(source, items, hosts[name], others)], items)
        parts.append((name, part))
    return sorted(parts, key=lambda part: (min(dated(both(part[1].facts, part[1].said)), default=0), part[0]))


def _homed(evidence: Evidence) -> Evidence:
    """With the hosts of files that are called like one of which there is a kernel log, be it of another run."""
    own = [source for source in evidence.sources if source.kind == "kernel"]
    known = {host for source in own if (host := guess_from_path(source.path))}
    known |= {host for fact in evidence.facts if fact.spot.source.kind == "kernel" and (host := canon(fact.who.host))}
    known |= beside_hosts((source.path for source in evidence.sources), known)
    ranks = [source.path for source in evidence.sources if source.kind in ("training", "unknown")]
    homes = {path: in_path(path, known) for path in ranks}

    def who(item: Fact | Said) -> Identity:
        home = homes.get(item.spot.source.path)
        return item.who if item.who.host or item.who.pod or not home else replace(item.who, host=home)

    return replace(
        evidence,
        facts=[replace(fact, who=who(fact)) for fact in evidence.facts],
        said=[replace(line, who=who(line)) for line in evidence.said],
    )


def _hosts(items: Iterable[Fact | Said]) -> set[str]:
    return {host for item in items if (host := canon(item.who.host))}


def _here(source: Source, items: Mapping[str, list[Fact | Said]], hosts: set[str], others: set[str]) -> bool:
    """Not where it is of hosts that other runs had and this one did not."""
    own = _hosts(items.get(source.path, ()))
    if not own and (named := in_path(source.path, hosts | others)):
        own = {named}
    return not own or bool(own & hosts) or not own & others


def _with_shared(part: Evidence, shared: Sequence[Source], items: Mapping[str, list[Fact | Said]]) -> None:
    """What lies beside the runs, as far as it may be about this one."""
    times = dated(both(part.facts, part.said))
    begin, end = (min(times) - SLACK, max(times) + SLACK) if times else (0.0, float("inf"))
    for source in shared:
        stamped = dated(items.get(source.path, ()))
        if stamped and not any(begin <= at <= end for at in stamped):
            continue
        part.sources.append(source)
        fit = [item for item in items.get(source.path, ()) if _fits(item, begin, end)]
        part.facts += [item for item in fit if isinstance(item, Fact)]
        part.said += [item for item in fit if isinstance(item, Said)]


def _fits(item: Fact | Said, begin: float, end: float) -> bool:
    at = when(item)
    return at is None or at < DATED or begin <= at <= end
