"""What the dumps of an incident can show at all, decided from what the simulation knows and the files hold.

Conservative on purpose: where another rank's evidence looks the same as the culprit's, the culprit counts as not
identifiable, and `candidates` names all who look alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from lab.simulate.engine import Rank
from lab.simulate.layout import Group, Layout
from lab.simulate.ops import COLLECTIVE, Op
from lab.simulate.recorder import made_by
from lab.simulate.scene import Fault
from lab.simulate.watchdog import Looks


@dataclass(frozen=True, slots=True)
class View:
    """What is left to look at."""

    present: frozenset[int]
    backend: str
    timing: bool
    frames: str  # python, generated, off
    ring: int
    dtypes: bool = True  # written from format 2.1 on


@dataclass(slots=True)
class Answer:
    identifiable: bool
    reason: str
    candidates: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Waits:
    """Who waits for whom at the dumps. A call's key is its communicator and number."""

    pending: dict[int, list[tuple[Op, list[tuple[int, object, int]]]]]
    issued: dict[tuple[int, object], int]

    def absent(self, waiter: int) -> set[int]:
        """The ranks that have not issued something on which `waiter` waits."""
        return {peer for _, needs in self.pending.get(waiter, ()) for peer in self.absent_from(needs)} - {waiter}

    def absent_from(self, needs: list[tuple[int, object, int]]) -> set[int]:
        return {peer for peer, key, at in needs if self.issued.get((peer, key), 0) <= at}


def waits(ranks: list[Rank], looks: Looks) -> Waits:
    """Counts what each rank has issued by its dump, and what it has open."""
    issued: dict[tuple[int, object], int] = defaultdict(int)
    pending: dict[int, list[tuple[Op, list[tuple[int, object, int]]]]] = defaultdict(list)
    for rank in ranks:
        until = looks.at[rank.number]
        for op in rank.ops:
            if not op.communicates or op.group is None:
                continue
            if op.created is None or op.created > until:
                break
            needs: list[tuple[int, object, int]] = []
            if op.kind == COLLECTIVE:
                key: object = op.group.index
                needs = [(member, key, issued[rank.number, key]) for member in op.group.ranks]
                issued[rank.number, key] += 1
            for part in op.parts:
                ends = (rank.number, part.peer) if part.sends else (part.peer, rank.number)
                key = (op.group.index, op.batched, *ends)
                needs.append((part.peer, key, issued[rank.number, key]))
                issued[rank.number, key] += 1
            if op.end is None or op.end > until or op.unseen:
                pending[rank.number].append((op, needs))
    return Waits(dict(pending), dict(issued))


def judge(fault: Fault, layout: Layout, ranks: list[Rank], looks: Looks, view: View) -> Answer:
    """Can somebody who has only these files name exactly `fault.culprits`, or the group where there are none?"""
    found = waits(ranks, looks)
    answer = _JUDGES[fault.kind](fault, layout, found, view, ranks)
    open_entries = {r: sum(made_by(op, view.backend) for op, _ in found.pending.get(r, ())) for r in view.present}
    if any(entries > view.ring for entries in open_entries.values()):
        answer = Answer(False, "a ring has lost calls that are still open", [*range(layout.world)])
    answer.candidates = sorted({*answer.candidates, *fault.culprits})
    return answer


# ---- a rank that stopped


def _stopped(fault: Fault, layout: Layout, found: Waits, view: View, ranks: list[Rank]) -> Answer:
    culprits = set(fault.culprits)
    waiting: dict[int, set[int]] = {w: found.absent(w) for w in sorted(view.present)}
    wanted = {m for w, absent in waiting.items() for m in absent if m != w}
    for culprit in fault.culprits:
        if culprit not in wanted:
            return Answer(False, f"no rank whose dump is there waits for rank {culprit}", [*range(layout.world)])
    gone = culprits - view.present
    if gone:
        fault.also = ["undecided"]  # a file that is not there does not say why
    lost = set(range(layout.world)) - view.present - culprits
    suspects = _unexplained(found, view) if gone and lost else gone
    alike = suspects - culprits
    if gone - suspects:
        return Answer(False, "every wait for it has another explanation", sorted(alike))
    if alike:
        return Answer(False, "innocent ranks without a dump are waited for just as the culprit is", sorted(alike))
    idle = {m for m in wanted & view.present - culprits if not _shows(found, m, view)}
    if idle:
        return Answer(
            False, "innocent ranks wait in calls that the recorder does not hold, and look idle", sorted(idle)
        )
    busy = {c for c in culprits & view.present if _shows(found, c, view) and found.absent(c) - culprits}
    if busy:
        return Answer(False, "the culprit itself has open calls on which others are awaited")
    return Answer(
        True, "others wait for it and it waits for nothing" if not gone else "the only rank awaited without a dump"
    )


def _unexplained(found: Waits, view: View) -> set[int]:
    """Ranks without a dump that take part in a call which is the oldest open one of all its other members.

    What they issued themselves nobody can see: any of them may be the one that never came. A member with an older open
    call, or that has not issued this one, explains the wait without them.
    """
    suspects: set[int] = set()
    for waiter in view.present:
        for op, needs in found.pending.get(waiter, ())[:1]:
            members = {peer for peer, _, _ in needs} | {waiter}
            oldest = [found.pending.get(m, [])[:1] for m in members & view.present]
            if all(held and _same(op, needs, *held[0]) for held in oldest):
                suspects |= members - view.present
    return suspects


def _same(op: Op, needs: list[tuple[int, object, int]], other: Op, others: list[tuple[int, object, int]]) -> bool:
    """The same collective, or two ends of the same transfer."""
    if op.group is not other.group or op.kind != other.kind:
        return False
    if op.kind == COLLECTIVE:
        return needs[0][2] == others[0][2]
    return bool({(key, at) for _, key, at in needs} & {(key, at) for _, key, at in others})


def _shows(found: Waits, rank: int, view: View) -> bool:
    """Does its dump hold an open entry? Gloo records no sends and receives."""
    return any(op.kind == COLLECTIVE or view.backend == "nccl" for op, _ in found.pending.get(rank, ()))


def _gpu(fault: Fault, layout: Layout, found: Waits, view: View, ranks: list[Rank]) -> Answer:
    culprit = fault.culprits[0]
    open_there = found.pending.get(culprit, [])
    if not open_there:
        return Answer(False, "its host issued nothing after the kernel that hangs")
    first = open_there[0][0]
    members = set(first.group.ranks) if first.group else set()
    fault.group_ranks = sorted(members)
    if any(op.unseen and op.group and view.present & set(op.group.ranks) - {culprit} for op, _ in open_there):
        return Answer(True, "calls that its peers finished are open on it")
    fault.also = ["undecided"]
    absent = {m for w in view.present for m in found.absent(w)}
    if absent - {culprit}:
        fault.also.append("host_stuck")
    if not view.timing:
        return Answer(False, "no start events: every member has the same call open", sorted(members))
    if not members - {culprit} & view.present:
        return Answer(False, "no peer's dump is there to compare with")
    others = [op for m in members & view.present for op, _ in found.pending.get(m, ())[:1]]
    if sum(op.start is None for op in others) != 1 or first.start is not None:
        return Answer(False, "more than one member has not started", sorted(members))
    return Answer(True, "the only member whose kernel never started")


# ---- calls that differ


def _desync(fault: Fault, layout: Layout, found: Waits, view: View, ranks: list[Rank]) -> Answer:
    group = _group(layout, fault.group_ranks)
    assert group is not None
    present = [m for m in group.ranks if m in view.present]
    alike = sorted(group.ranks)
    if fault.kind == "dtype_mismatch" and not view.dtypes:
        fault.also = ["undecided", "network", "gpu_hang"]
        return Answer(False, "this format does not write dtypes", alike)
    siblings = [g for g in layout.siblings(group) if set(g.ranks) <= view.present]
    silent = fault.kind in ("skipped_collective", "extra_collective") and not _visible(found, group, view)
    if silent and view.frames != "python":
        return Answer(
            False, "the calls after it have the same shapes, and without call sites only a count is off", alike
        )
    if silent and fault.detail["site"] == "ddp_bucket":
        return Answer(False, "calls made by C++ have no call site, and have the same shapes", alike)
    if silent and _forgotten(fault, ranks, view):
        return Answer(False, "the ring has lost the place where the calls part", alike)
    if len(present) >= 3:
        return Answer(True, "the others of the group agree on what it should have called")
    if len(present) < len(group.ranks):
        return Answer(False, "a member of a small group has no dump", alike)
    if siblings and (view.frames == "python" or "mismatch" in fault.kind):
        return Answer(True, "other groups of the same role show what it should have called")
    return Answer(False, "one against one: nothing says which side is wrong", alike)


def _forgotten(fault: Fault, ranks: list[Rank], view: View) -> bool:
    """Has a culprit's ring lost the beginning of the step in which it went wrong?"""
    for culprit in fault.culprits:
        since = sum(
            made_by(op, view.backend)
            for op in ranks[culprit].ops
            if op.created is not None and op.step >= int(str(fault.detail["step"]))
        )
        if since > view.ring:
            return True
    return False


def _visible(found: Waits, group: Group, view: View) -> bool:
    """Do members that left a dump hold different calls under the same number?"""
    seen: dict[int, set[object]] = defaultdict(set)
    for rank in sorted(view.present & set(group.ranks)):
        for op, needs in found.pending.get(rank, ()):
            if op.group is group and op.kind == COLLECTIVE:
                seen[needs[0][2]].add((op.name, op.dtype, tuple(map(tuple, op.inputs))))
    return any(len(calls) > 1 for calls in seen.values())


def _group(layout: Layout, ranks: list[int] | None) -> Group | None:
    """The group with exactly these ranks."""
    return next((g for g in layout.groups if ranks is not None and [*g.ranks] == ranks), None)


def _uneven(fault: Fault, layout: Layout, found: Waits, view: View, ranks: list[Rank]) -> Answer:
    if not set(fault.culprits) <= view.present:
        return Answer(
            False, "ranks of the replica that left have no dump", sorted(set(range(layout.world)) - view.present)
        )
    if layout.dp < 3 and view.frames == "off":
        return Answer(
            False, "two replicas differ, and without call sites nothing says which left", [*range(layout.world)]
        )
    return Answer(True, "one replica is in another call than all others")


def _order(fault: Fault, layout: Layout, found: Waits, view: View, ranks: list[Rank]) -> Answer:
    group = _group(layout, fault.group_ranks)
    assert group is not None
    present = view.present & set(group.ranks)
    siblings = [g for g in layout.siblings(group) if set(g.ranks) <= view.present]
    if len(present) < 3 and not (siblings and len(present) == len(group.ranks)):
        return Answer(False, "one order against one", [*group.ranks])
    return Answer(True, "one rank's order against all others'")


def _pairs(fault: Fault, layout: Layout, found: Waits, view: View, ranks: list[Rank]) -> Answer:
    pair = set(fault.group_ranks or ())
    if not pair <= view.present:
        return Answer(False, "an end of the pair has no dump", sorted(pair))
    pipelines = [
        g for g in layout.groups if g.role == "pp" and not pair & set(g.ranks) and set(g.ranks) <= view.present
    ]
    if len(pipelines) < 2 and view.frames != "python":
        return Answer(False, "too few other pipelines to say which end is wrong", sorted(pair))
    if _forgotten(fault, ranks, view):
        return Answer(False, "the ring has lost the turn that is wrong", sorted(pair))
    if any(len(found.pending.get(rank, ())) == 0 for rank in pair):
        return Answer(False, "an end has nothing open", sorted(pair))
    return Answer(True, "other pipelines, or its own other turns, show what it should have called")


def _split(fault: Fault, layout: Layout, found: Waits, view: View, ranks: list[Rank]) -> Answer:
    return Answer(False, "splits are not recorded: either end may be wrong", [int(str(fault.detail["peer"]))])


# ---- no rank


def _network(fault: Fault, layout: Layout, found: Waits, view: View, ranks: list[Rank]) -> Answer:
    if fault.hits:
        fault.group_ranks = sorted(min(fault.hits)[1])
    if not view.timing:
        fault.also = ["undecided"]
        return Answer(False, "no start events: entered and never started look the same", [*(fault.group_ranks or [])])
    if not set(fault.group_ranks or ()) <= view.present:
        return Answer(False, "a member of the group has no dump", [*(fault.group_ranks or [])])
    return Answer(True, "all members started and none ended")


def _slow(fault: Fault, layout: Layout, found: Waits, view: View, ranks: list[Rank]) -> Answer:
    if fault.detail["shape"] == "shards":
        fault.also = ["undecided", "host_stuck"]
        return Answer(False, "what those who are late do is not in the dumps", [*range(layout.world)])
    fault.also = ["undecided"]
    return Answer(True, "everyone is in and calls of the same group go on ending until the dump")


def _healthy(fault: Fault, layout: Layout, found: Waits, view: View, ranks: list[Rank]) -> Answer:
    return Answer(True, "nothing is open longer than a few steps take")


_JUDGES: dict[str, Callable[[Fault, Layout, Waits, View, list[Rank]], Answer]] = {
    **dict.fromkeys(("host_stuck", "late_then_stuck", "two_culprits", "dead", "rank0_checkpoint"), _stopped),
    **dict.fromkeys(
        ("skipped_collective", "extra_collective", "size_mismatch", "dtype_mismatch", "op_mismatch"), _desync
    ),
    **dict.fromkeys(("missing_send", "missing_recv"), _pairs),
    **dict.fromkeys(("healthy", "straggler"), _healthy),
    "gpu_hang": _gpu,
    "order_inversion": _order,
    "uneven_data": _uneven,
    "split_mismatch": _split,
    "network": _network,
    "timeout_short": _slow,
}
