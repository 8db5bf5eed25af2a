"""How much of what a rank printed is there. Silence counts only where the log is complete.

complete     the log ends with a whole line and nothing says that records were lost
cut          it ends in the middle of a line, or well before the others' while a collector was dropping records
rate_limited a collector says that it dropped records of this file
folded       the launcher folds equal lines ("[repeated 6x across cluster]")
unknown      nothing of this rank was collected
"""

from __future__ import annotations

from whichrank.facts import Coverage, Source, slashed
from whichrank.job.model import Job


def judge(job: Job) -> None:
    """Set the coverage of each source and rank."""
    dropped = [str(name) for fact in job.of("collector_drop") for name in (fact["files"] or ())]
    folded = {fact.spot.source.path for fact in job.of("folded")}
    for source in job.sources:
        if source.coverage == "unknown":
            source.coverage = _of_source(source, dropped, folded)
    for info in job.ranks.values():
        states: list[Coverage] = [source.coverage for source in info.sources if source.kind in ("training", "unknown")]
        if not states:
            info.coverage = "unknown"
        else:
            info.coverage = next((state for state in ("rate_limited", "cut", "folded") if state in states), "complete")


def _of_source(source: Source, dropped: list[str], folded: set[str]) -> Coverage:
    name = slashed(source.path).rsplit("/", 1)[-1]
    if any(name == entry.rsplit("/", 1)[-1] for entry in dropped):
        return "rate_limited"
    if source.path in folded:
        return "folded"
    return "cut" if source.ends_midline else "complete"
