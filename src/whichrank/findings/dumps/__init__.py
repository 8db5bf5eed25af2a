"""Flight Recorder dumps: who waits for whom, whose calls differ, and what that shows.

waits    each rank's oldest unfinished call, and where its members stand
roots    the ends of all waiting
calls    what has to be equal in a call
tracks   ranks' calls in rows, side by side
program  where a rank departed from what its peers called
pace     whether the job stood still at all
lateness who called its collectives late, before the hang or in a job that runs
trace    the conclusion
inferred the same where dumps list no members of groups, over all layouts that fit
words    the same in sentences, with the entries that prove it
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whichrank.facts import Fact
from whichrank.findings.dumps.inferred import concluded
from whichrank.findings.dumps.lateness import Lateness, lateness
from whichrank.findings.dumps.observed import limits
from whichrank.findings.dumps.trace import WEAK, Traced
from whichrank.findings.dumps.words import held, proofs, why
from whichrank.job.collectives import Collectives
from whichrank.ranges import several

MOST = 4096  # waiting ranks that get a fact of their own


@dataclass(frozen=True, slots=True)
class Told:
    """What the dumps say, ready to be weighed beside everything else.

    waits: for each waiting rank the call that holds it; proofs: the entries that the conclusion rests on; why: what
    follows the culprits' names, where there are any.
    """

    traced: Traced
    waits: tuple[Fact, ...]
    proofs: tuple[Fact, ...]
    why: str
    late: Lateness | None = None
    notes: tuple[str, ...] = ()  # what these dumps cannot show
    table: Collectives | None = None  # the job's, or with the groups that follow from how ranks use them

    @property
    def supposed(self) -> bool:
        """Does it rest on members of groups, or on ranks, that nothing states?"""
        return self.table is not None and (self.table.assumed or any(group.inferred for group in self.table.groups))

    @property
    def hang(self) -> bool:
        return self.traced.mechanism != "no_hang"

    @property
    def says(self) -> str:
        return f"{several(self.traced.culprits)} {self.why}" if self.traced.culprits else self.why


def tell(table: Collectives, hung: bool = False) -> Told:
    """hung: something else than the dumps says that a call timed out."""
    traced, shown = concluded(table, hung)
    if table.assumed:
        traced = replace(traced, sure=min(traced.sure, WEAK))
    waiting = sorted(traced.waiting)[:MOST] if traced.mechanism != "no_hang" else []
    return Told(
        traced,
        tuple(held(shown, waiting)),
        proofs(shown, traced),
        why(shown, traced),
        lateness(table),
        limits(shown, traced),
        shown,
    )
