"""The whole library in one call: evidence in, report out.

>>> from whichrank import diagnose
>>> report = diagnose(["logs/"])            # doctest: +SKIP
>>> report.verdicts[0].cause, report.verdicts[0].culprits   # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from whichrank import __version__
from whichrank.evidence import Evidence, read
from whichrank.evidence.parallel import Workers
from whichrank.facts import Gap
from whichrank.findings import Findings, examine
from whichrank.job.build import build
from whichrank.job.model import NOTHING_TOLD, Job, Told
from whichrank.job.private import private_names
from whichrank.model import Around, Missing, Report, Summary, Verdict
from whichrank.verdict import decide, grade_of, tables
from whichrank.verdict.circumstances import circumstances

TOOL = f"whichrank {__version__}"
CONTEXT = 80  # proofs that get the lines around them


def diagnose(
    paths: Sequence[str],
    *,
    placement: str | None = None,
    world_size: int | None = None,
    attempt: int | None = None,
    since: str | None = None,
    progress: Callable[[str], None] | None = None,
    workers: Workers = None,
) -> Report:
    """Read all evidence under `paths` and say which rank held the others up, why, and what to do.

    paths       files, folders, globs, "-" for standard input
    placement   a file that says which rank ran where (see docs)
    world_size  number of ranks, where the evidence does not tell
    attempt     look at this attempt only
    since       ignore everything before this time (any format that logs use)
    progress    called with each file's name once it has been read
    workers     a concurrent.futures.Executor that reads the files, or a function that makes one, which is called only
                where there is much to read; without it files are read here, one after the other

    Never raises on what the evidence holds; what cannot be read is in the report's gaps.
    """
    evidence = read(paths, progress, workers)
    if placement:
        from whichrank.evidence import given

        given.take(evidence, placement)
    return report_on(evidence, Told(world_size=world_size, attempt=attempt, since_ns=_since(since)))


def with_context(report: Report, paths: Sequence[str]) -> Report:
    """The report with the lines around its proofs, read once more from `paths`; proofs of standard input stay without."""
    from whichrank.evidence.around import LINES, around

    wanted: dict[str, list[int]] = {}
    for verdict in report.verdicts[:1]:
        for proof in (*verdict.because, *verdict.against)[:CONTEXT]:
            if proof.line is not None:
                wanted.setdefault(proof.source, []).append(proof.line)
    found = around(paths, wanted) if wanted else {}
    return replace(
        report,
        around=tuple(
            Around(
                source,
                line,
                tuple(lines[at] for at in range(line - LINES, line) if at in lines),
                tuple(lines[at] for at in range(line + 1, line + LINES + 1) if at in lines),
            )
            for source, lines in found.items()
            for line in dict.fromkeys(wanted[source])
        ),
    )


def report_on(evidence: Evidence, told: Told = NOTHING_TOLD) -> Report:
    """What the evidence says. Digests whose facts nobody can reason on, as nobody's reader makes them, are left out."""
    try:
        return _concluded(evidence, told)
    except Exception:
        if not any(source.digest for source in evidence.sources):
            raise
    from whichrank.evidence.digested import believable

    return _concluded(believable(evidence, partial(_concluded, told=told)), told)


def _concluded(evidence: Evidence, told: Told) -> Report:
    jobs = build(evidence, told)
    if told.attempt is not None and all(job.attempt != told.attempt for job in jobs):
        seen = ", ".join(str(job.attempt) for job in jobs if job.attempt is not None) or "none"
        gap = Gap(f"attempt {told.attempt}", f"not in the evidence (attempts there: {seen}): this is all of it")
        jobs[0].gaps.append(gap)
    reports = [_one(job, examine(job), evidence) for job in jobs]
    report = reports[0] if len(reports) == 1 else _several(reports)
    return replace(report, names=private_names(jobs))


def _one(job: Job, found: Findings, evidence: Evidence) -> Report:
    verdicts, weighed = decide(job, found)
    return Report(
        verdicts=tuple(verdicts),
        ranks=tables.ranks(job, found, verdicts[0]),
        timeline=tables.timeline(job, found, verdicts[0]),
        gaps=tables.gaps(job, found, verdicts[0]),
        weighed=weighed,
        summary=_summary(job, found, evidence, verdicts),
        circumstances=circumstances(job, found, verdicts[0]),
        label=_label(job),
        tool=TOOL,
        table=found.told.table if found.told is not None else job.table,
        told=found.told,
    )


def _label(job: Job) -> str:
    parts = [f"job {job.label}" if job.label else "", f"attempt {job.attempt}" if job.attempt is not None else ""]
    return ", ".join(part for part in parts if part)


def _summary(job: Job, found: Findings, evidence: Evidence, verdicts: Sequence[Verdict]) -> Summary:
    used = {proof.source for verdict in verdicts for proof in (*verdict.because, *verdict.against)}
    used |= {beat.source for beat in found.beats}
    return Summary(
        files=len(evidence.sources),
        bytes=sum(source.bytes for source in evidence.sources),
        ranks=len(job.ranks),
        world_size=job.world_size if job.world_told else None,
        hosts=len({info.host for info in job.ranks.values() if info.host}) or len(job.hosts),
        at=tables.incident_at(job, found),
        unread=tuple(
            source.path
            for source in evidence.sources
            if not (source.readers or source.kind == "kernel" or source.path in used)
        ),
    )


def _several(reports: list[Report]) -> Report:
    """Several runs or attempts: the conclusion over all of them.

    A run that recovered and ended well is "none". Otherwise the first that failed, unless the later failures have
    another cause: then the last, which is why it is dead now.
    """
    last = reports[-1]
    failed = [report for report in reports if report.verdicts[0].cause != "none"]
    same_run = len({report.label.partition("attempt")[0] for report in reports}) == 1
    if not failed or (same_run and last.verdicts[0].cause == "none" and last.verdicts[0].confidence >= 0.75):
        top = last
    else:
        causes = {report.verdicts[0].cause for report in failed if report.verdicts[0].cause != "undecided"}
        if same_run and failed[0].verdicts[0].cause not in ("undecided", "init_rendezvous"):
            causes.discard(
                "init_rendezvous"
            )  # who is started again and finds nobody there suffers from the first failure
        top = failed[0] if len(causes) <= 1 or not same_run else failed[-1]
        if same_run and last.verdicts[0].cause == "undecided" and last.verdicts[0].seq is not None and len(failed) > 1:
            top = last  # it hangs now for a reason of its own, which is not shown
        elif top.verdicts[0].cause == "undecided":
            top = next((report for report in failed if report.verdicts[0].cause != "undecided"), top)
    if not top.verdicts[0].culprits:  # the same story, told by an attempt that also says who
        alike = (report for report in failed if _same_story(report.verdicts[0], top.verdicts[0]))
        top = next((report for report in alike if same_run and report.verdicts[0].culprits), top)
    unsure = (
        same_run
        and any(report.verdicts[0].cause == "undecided" for report in failed)
        and top.verdicts[0].cause not in ("undecided", "none")
    )
    return replace(_less_sure(top) if unsure else top, incidents=tuple(reports))


def _same_story(one: Verdict, other: Verdict) -> bool:
    """Of two attempts: the same cause; where neither is known, at least the same mechanism."""
    return one.cause == other.cause and (one.cause != "undecided" or one.mechanism == other.mechanism)


_NOT_ALL = Missing(
    "the other attempts",
    "one of them failed for a reason that is not shown: over all of them this is less sure than by itself",
)


def _less_sure(report: Report) -> Report:
    """Another attempt of the run failed for reasons that are not shown: this one need not be the whole story."""
    first = report.verdicts[0]
    confidence, ranks = min(first.confidence, 0.7), min(first.rank_confidence, 0.7)
    weaker = replace(
        first, confidence=confidence, grade=grade_of(confidence), rank_confidence=ranks, rank_grade=grade_of(ranks)
    )
    return replace(report, verdicts=(weaker, *report.verdicts[1:]), gaps=(*report.gaps, _NOT_ALL))


def _since(text: str | None) -> int | None:
    if not text:
        return None
    from whichrank.evidence import stamps

    found = stamps.find(text) or stamps.find(f"{text} 00:00:00") or stamps.find(f"{text}:00")
    return found[0] if found else None
