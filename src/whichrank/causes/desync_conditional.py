"""desync_conditional: a branch that not all ranks take."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.causes import straggler
from whichrank.causes.base import RECORD, Cause, Clue, by_dumps, facts_of, own_failure
from whichrank.causes.desync_mismatch import alike
from whichrank.findings import Findings
from whichrank.findings.divergence import NEXT_PHASE
from whichrank.findings.raised import Raised
from whichrank.findings.stacks import parted_by_stack
from whichrank.job.model import Job
from whichrank.model import Check
from whichrank.ranges import several

_DDP_UNUSED = re.compile(r"Expected to have finished reduction in the prior iteration")


# A rank whose data ended left the loop for want of batches, not by a branch (desync_uneven_data).
ENDED = re.compile(
    r"exhaust|stopiteration|no more (?:data|batches|samples)|end of (?:data|epoch|shard|stream|dataset)|ran out(?! of (?:the |gpu |cuda |host |cpu |its )?(?:memory|time|disk|space|retries|attempts))|"
    r"out of (?:data|samples|batches)|finished (?:its |the )?(?:epoch|shard|data|loop)",
    re.I,
)


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    hang = bool(found.arrived.waits or found.stacks.mains or found.mismatch)
    candidates = (
        [
            p
            for p in found.partings
            if p.kind != "count" and p.sure >= 0.5 and not p.next_phase and not ENDED.search(p.sides[0].line.text)
        ]
        if hang
        else []
    )
    if found.raised is not None:  # who left the loop and stands in a later call took no branch within it
        candidates = [p for p in candidates if p.kind != "branch" or not NEXT_PHASE.search(p.sides[0].line.text)]
    for parting in sorted(
        candidates, key=lambda parting: (_agrees(found, parting.minority) is not True, -parting.sure)
    ):
        agrees = _agrees(found, parting.minority)
        odd, usual = parting.sides[0], parting.sides[-1]
        weight = {True: 5.5, None: 4.0, False: 1.0}[agrees] * parting.sure
        if parting.kind == "alone" and not parting.leaves:
            weight *= 0.5
        says = (
            f"{several(odd.ranks)} took another branch than {several(usual.ranks)}"
            if parting.kind == "branch"
            else f"only {several(odd.ranks)} printed {straggler.quoted(odd.line)} just before"
        )
        yield Clue(
            weight,
            "talk",
            says,
            facts_of([odd.line, usual.line] if parting.kind == "branch" else [odd.line]),
            parting.minority,
            mechanism="desync",
            sure_of_ranks=0.93 if agrees else 0.7,
        )
        break
    sides = found.sides
    if sides is not None and sides.what in ("op", "seq", "size"):
        a, b = sides.parties[0], sides.parties[-1]
        other_call = sides.what == "size" and not alike(a[1].size[0], b[1].size[0])
        weight = {"op": 2.0, "seq": 1.2, "size": 2.5 if other_call else 0.5}[sides.what]
        yield Clue(
            weight,
            "watchdog",
            f"{several(a[0])} waited in {a[1].op} #{a[1].seq}, {several(b[0])} in {b[1].op} #{b[1].seq}",
            (a[1].fact, b[1].fact),
            sides.minority if sides.what != "seq" else (),
            mechanism="desync",
            sure_of_ranks=0.6,
        )
    yield from _called_elsewhere(found)
    if (told := by_dumps(found, "desync")) is not None and not told.traced.left_the_loop:
        traced = told.traced
        yield Clue(4.6, "dump", told.says, told.proofs, traced.culprits, mechanism="desync", sure_of_ranks=traced.sure)
    if found.raised is not None:
        yield elsewhere(found.raised, 2.0)
    if found.mismatch is not None and any("op" in name.lower() for name in found.mismatch.differ):
        odd_ = found.mismatch
        yield Clue(
            4.0,
            "traceback",
            f"{several(odd_.odd) if odd_.odd else 'two sides'} called another operation",
            (odd_.odd_fact,),
            odd_.odd,
            mechanism="desync",
            sure_of_ranks=0.9,
        )
    yield from _by_list(found)
    yield from _unused(job, found)
    for failure in found.failed.roots:
        if _DDP_UNUSED.search(str(failure.fact["message"])):
            yield Clue(
                3.0,
                "traceback",
                "parameters took no part in the loss on some rank",
                (failure.fact,),
                mechanism="desync",
            )
            break
    if found.failed.first is not None and found.failed.first.kind != "exception":
        yield from own_failure(found, -3.0, "a rank failed by itself first")


def elsewhere(raised: Raised, weight: float) -> Clue:
    """By their tracebacks a few ranks stood in another collective than the rest."""
    facts = (raised.few_fact, raised.fact)
    return Clue(weight, "stack", raised.says, facts, raised.few, mechanism="desync", sure_of_ranks=0.85)


def _called_elsewhere(found: Findings) -> Iterator[Clue]:
    """The call sites: other ones are a branch, one and the same is none."""
    sides, called = found.sides, found.called_from
    if sides is None or called is None:
        return
    small, large = sides.parties[0][0], sides.parties[-1][0]
    if called.same:
        yield Clue(-2.0, "stack", f"all sides called from {called.odd}", (called.odd_fact, called.fact))
        return
    few = 4 * len(sides.minority) <= sum(len(ranks) for ranks, _ in sides.parties)
    yield Clue(
        3.5,
        "stack",
        f"{several(small)} called it from {called.odd}, {several(large)} from {called.usual}",
        (called.odd_fact, called.fact),
        sides.minority if few else (),
        mechanism="desync",
        sure_of_ranks=0.75,  # a majority alone proves nobody wrong
    )


def _unused(job: Job, found: Findings) -> Iterator[Clue]:
    """DDP names the parameters without a gradient on each rank that saw some: on few ranks, it was their branch."""
    told = [fact for fact in job.of("unused_parameters") if fact.rank is not None]
    ranks = tuple(sorted({fact.rank for fact in told if fact.rank is not None}))
    heard = {rank for rank, info in job.ranks.items() if info.said or info.facts}
    if ranks and 2 * len(ranks) < len(heard):  # of ranks that left no log nobody knows
        fact = next((fact for fact in told if fact["names"]), told[0])
        raised = [f for f in found.failed.roots if _DDP_UNUSED.search(str(f.fact["message"])) and f.rank in ranks]
        yield Clue(
            5.5 if raised else 4.0,
            "traceback",
            f"on {several(ranks)} alone parameters got no gradient: {fact['names'] or 'indices ' + str(fact['indices'])}",
            facts_of([fact, *(failure.fact for failure in raised[:1])]),
            ranks,
            mechanism="desync",
            sure_of_ranks=0.9,
        )


_HOW = {
    "operation": "called {odd} where {others} called {call}",
    "skipped": "left out {call}, which {others} called,",
    "extra": "called {odd}, which {others} did not,",
}


def _by_list(found: Findings) -> Iterator[Clue]:
    """NCCL's own list of operations: another operation, one left out, one too many."""
    called = found.enqueued.different
    if called is None or called.what == "arguments" or found.ending.well:
        return
    says = _HOW[called.what].format(odd=called.odd_call[0], call=called.call[0], others=several(called.others))
    yield Clue(
        4.5,
        "operations",
        f"by NCCL's own list {several(called.odd) if called.odd else 'one side'} {says} as operation {called.number} of the communicator",
        (called.odd_fact, called.fact),
        called.odd,
        mechanism="desync",
        sure_of_ranks=0.85,
    )


def _agrees(found: Findings, ranks: tuple[int, ...]) -> bool | None:
    """Do other findings single out the same ranks? None: they say nothing."""
    mine = set(ranks)
    if found.raised is not None:
        return mine == set(found.raised.few)
    if found.sides is not None:
        parties = [set(party) for party, _ in found.sides.parties]
        return mine in parties or any(mine == set().union(*(p for p in parties if p is not q)) for q in parties)
    if any(set(named.ranks) == mine for named in found.arrived.named):
        return True
    suspects = set(found.arrived.suspects)
    if found.arrived.waits and suspects:
        return suspects == mine
    by_stack = parted_by_stack(found.stacks)
    if by_stack:
        return mine in ({s.rank for s in by_stack[0]}, {s.rank for s in by_stack[1]})
    return None


CAUSE = Cause(
    id="desync_conditional",
    title="a branch that not all ranks take",
    means="A condition was true on some ranks only, and a collective stands behind it (saving, logging, skipping a sample, another module): from there on the ranks call different collectives.",
    looks_like="Ranks print different versions of the same message, or one rank alone skips something, and then wait in different operations or one operation apart.",
    settles=(
        Check("the two call sites during the hang: py-spy dump on one rank of each side"),
        Check("the two call sites the next time: Flight Recorder dumps of all ranks", f"export {RECORD}"),
    ),
    fix=(
        "Decide once, for all: flag = torch.tensor([cond], device=dev, dtype=torch.int32); dist.all_reduce(flag, op=dist.ReduceOp.MAX); take the branch on flag, not on the local value.",
        "Values that steer control flow must be equal on all ranks: all_reduce, not reduce (which gives the result to one rank only); compare the synchronised one.",
    ),
    stopgap="Disable the conditional path (best-model saving, skipping, early stopping) and resume.",
    weigh=weigh,
    mechanism="desync",
    verb="took a branch that the others did not take",
    dont="raise the timeout: the ranks wait for different things",
)
