"""desync_uneven_data: the ranks have different numbers of batches."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.causes.base import Cause, Clue, by_dumps, facts_of, own_failure
from whichrank.causes.desync_conditional import ENDED, _agrees, elsewhere
from whichrank.findings import Findings
from whichrank.findings.divergence import Parting
from whichrank.findings.stacks import parted_by_stack
from whichrank.job.model import Job
from whichrank.model import Check
from whichrank.ranges import several

_BATCHES = re.compile(
    r"batch|sample|cut|utter|example|item|row|record|shard|file|iter|step|sequence|document|length|size|prompt|rollout|chunk|token|clip|frame|image|turn",
    re.I,
)


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    hang = bool(found.arrived.waits or found.stacks.mains or found.mismatch)
    if not hang:
        return
    if (told := by_dumps(found, "desync")) is not None and told.traced.left_the_loop:
        traced = told.traced
        says = (
            f"{several(traced.culprits)} left the loop that the others are in: {'they' if len(traced.culprits) > 1 else 'it'} {told.why}"
            if traced.culprits
            else told.why
        )
        yield Clue(4.6, "dump", says, told.proofs, traced.culprits, mechanism="desync", sure_of_ranks=traced.sure)
    counts = [p for p in found.partings if p.kind == "count" and p.sure >= 0.5]
    counted = _best(found, counts)
    ended = _best(found, [p for p in found.partings if p.kind == "alone" and ENDED.search(p.sides[0].line.text)])
    gone_on = next(
        (p for p in found.partings if p.kind == "alone" and p.next_phase and _agrees(found, p.minority)), None
    )
    if ended is None and gone_on is not None:
        yield Clue(
            4.2,
            "talk",
            f"{several(gone_on.minority)} had left the loop for the next phase, the others were still in it",
            facts_of([gone_on.sides[0].line]),
            gone_on.minority,
            mechanism="desync",
            sure_of_ranks=0.93,
        )
    if counted is not None:
        odd, usual = counted.sides[0], counted.sides[-1]
        if set(usual.ranks) == set(found.arrived.suspects):
            odd, usual = usual, odd  # those who are not in the collective are through, few or many
        agrees = _agrees(found, odd.ranks)
        fits = bool(_BATCHES.search(counted.counted))
        weight = {True: 5.8, None: 4.0, False: 0.8}[agrees] * counted.sure * (1.0 if fits else 0.5)
        yield Clue(
            weight,
            "talk",
            f"{several(odd.ranks)} counted {odd.value} {counted.counted}, but {several(usual.ranks)} counted {usual.value}",
            facts_of([odd.line, usual.line]),
            odd.ranks,
            mechanism="desync",
            sure_of_ranks=0.93 if agrees else 0.7,
        )
    if ended is not None:
        agrees = _agrees(found, ended.minority)
        weight = {True: 6.2, None: 5.0, False: 2.0}[agrees]
        yield Clue(
            weight,
            "talk",
            f"{several(ended.minority)} ran out of batches, the others had more",
            facts_of([ended.sides[0].line]),
            ended.minority,
            mechanism="desync",
            sure_of_ranks=0.93,
        )
    parted = parted_by_stack(found.stacks)
    if parted and (counted is not None or ended is not None):
        small, large = parted
        yield Clue(
            1.5,
            "stack",
            "the two sides stand in different collectives",
            (small[0].fact, large[0].fact),
            tuple(sorted(s.rank for s in small if s.rank is not None)),
        )
    if found.sides is not None and (counted is not None or ended is not None):
        a, b = found.sides.parties[0], found.sides.parties[-1]
        yield Clue(
            1.5,
            "watchdog",
            f"{several(a[0])} waited in {a[1].op} #{a[1].seq}, {several(b[0])} in {b[1].op} #{b[1].seq}",
            (a[1].fact, b[1].fact),
            mechanism="desync",
        )
    if found.raised is not None:
        yield elsewhere(found.raised, 2.0)
    yield from own_failure(found, -3.0, "a rank failed by itself first")


def _best(found: Findings, partings: list[Parting]) -> Parting | None:
    """The parting that other findings single out too, else the most telling that none contradicts, else the first."""
    order = {True: 0, None: 1, False: 2}
    return min(partings, key=lambda parting: (order[_agrees(found, parting.minority)], -parting.sure), default=None)


CAUSE = Cause(
    id="desync_uneven_data",
    title="different numbers of batches",
    means="The ranks do not have the same number of batches (or micro-batches): one leaves the loop while the others still call the loop's collectives.",
    looks_like="Counts of samples or micro-batches differ by rank; one rank reports the end of its data or goes on to the next phase, the others stand in backward or in a gather.",
    settles=(
        Check(
            "the counts: print len(loader) (and the number of micro-batches each step) on every rank; all_gather them and assert that they are equal"
        ),
    ),
    fix=(
        "Same number on all ranks: DistributedSampler(drop_last=True), even shards, or pad; with dynamic batching all_reduce(MAX) the number of micro-batches and run empty ones.",
        "Or let ranks leave early safely: with torch.distributed.algorithms.join.Join([model]): … (DDP, ZeRO).",
    ),
    stopgap="Limit the epoch to the smallest count (max_steps).",
    weigh=weigh,
    mechanism="desync",
    verb="had another number of batches than the others",
    dont="raise the timeout: the missing batch never comes",
)
