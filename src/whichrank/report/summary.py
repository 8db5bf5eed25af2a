"""Sentences of an answer that every renderer for people says alike."""

from __future__ import annotations

from whichrank.model import Report, Summary, Verdict
from whichrank.ranges import hosts as host_ranges
from whichrank.ranges import ranks as rank_ranges
from whichrank.report.condense import operation
from whichrank.report.printable import clock, many, printable


def summary(report: Report) -> str:
    """ "71 files, 64 ranks on 8 nodes, 1 incident at 2026-11-30 05:41:58Z"."""
    seen: Summary = report.summary
    parts = [many(seen.files, "file")]
    if seen.ranks:
        known = seen.world_size and seen.world_size != seen.ranks
        text = f"{seen.ranks:,} of {seen.world_size:,} ranks" if known else many(seen.ranks, "rank")
        parts.append(text + (f" on {many(seen.hosts, 'node')}" if seen.hosts else ""))
    if report.verdicts and (report.incidents or report.verdicts[0].cause != "none"):
        parts.append(many(max(1, len(report.incidents)), "incident"))
    text = ", ".join(parts) + (f" at {clock(seen.at, with_date=True)}" if seen.at else "")
    return f"{printable(report.label)}: {text}" if report.label and not report.incidents else text


def grades(verdict: Verdict) -> list[tuple[str, str]]:
    """What is sure and how far: [("cause", "proven"), ("rank", "likely")]. A healthy job has one answer only."""
    if verdict.cause == "none":
        return [("healthy", verdict.grade)]
    return [("cause", verdict.grade), ("rank", verdict.rank_grade)]


def named(verdict: Verdict) -> str:
    """The culprits: "17 on node-03", "1088-1095 on node-137", "node-137" where only the host is known."""
    ranks = rank_ranges(verdict.culprit_ranks, 60)
    hosts = printable(host_ranges({culprit.host for culprit in verdict.culprits if culprit.host}, 60))
    return " on ".join(filter(None, [ranks, hosts]))


def where(verdict: Verdict) -> str:
    """Where to look when no rank can be named; empty if one can, if nothing is wrong, or if nobody can tell."""
    group = verdict.group_ranks if len(verdict.group_ranks) > 1 and verdict.mechanism != "undecided" else ()
    if verdict.cause == "none" or verdict.culprits or not (verdict.hosts or group):
        return ""
    parts = [printable(host_ranges(verdict.hosts, 60))] if verdict.hosts else []
    if group:
        name = f"group {printable(verdict.group)}: " if verdict.group else ""
        parts.append(f"{name}ranks {rank_ranges(group, 60)}")
        if place := operation(verdict.op, verdict.seq, None):
            parts.append(f"in {place}")
    return "; ".join(parts)


def stopgaps(text: str) -> list[tuple[str, str]]:
    r"""Label and text of each line; one that warns of the obvious wrong move is labelled as what it is.

    >>> stopgaps("Restart without node-3.\nDon't raise the timeout: one rank was gone")
    [('stopgap', 'Restart without node-3.'), ("don't", 'raise the timeout: one rank was gone')]
    """
    rows = []
    for line in filter(None, printable(text, keep_lines=True).splitlines()):
        warning = next((start for start in ("don't ", "do not ") if line.lower().startswith(start)), "")
        rows.append(("don't" if warning else "stopgap", line[len(warning) :]))
    return rows
