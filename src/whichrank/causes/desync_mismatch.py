"""desync_mismatch: the same place in the program, another shape, type or operation."""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.causes.base import RECORD, Cause, Clue, by_dumps
from whichrank.findings import Findings
from whichrank.findings.operation_logs import Call
from whichrank.job.model import Job
from whichrank.model import Check
from whichrank.ranges import several


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    odd = found.mismatch
    if odd is not None:
        what = ", ".join(odd.differ) or "arguments"
        only_args = bool(odd.differ) and not any("op" in name.lower() for name in odd.differ)
        sure = 0.95 if odd.odd else 0.5
        yield Clue(
            6.5 if only_args else 4.5,
            "traceback",
            f"{several(odd.odd) if odd.odd else 'two sides'} called {odd.op or 'the collective'} with another {what}",
            (odd.odd_fact, odd.fact),
            odd.odd,
            decisive=only_args and bool(odd.odd),
            mechanism="mismatch" if only_args else "desync",
            sure_of_ranks=sure,
        )
    sides = found.sides
    if sides is not None and sides.what == "size":
        small, large = sides.parties[0], sides.parties[-1]
        matching = [p for p in found.partings if set(p.minority) in (set(small[0]), set(large[0]))]
        branch = any(p.kind in ("branch", "alone") for p in matching)
        # Sizes of one tensor that lost some rows are near each other; another collective has quite another size.
        near = alike(small[1].size[0], large[1].size[0])
        called = found.called_from
        yield Clue(
            1.0 if called and not called.same else 4.5 if near or (called and called.same) else 1.0 if branch else 2.0,
            "watchdog",
            f"at the same sequence number {several(small[0])} passed {small[1].size[0]} elements, {several(large[0])} {large[1].size[0]}",
            (small[1].fact, large[1].fact),
            sides.minority,
            mechanism="mismatch",
            sure_of_ranks=0.7,
        )
        if called is not None and called.same:
            yield Clue(1.0, "stack", f"all sides called from {called.odd}", (called.odd_fact, called.fact))
    if (sent := found.received) is not None and not found.ending.well:
        # Two different calls that met have sizes of quite another order.
        near = alike(sent.received, sent.expected)
        yield Clue(
            4.5 if near else 2.5, "watchdog", sent.says, (sent.fact,), sent.odd, mechanism="mismatch",
            sure_of_ranks=sent.sure,
        )  # fmt: skip
    listed = found.enqueued.different
    if listed is not None and listed.what == "arguments" and not found.ending.well:
        yield Clue(
            5.5,
            "operations",
            f"by NCCL's own list, at operation {listed.number} of the communicator {several(listed.odd) if listed.odd else 'one side'} passed {_said(listed.odd_call)}, {several(listed.others)} {_said(listed.call)}",
            (listed.odd_fact, listed.fact),
            listed.odd,
            mechanism="mismatch",
            sure_of_ranks=0.8,  # a majority alone proves nobody wrong
        )
    if (told := by_dumps(found, "mismatch")) is not None:
        traced = told.traced
        yield Clue(
            6.2 if traced.culprits else 5.0,
            "dump",
            told.says,
            told.proofs,
            traced.culprits,
            decisive=traced.sure >= 0.95,
            mechanism="mismatch",
            sure_of_ranks=traced.sure,
        )
    for parting in found.partings[:3]:
        if odd is not None and set(parting.minority) == set(odd.odd) and parting.minority:
            yield Clue(
                1.0,
                "talk",
                f"{several(parting.minority)} alone said so just before",
                (parting.sides[0].line,),
                parting.minority,
                sure_of_ranks=0.97,
            )
            break


def _said(call: Call) -> str:
    name, count, datatype, operator, root = call
    rooted = f" from {root}" if name == "Broadcast" else f" to {root}" if name in ("Reduce", "Gather") else ""
    return f"{name}{rooted} of {count} {datatype}{f', {operator}' if operator not in ('', 'sum') else ''}"


def alike(a: object, b: object) -> bool:
    """Two sizes of one and the same call, rather than of two calls."""
    return isinstance(a, int) and isinstance(b, int) and min(a, b) > 0 and max(a, b) < 2 * min(a, b)


CAUSE = Cause(
    id="desync_mismatch",
    title="the same place, another shape, type or operation",
    means="All ranks reached the same place, but one passed another shape, type or operation; the collective cannot complete.",
    looks_like="'Detected mismatch between collectives' with two shapes, or equal sequence numbers with different NumelIn.",
    settles=(
        Check("name the call and both shapes: rerun with TORCH_DISTRIBUTED_DEBUG=DETAIL (slow: for debugging only)"),
        Check("the call sites the next time: Flight Recorder dumps of all ranks", f"export {RECORD}"),
    ),
    fix=(
        "Another shape or size: make it equal before the call, pad to the maximum over ranks (all_reduce(MAX) of the length, then pad), or use all_gather_object / uneven all-to-all with exchanged sizes; drop or pad on all ranks alike where batches are made.",
        "Another type: cast before the call on all ranks alike. Another operation: a branch stands before it, decide it once for all ranks (all_reduce the flag).",
    ),
    stopgap="Where shapes differ: drop_last=True, fixed batch size.",
    weigh=weigh,
    mechanism="mismatch",
    verb="made the collective otherwise than the others",
    dont="raise the timeout: this collective can never complete",
)
