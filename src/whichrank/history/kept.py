"""A report as history keeps it: its runs and its incidents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timezone

from whichrank.history.incident import History, Incident, Placement, Run, digest, squeezed
from whichrank.model import Report, Verdict
from whichrank.report.printable import day, moment

DAY = 86400.0
BELIEVED = 0.4  # confidence from which a named rank counts: below that nobody is named


def history_of(reports: Iterable[Report]) -> History:
    """The history that a pile of reports makes, one for each run. Nothing in it stands twice."""
    runs: dict[str, Run] = {}
    incidents: dict[str, Incident] = {}
    for number, report in enumerate(reports):
        own, found = kept(report, number)
        runs.update((run.id, run) for run in own)
        incidents.update((incident.key, incident) for incident in found)
    return History.of(list(runs.values()), list(incidents.values()))


def kept(report: Report, number: int | None = None) -> tuple[list[Run], list[Incident]]:
    """The runs and incidents of a report: several where it holds several runs or attempts.

    `number`: its place among other reports, where they are compared at once. Logs that tell the time of day and no date
    are then taken to be of different days; without it such times are left out.
    """
    parts = [part for part in report.incidents or (report,) if part.verdicts]
    runs: dict[str, Run] = {}
    incidents: list[Incident] = []
    for place, part in enumerate(parts):
        name, _, attempt = part.label.partition("attempt ")
        label = name.strip(" ,") or report.label
        fake = None if number is None else (number * 1000 + place) * DAY
        run = _run(part, label, fake)
        if run.id in runs:  # the next attempt, on the same nodes
            earlier = runs[run.id]
            ends = [end for end in (earlier.ended, run.ended) if end is not None]
            run = Run(run.id, run.label, earlier.began, max(ends, default=None), run.placement, run.world_size)
        runs[run.id] = run
        if part.verdicts[0].cause != "none":
            incidents.append(
                _incident(part, run.id, int(attempt) if attempt.isdecimal() else _nth(incidents, run.id), fake)
            )
    return list(runs.values()), incidents


def _nth(incidents: Sequence[Incident], run: str) -> int | None:
    return sum(incident.run == run for incident in incidents) or None


def _run(report: Report, label: str, fake: float | None) -> Run:
    told = report.circumstances
    placement = _placement(report)
    began, ended = _time(told.began, fake), _time(told.ended, fake)
    size = max(report.summary.world_size or 0, max((row.rank for row in report.ranks), default=-1) + 1)
    what: tuple[object, ...] = (label, told.began, placement)
    if not any(what):  # nothing names it: what it says has to
        what = tuple(f"{proof.line}:{proof.excerpt}" for proof in report.verdicts[0].because) or (
            report.verdicts[0].says,
        )
    if label and told.began is None:
        what = (label, placement)
    return Run(digest(*what), label, began, ended, placement, size)


def _placement(report: Report) -> Placement:
    """Each rank's host as the report has it; where it names hosts only, the ranks are dealt evenly over them."""
    hosts = {row.rank: row.host or "" for row in report.ranks}
    if any(hosts.values()):
        return squeezed([hosts.get(rank, "") for rank in range(max(hosts) + 1)])
    named = report.circumstances.hosts
    size = max(hosts, default=-1) + 1
    each = size // len(named) if named and size % len(named) == 0 and size else 1
    return tuple((host, each) for host in named)


def _incident(report: Report, run: str, attempt: int | None, fake: float | None) -> Incident:
    verdict, told = report.verdicts[0], report.circumstances
    rank, host = _blamed(verdict)
    return Incident(
        run, attempt, _time(report.summary.at or told.ended, fake), verdict.cause, verdict.family, verdict.grade,
        verdict.confidence, rank, host, told.gpu if host and told.gpu else None, told.local_rank if rank is not None else None,
        None, told.site, told.step, told.from_step, told.shard, told.shards, told.sample, told.service, verdict.says,
        _source(verdict),
    )  # fmt: skip


def _source(verdict: Verdict) -> str | None:
    """Where it is read first."""
    proof = next(iter(verdict.because), None)
    return None if proof is None else proof.source if proof.line is None else f"{proof.source}:{proof.line}"


def _blamed(verdict: Verdict) -> tuple[int | None, str | None]:
    """The one rank and the one host that is blamed; None where it is none, or several."""
    sure = verdict.rank_confidence >= BELIEVED or verdict.rank_grade != "undecided"
    ranks = set(verdict.culprit_ranks) if sure else set()
    hosts = {culprit.host for culprit in verdict.culprits if culprit.host} if sure else set()
    hosts = hosts or set(verdict.hosts)
    return (ranks.pop() if len(ranks) == 1 else None), (hosts.pop() if len(hosts) == 1 else None)


def _time(at: str | None, fake: float | None) -> float | None:
    """Seconds since 1970. A time of day without a date is of no day that is known: `fake` stands for it."""
    found = moment(at)
    if found is None:
        return None
    if not day(at):
        return None if fake is None else fake + found.hour * 3600 + found.minute * 60 + found.second
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
