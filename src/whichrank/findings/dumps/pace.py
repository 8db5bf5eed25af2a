"""Does the job stand still, or was it only looked at while it ran?

Dumps are taken one after the other, up to seconds apart. In a job that stands still that makes no difference; in one
that goes on, ranks that were looked at later have got further than those before them can have.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from whichrank.dump import COLLECTIVE, COMPLETED, NEVER, PART, UNVERSIONED, Flags, ends_early
from whichrank.findings.dumps.roots import Root
from whichrank.findings.dumps.waits import Transfers, Waits
from whichrank.job.collectives import UNUSED, Collectives, Ring

QUEUED = 0.2  # part of its timeout that a call had waited when one before it still ended
LEAST = 20e9  # ns
FRESH = 2e9  # ns: such a pause is nothing yet
LOOKED_AT = 64  # unfinished calls of a rank, members of a group


def goes_on(table: Collectives, waits: Waits, roots: list[Root], unequal: frozenset[int], hidden: bool) -> float:
    """How likely it is that the job was running when it was dumped; 0 where nothing says so.

    unequal: what `open_and_ended` found. hidden: ranks may wait in calls that the recorder does not hold.
    """
    if _stood_long(table, waits):
        return 0.0
    if _ahead_of_a_member(table) or _just_ended(table):
        return 0.9
    present = len(table.rings)
    if table.backend == "gloo" and not table.missing and all(_ending(waits, rank) for rank in waits.held):
        return 0.7  # all have made the last call, some are through it
    behind = {rank for root in roots if root.kind == "behind" for rank in root.ranks}
    stuck = {rank for root in roots if root.kind == "behind" and 2 * len(root.reach) >= present for rank in root.ranks}
    if len(unequal | behind) >= 2 and not unequal | behind <= stuck:
        return 0.85
    # Who has nothing unfinished and keeps nobody waiting is at work, or has ended.
    wide = max((len(root.reach) for root in roots if root.kind == "idle"), default=0)
    if table.backend == "gloo" and 2 * wide >= present:
        return 0.0  # after the errors of a hang ranks leave one by one
    waited_for = awaited(table, waits.idle) | {root.ranks[0] for root in roots if root.kind == "idle"}
    return 0.6 if not hidden and not table.missing and waits.idle - waited_for else 0.0


def fresh(table: Collectives, waits: Waits) -> bool:
    """Were the dumps written when nobody had waited for long? By their files' times, which copying renews."""
    waited = []
    for rank, unit in waits.held.items():
        dump = table.rings[rank].dump
        waited.append(dump.source.written_ns - int(dump.created[unit.at]))
    return bool(waited) and min(waited) > -1e9 and max(waited) < FRESH


def at_timeout(table: Collectives, waits: Waits) -> bool:
    """Were the dumps written just when the calls had waited for their timeout, as the watchdog does?"""
    for rank, unit in waits.held.items():
        dump = table.rings[rank].dump
        created, limit = int(dump.created[unit.at]), int(dump.timeout_ms[unit.at]) * 1_000_000
        if created <= 0 or limit <= 0 or abs(dump.source.written_ns - created - limit) > max(LEAST, 0.1 * limit):
            return False
    return bool(waits.held)


def _ending(waits: Waits, rank: int) -> bool:
    standing = waits.standing(rank)
    return bool(standing.done) and not standing.blockers and not standing.doubts


def awaited(table: Collectives, idle: Iterable[int]) -> set[int]:
    """Of these ranks, those that did not make a collective which is unfinished elsewhere."""
    asked: dict[int, int] = {}
    for ring in table.rings.values():
        dump = ring.dump
        for at in ring.open_at:
            if dump.kind[at] == COLLECTIVE:
                group = int(ring.group[at])
                asked[group] = max(asked.get(group, NEVER), int(dump.seq[at]))
    those = set(idle)
    return {
        rank
        for group, seq in asked.items()
        for rank in those.intersection(table.groups[group].members)
        if _last(table.rings[rank], group) < seq
    }


def _last(ring: Ring, group: int) -> int:
    return ring.places.get(group, UNUSED).last


def stood(table: Collectives, waits: Waits) -> int:
    """ns from the oldest of the calls that hold ranks to the last moment of which any dump knows."""
    created = [int(table.rings[rank].dump.created[unit.at]) for rank, unit in waits.held.items()]
    return table.last_ns - min((at for at in created if at > 0), default=table.last_ns)


def _stood_long(table: Collectives, waits: Waits) -> bool:
    """Is a moment on record at which the oldest call had been open for much of its timeout?"""
    last = table.last_ns
    for rank, unit in waits.held.items():
        dump = table.rings[rank].dump
        created, limit = int(dump.created[unit.at]), int(dump.timeout_ms[unit.at]) * 1_000_000
        if created > 0 and limit > 0 and last - created > 0.5 * limit:
            return True
    return False


def _just_ended(table: Collectives) -> bool:
    """Had a call ended that the watchdog, which looks ten times a second, had not yet put away?"""
    for ring in table.rings.values():
        dump = ring.dump
        if dump.backend != "gloo" and bool(((dump.state == COMPLETED) & ~dump.retired & (dump.kind != PART)).any()):
            return True
    return False


def _ahead_of_a_member(table: Collectives) -> bool:
    """Did a call end on one rank that another member had not yet made?"""
    done: dict[int, int] = {}
    for ring in table.rings.values():
        for group in ring.places:
            at = ring.calls(group)
            early = those_ending_early(ring.dump.names)
            ended = at[~ring.dump.open[at] & ~early[ring.dump.name[at]] & (at < ring.surely)]
            if len(ended):
                done[group] = max(done.get(group, NEVER), int(ring.dump.seq[ended[-1]]))
    hidden = _counting_transfers(table)
    return any(
        place.last != NEVER and place.last < done.get(group, NEVER) and not table.groups[group].own
        for ring in table.rings.values()
        for group, place in ring.places.items()
        if group not in hidden
    )


def _counting_transfers(table: Collectives) -> set[int]:
    """PyTorch 2.2 counted sends and receives with the collectives: who left one out has lower numbers from then on."""
    return {
        int(group)
        for ring in table.rings.values()
        if ring.dump.version == UNVERSIONED
        for group in np.unique(ring.group[ring.dump.kind != COLLECTIVE])
    }


def open_and_ended(table: Collectives) -> frozenset[int]:
    """Ranks on which a call is unfinished that ended on another member."""
    found: set[int] = set()
    transfers = Transfers(table)
    ended: dict[tuple[int, int], frozenset[int]] = {}
    for rank, ring in table.rings.items():
        for at in ring.open_at[:LOOKED_AT]:
            if _elsewhere(table, transfers, ended, ring, at):
                found.add(rank)
                break
    return frozenset(found)


def _elsewhere(
    table: Collectives, transfers: Transfers, ended: dict[tuple[int, int], frozenset[int]], ring: Ring, at: int
) -> bool:
    """Has this unfinished call ended on another rank? `ended`: on which it has, of the calls asked for so far."""
    group, seq = table.groups[int(ring.group[at])], int(ring.dump.seq[at])
    if ring.dump.kind[at] != COLLECTIVE:
        return "done" in transfers.stands(ring, at).values()
    if group.own or ends_early(ring.dump.names[int(ring.dump.name[at])]):
        return False
    call = (group.number, seq)
    if call not in ended:
        ended[call] = frozenset(member for member in group.members[:LOOKED_AT] if _ended(table, member, *call))
    return not ended[call] <= {ring.rank}


def _ended(table: Collectives, member: int, group: int, seq: int) -> bool:
    ring = table.rings.get(member)
    at = ring.find(group, seq) if ring is not None else None
    return ring is not None and at is not None and ring.ended(at)


@lru_cache(64)  # dumps of a job share their tables of names
def those_ending_early(names: tuple[str, ...]) -> Flags:
    return np.array([ends_early(name) for name in names], bool)


def queued(table: Collectives, rank: int, at: int) -> bool:
    """Did calls before it in its group still end when it had waited for a good part of its timeout?"""
    ring = table.rings[rank]
    dump = ring.dump
    created, limit = int(dump.created[at]), int(dump.timeout_ms[at]) * 1_000_000
    before = ring.calls(int(ring.group[at]))
    ended = dump.completed[before[(before < at) & ~dump.open[before]]]
    if created <= 0 or not len(ended):
        return False
    return int(ended.max()) - created > max(LEAST, QUEUED * limit)
