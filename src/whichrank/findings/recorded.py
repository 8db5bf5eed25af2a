"""What the ranks' own recorders say: who waits in a collective, and who is elsewhere, since when.

A rank waits if its recorder's phase is a collective, or its stack stood in one or in the backward pass, for
some seconds at its last sign of life. Whoever had been in another phase for so long by then is the one waited for.
"""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.evidence.stack_class import classify
from whichrank.facts import Fact
from whichrank.findings.stacks import WAITING
from whichrank.job.model import Job

WAITED = 4.0  # seconds: no step of a healthy loop waits so long, and where one does nobody is elsewhere for so long
STOOD = 6.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """`waits`: a rank's `phase` fact, or its stack's; `stood`: the `phase` facts of ranks that were elsewhere."""

    waits: tuple[Fact, ...]
    stood: tuple[Fact, ...]

    def of(self, *phases: str) -> tuple[Fact, ...]:
        """Of those that stood elsewhere while others waited, the ranks in one of these phases."""
        return tuple(fact for fact in self.stood if fact["name"] in phases)


def recorded(job: Job) -> Recorded | None:
    """None where no recorder shows that anybody waits."""
    last = {fact.rank: fact for fact in job.of("phase") if fact.rank is not None}
    if len(last) < 2:
        return None
    stacks = {fact.rank: fact for fact in job.of("stack") if fact["tool"] == "recorder" and fact["main"]}
    waits, stood = [], []
    for rank, fact in sorted(last.items()):
        stack = stacks.get(rank)
        inside = fact["name"] == "collective" or _blocked(stack)
        seconds = float(fact["seconds"] or 0)
        if inside and seconds >= WAITED:
            waits.append(fact)
        elif not inside and seconds >= STOOD and not fact["exiting"]:
            stood.append(fact)
    if not waits or len(stood) > len(waits):
        return None
    return Recorded(tuple(waits), tuple(stood))


AT_ONCE = 20_000_000  # ns: who goes within that is gone together


def first_gone(job: Job) -> Fact | None:
    """The rank whose process the watcher saw end before all others, neither in order nor by an exception, and not after
    the job was told to end."""
    ends = sorted(job.of("rank_end"), key=lambda fact: fact.at_ns or 0)
    if len(ends) < 2 or ends[0]["in_order"] or ends[0]["raised"] or ends[0]["told"]:
        return None
    return ends[0] if (ends[1].at_ns or 0) - (ends[0].at_ns or 0) > AT_ONCE else None


def _blocked(stack: Fact | None) -> bool:
    return stack is not None and classify([str(frame) for frame in stack["frames"] or ()]) in WAITING
