"""Dumps of one hang -> which rank, by which mechanism, how sure; or that they cannot tell.

The order of reasoning: is it a hang at all; do calls differ; who never came; whose GPU stopped; who left no dump.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from whichrank.dump import COLLECTIVE, NEVER, STARTED, ends_early
from whichrank.findings.dumps.calls import UNEVEN, Sides, key_of, never_else, operation, sides, site
from whichrank.findings.dumps.pace import at_timeout, awaited, fresh, goes_on, open_and_ended, queued, stood
from whichrank.findings.dumps.program import Departure, Programs
from whichrank.findings.dumps.roots import Root, roots
from whichrank.findings.dumps.waits import Waits, waits
from whichrank.job.collectives import Collectives, Ring
from whichrank.model import Mechanism

SURE, LIKELY, POSSIBLE, WEAK = 0.96, 0.85, 0.7, 0.55
CERTAIN = 0.75  # as grades are cut
YOUNG = 30e9  # ns: a call that was made no longer ago may yet begin


@dataclass(frozen=True, slots=True)
class Traced:
    """What the dumps say.

    culprits    ranks that held the others up; empty where none can be named
    sure        probability that these are exactly the culprits
    candidates  who else it could be
    group       number of the group in which they wait, its members, the sequence number, the operation
    """

    mechanism: Mechanism
    culprits: tuple[int, ...]
    sure: float
    mechanism_sure: float
    candidates: tuple[int, ...] = ()
    group: int | None = None
    group_ranks: tuple[int, ...] = ()
    seq: int | None = None
    op: str | None = None
    waiting: frozenset[int] = frozenset()
    departure: Departure | None = None
    sides: Sides | None = None
    in_main: frozenset[int] = frozenset()  # those who wait in just that call
    fresh: bool = False  # nobody had waited for long when the dumps were written
    pause: bool = False  # all wait for rank 0 alone, and for how long is not on record
    crossed: bool = False  # those who departed are in a group of their own, and both sides used to make both calls
    left_the_loop: bool = False  # those who departed wait in a call that nobody made before, at the end of their work


def trace(table: Collectives, hung: bool = False) -> Traced:
    """hung: something else than the dumps says that a call timed out."""
    found = waits(table)
    traced = _Tracer(table, found).run()
    if hung or not _for_rank0(table, traced) or at_timeout(table, found):
        return traced
    # So it is at each checkpoint of a sound job, for a while.
    sure = min(traced.sure, POSSIBLE)
    return replace(traced, sure=sure, mechanism_sure=min(traced.mechanism_sure, POSSIBLE), pause=True)


def _for_rank0(table: Collectives, traced: Traced) -> bool:
    return (
        traced.mechanism == "host_stuck"
        and traced.culprits == (0,)
        and set(traced.group_ranks) >= set(table.rings)
        and traced.in_main == set(table.rings) - {0}
    )


class _Tracer:
    def __init__(self, table: Collectives, found: Waits) -> None:
        self.table, self.waits = table, found
        self.roots = roots(found)
        self.programs = Programs(table)

    def run(self) -> Traced:
        if not self.waits.held:
            return self._answer("no_hang", (), 0.0, WEAK if self.table.missing else 0.9)
        moving = goes_on(self.table, self.waits, self.roots, self._unequal, self._unnamed or self._hides_transfers)
        if moving > CERTAIN:
            return self._answer("no_hang", (), 0.0, moving)
        differ = self._calls_differ()
        if differ is None and moving:
            return self._answer("no_hang", (), 0.0, moving)
        if differ is not None:
            return differ
        found = self._nobody_came() or self._gpu() or self._queue() or self._met() or self._no_dump() or self._cycle()
        if not fresh(self.table, self.waits):
            return found
        return replace(found, sure=min(found.sure, WEAK), mechanism_sure=min(found.mechanism_sure, WEAK), fresh=True)

    def _answer(
        self, mechanism: Mechanism, culprits: Sequence[int], sure: float, mechanism_sure: float, **more: object
    ) -> Traced:
        main = self._main()
        filled: dict[str, object] = {
            "waiting": frozenset(self.waits.held) - set(culprits),
        }
        if main is not None and mechanism != "no_hang":
            rank, at = main
            ring = self.table.rings[rank]
            group = self.table.groups[int(ring.group[at])]
            filled |= {
                "group": group.number,
                "group_ranks": group.members,
                "seq": int(ring.dump.seq[at]) if ring.dump.kind[at] == COLLECTIVE else None,
                "op": operation(ring, at),
                "in_main": frozenset(self.waits.holders(self.waits.call_of[rank])),
            }
        return Traced(mechanism, tuple(sorted(culprits)), sure, mechanism_sure, **(filled | more))  # type: ignore[arg-type]

    def _main(self) -> tuple[int, int] | None:
        """The unfinished call that most ranks are in."""
        if not self.waits.held:
            return None
        tally: dict[object, int] = {}
        for call in self.waits.call_of.values():
            tally[call] = tally.get(call, 0) + 1
        best = max(self.waits.call_of.items(), key=lambda item: (tally[item[1]], -item[0]))[0]
        return best, self.waits.held[best].at

    # ---- calls that differ

    def _calls_differ(self) -> Traced | None:
        apart = self._differing_call()
        departures = [departure for departure in self._departures() if self._matters(departure, apart)]
        if not departures:
            return self._by_sides(apart) if apart else None
        odd = self._with_them(departures)
        if 3 * len(odd) > 2 * len(self.table.rings) > 4:
            return self._by_sides(apart) if apart else None
        first = departures[0]
        mechanism: Mechanism = {
            "order": "deadlock",
            "arguments": "mismatch",
            "operation": "mismatch",
            "calls": "desync",
        }[first.what]  # type: ignore[assignment]
        exchanged = self._exchanged(first) and (first.by_history or not first.sure)
        if exchanged:
            mechanism = "deadlock"  # each side is in the other's next call: half of them, so neither is the odd one
        elif mechanism == "desync" and self._same_line(first):
            mechanism = "deadlock"
        unsure = exchanged or not all(departure.sure for departure in departures)
        if unsure and not exchanged and apart is not None and (by_all := self._by_sides(apart)).culprits:
            return by_all  # few peers stand against each other, all members of the group do not
        if unsure:
            both = tuple(sorted({rank for departure in departures for rank in (*departure.odd, *departure.others)}))
            return self._answer(mechanism, (), 0.0, 0.8, candidates=both, departure=first, sides=apart)
        sure = LIKELY if any(departure.by_history for departure in departures) else SURE
        left = mechanism == "desync" and self._left_the_loop(first)
        return self._answer(
            mechanism,
            odd,
            sure,
            0.9,
            departure=first,
            sides=apart,
            left_the_loop=left,
            crossed=mechanism == "desync" and self._crossed(first),
        )

    def _left_the_loop(self, departure: Departure) -> bool:
        """Did it go on to a barrier that it had not reached before in this place? So ends a rank without batches."""
        ring = self.table.rings[departure.odd[0]]
        dump, at = ring.dump, departure.at
        here = site(ring, at)
        earlier = (
            {site(ring, int(other)) for other in np.flatnonzero(dump.name[:at] == dump.name[at])} if here else set()
        )
        return "barrier" in dump.names[int(dump.name[at])] and here not in earlier

    def _exchanged(self, departure: Departure) -> bool:
        """Does each side wait in a group of its own, in a call that both sides used to make? Then the order differs."""
        if self.roots[0].kind != "cycle" or departure.what not in ("calls", "order") or departure.shifted:
            return False
        one, other = self.table.rings[departure.odd[0]], self.table.rings[departure.others[0]]
        if one.group[departure.at] == other.group[departure.other_at]:
            return False
        if departure.by_history and self._beside(departure.odd[0]) * 3 <= self._beside(departure.others[0]):
            return False  # most of those who wait are in the call that it left out
        return self._both_made(departure)

    def _same_line(self, departure: Departure) -> bool:
        """Is it one line of the program that calls both groups in turn, and came to them in another order?"""
        one, other = self.table.rings[departure.odd[0]], self.table.rings[departure.others[0]]
        here = site(one, departure.at)
        return bool(here) and here == site(other, departure.other_at) and self._crossed(departure)

    def _crossed(self, departure: Departure) -> bool:
        one, other = self.table.rings[departure.odd[0]], self.table.rings[departure.others[0]]
        return (
            one.group[departure.at] != other.group[departure.other_at]
            and not departure.shifted
            and self._both_made(departure)
        )

    def _both_made(self, departure: Departure) -> bool:
        """Had each side made the other's call before?"""
        one, other = self.table.rings[departure.odd[0]], self.table.rings[departure.others[0]]
        return self._made(one, departure.at, other, departure.other_at) and self._made(
            other, departure.other_at, one, departure.at
        )

    def _made(self, ring: Ring, before: int, other: Ring, at: int) -> bool:
        """Had this rank, before a place in its ring, made the call that another makes there?"""
        dump, name = ring.dump, other.dump.names[int(other.dump.name[at])]
        if name not in dump.names:
            return False
        role = self.table.groups[int(other.group[at])].role
        alike = [number for number in ring.places if self.table.groups[number].role == role]
        same = (dump.name[:before] == dump.names.index(name)) & np.isin(ring.group[:before], alike)
        wanted = site(other, at), key_of(other.dump, at)
        return any((site(ring, int(place)), key_of(dump, int(place))) == wanted for place in np.flatnonzero(same))

    def _beside(self, rank: int) -> int:
        """How many wait in the same call as this rank."""
        return len(self.waits.holders(self.waits.call_of[rank])) if rank in self.waits.call_of else 0

    def _matters(self, departure: Departure, apart: Sides | None) -> bool:
        """Has the hang to do with it? Ranks may differ by right, and such calls end."""
        odd = set(departure.odd)
        idle = self._idle
        rank = departure.odd[0]
        stuck_there = rank in self.waits.held and bool(self.table.rings[rank].dump.open[departure.at])
        if self._hides_transfers and not (stuck_there and self.waits.held[rank].at == departure.at):
            return False
        if self._unnamed and (idle or departure.by_history or not stuck_there):
            return False  # which groups are the same is not on record: equal numbers prove little
        if idle:
            return stuck_there or (odd <= idle and departure.sure and not departure.by_history and not self._unnamed)
        firm = departure.sure and not departure.by_history and not self._unnamed
        return stuck_there or apart is not None or self.roots[0].kind == "cycle" or (firm and odd <= self._absent)

    @cached_property
    def _unequal(self) -> frozenset[int]:
        return open_and_ended(self.table)

    @cached_property
    def _unnamed(self) -> bool:
        waiting = {int(number) for ring in self.table.rings.values() for number in ring.group[ring.open_at]}
        return any(group.own and group.number in waiting for group in self.table.groups)

    def _with_them(self, departures: Sequence[Departure]) -> tuple[int, ...]:
        """Those who departed, and who is held with them in the very call that they made instead."""
        odd = {rank for departure in departures for rank in departure.odd}
        for departure in departures:
            rank = departure.odd[0]
            if (
                departure.what == "calls"
                and rank in self.waits.held
                and self.waits.held[rank].at == departure.at
                and not self._unnamed
            ):
                same = set(self.waits.holders(self.waits.call_of[rank]))
                odd |= (same & self._absent) - self.programs.judged
        return tuple(sorted(odd))

    @cached_property
    def _absent(self) -> frozenset[int]:
        """Ranks that did not make a call which holds others."""
        return frozenset(
            rank
            for standing in self.waits.calls.values()
            for rank, stand in standing.stands.items()
            if stand == "absent"
        )

    def _departures(self) -> list[Departure]:
        ranks = list(self.table.rings)
        found = self.programs.departures(ranks, sites=False)
        if (not found or not all(departure.sure for departure in found)) and self.table.frames:
            again = self.programs.departures(ranks, sites=True)
            if again and all(departure.sure for departure in again):
                return again
        return found

    def _differing_call(self) -> Sides | None:
        """Of the calls that hold ranks, one that was not made alike."""
        for call in self.waits.calls:
            if (
                call[2] == NEVER
                and not self.table.groups[call[0]].own
                and (apart := sides(self.table, call[0], call[1])) is not None
            ):
                return apart
        return None

    def _by_sides(self, apart: Sides) -> Traced:
        mechanism: Mechanism = "mismatch" if apart.same_operation else "desync"
        sizes = [len(ranks) for _, ranks in apart.ways]
        members = tuple(sorted(rank for _, ranks in apart.ways for rank in ranks))
        if sizes[0] >= 2 * sum(sizes[1:]):
            odd = tuple(sorted(rank for _, ranks in apart.ways[1:] for rank in ranks))
            return self._answer(mechanism, odd, LIKELY, 0.85, sides=apart)
        if apart.same_operation and (odd := never_else(self.table, apart)):
            few = len(odd) == 1 or 2 * len(odd) < len(self.table.rings)
            return self._answer(mechanism, odd, LIKELY if few else WEAK, 0.85, sides=apart)
        return self._answer(mechanism, (), 0.0, 0.8, candidates=members, sides=apart)

    # ---- who never came

    @cached_property
    def _idle(self) -> frozenset[int]:
        """Ranks with nothing unfinished that did not make a call which is unfinished elsewhere."""
        found = awaited(self.table, self.waits.idle)
        return frozenset(found | {root.ranks[0] for root in self.roots if root.kind == "idle"})

    def _nobody_came(self) -> Traced | None:
        idle = self._idle
        if not idle:
            return None
        present = len(self.table.rings)
        if 2 * len(idle) >= present and present > 2:
            return self._answer("host_stuck", (), 0.0, 0.5, candidates=tuple(sorted(idle)))
        reached = max((len(root.reach) for root in self.roots if root.kind == "idle"), default=0)
        sure = SURE if reached >= 0.8 * present else LIKELY
        if self.table.missing and len(idle) == 1 and sure == SURE:
            sure = 0.93
        if self._went_past(idle):
            return self._answer("desync", sorted(idle), LIKELY, LIKELY)
        if self._hides_transfers:
            sure = min(sure, WEAK)
        if len(idle) > 2:
            sure = min(sure, 0.7)
        if self.table.backend == "gloo":
            # Who waits in a send or receive, or lost a peer of whom there is no dump, looks idle as well.
            alone = len(idle) == 1 or all(len(group.members) == self.table.world for group in self.table.groups)
            if any(root.kind == "unknown" for root in self.roots):
                return self._answer("host_stuck", sorted(idle), WEAK, WEAK)
            sure = sure if alone else min(sure, WEAK)
        return self._answer("host_stuck", sorted(idle), sure, 0.9)

    def _went_past(self, idle: frozenset[int]) -> bool:
        """Are only sends and receives open, from before collectives in which these ranks took part?

        They went on without the other end of them; whoever is stuck on its host takes part in nothing more.
        """
        for rank, unit in self.waits.held.items():
            ring = self.table.rings[rank]
            dump = ring.dump
            later = np.flatnonzero(~dump.open & (dump.kind == COLLECTIVE))
            groups = {int(ring.group[at]) for at in later[later > unit.at]}
            if unit.seq != NEVER or not any(idle <= set(self.table.groups[group].members) for group in groups):
                return False
        return True

    @cached_property
    def _hides_transfers(self) -> bool:
        """gloo counts sends and receives and does not record them."""
        if self.table.backend != "gloo":
            return False
        # Where the groups fall apart into sets of ranks, something that is not recorded ties these together.
        ties = {rank: rank for rank in range(self.table.world)}
        named = [group for group in self.table.groups if 1 < len(group.members) < self.table.world]
        for group in named:
            homes = {_home(ties, rank) for rank in group.members}
            for home in homes:
                ties[home] = min(homes)
        return bool(named) and len({_home(ties, rank) for rank in self.table.rings}) > 1

    # ---- whose GPU stopped

    def _gpu(self) -> Traced | None:
        if self.table.backend == "gloo":
            return None  # there is no GPU, and what failed looks ended
        behind = {
            rank
            for root in self.roots
            if root.kind == "behind" and not self._may_end_early(root)
            for rank in root.ranks
        }
        # A GPU that reports nothing more leaves calls open that its peers have long finished.
        alone = self._unequal
        ranks = sorted(behind | (alone if len(alone) == 1 and alone <= set(self._ends()) else set()))
        if not ranks or 2 * len(ranks) > len(self.table.rings):
            return None
        wide = max(len(root.reach) for root in self.roots if set(root.ranks) & set(ranks) or root.kind == "unknown")
        sure = LIKELY if 2 * wide >= len(self.table.rings) and not self._uneven(ranks) else WEAK
        return self._answer("gpu_hang", ranks, sure, sure)

    def _uneven(self, ranks: Sequence[int]) -> bool:
        """Are they held by calls that splits which do not match end on some members alone?"""
        for rank in ranks:
            dump = self.table.rings[rank].dump
            if rank in self.waits.held and dump.names[int(dump.name[self.waits.held[rank].at])].startswith(UNEVEN):
                return True
        return False

    def _may_end_early(self, root: Root) -> bool:
        """Is it a call that ends on a member without all others, and has not ended on all others?"""
        held = self.waits.held[root.ranks[0]]
        dump = self.table.rings[root.ranks[0]].dump
        name = dump.names[int(dump.name[held.at])]
        stands = self.waits.standing(root.ranks[0]).stands
        all_others = all(stand == "done" for rank, stand in stands.items() if rank not in root.ranks)
        if len(stands) > 2 and all_others:
            return False
        return held.seq != NEVER and ends_early(name)

    def _ends(self) -> list[int]:
        """The ranks in which most waiting ends, themselves or in a call with others."""
        most = max(len(root.reach) for root in self.roots)
        found: list[int] = []
        for root in self.roots:
            if 2 * len(root.reach) >= most:
                found += root.ranks
                if root.kind == "unknown":
                    found += [
                        rank
                        for rank, unit in self.waits.held.items()
                        if root.ranks[0] in self.waits.standing(rank).stands
                    ]
        return found

    def _queue(self) -> Traced | None:
        """All wait behind calls of their groups that went on ending: also those of whom there is no dump took part."""
        if not all(queued(self.table, rank, unit.at) for rank, unit in self.waits.held.items()):
            return None
        return self._answer("timeout_short", (), 0.0, 0.8)

    def _met(self) -> Traced | None:
        met = [root for root in self.roots if root.kind in ("met", "behind")]
        if not met:
            return None
        root = met[0]
        holders = list(root.ranks)
        members = self._members(root)
        if (unequal := self._splits(root)) is not None:
            return unequal
        if self.table.start_events:
            states = {rank: int(self.table.rings[rank].dump.state[self.waits.held[rank].at]) for rank in holders}
            not_started = [rank for rank, state in states.items() if state < STARTED]
            if not not_started:
                return self._answer("network", (), 0.0, 0.8, group_ranks=members, candidates=members)
            if len(not_started) == 1 and len(states) > 1 and stood(self.table, self.waits) > YOUNG:
                return self._answer("gpu_hang", not_started, LIKELY, 0.85, group_ranks=members)
        return self._answer("undecided", (), 0.0, 0.6, group_ranks=members, candidates=members)

    def _members(self, root: Root) -> tuple[int, ...]:
        rank = root.ranks[0]
        unit = self.waits.held[rank]
        if unit.seq != NEVER:
            return self.table.groups[unit.group].members
        return tuple(sorted({rank, *self.waits.standing(rank).stands}))

    def _splits(self, root: Root) -> Traced | None:
        """An all-to-all that moves data must give out as much as it takes in, over all its members."""
        unit = self.waits.held[root.ranks[0]]
        members = self.table.groups[unit.group].members
        given = taken = 0
        if unit.seq == NEVER or self.table.groups[unit.group].own:
            return None
        for member in members:
            ring = self.table.rings.get(member)
            at = ring.find(unit.group, unit.seq) if ring is not None else None
            if (
                ring is None
                or at is None
                or not ring.dump.names[int(ring.dump.name[at])].startswith(("all_to_all", "alltoall"))
            ):
                return None
            passed = ring.dump.signatures[int(ring.dump.signature[at])]
            given += sum(prod(shape) for shape in passed.inputs)
            taken += sum(prod(shape) for shape in passed.outputs)
        if given == taken:
            return None
        return self._answer("mismatch", (), 0.0, 0.9, group_ranks=members, candidates=members)

    # ---- no dump; a circle

    def _no_dump(self) -> Traced | None:
        unknown = [root for root in self.roots if root.kind == "unknown"]
        if not unknown or any(root.kind == "cycle" for root in self.roots):
            return None
        ranks = sorted({rank for root in unknown for rank in root.ranks})
        if len(self.table.missing) > len(self.table.rings):
            return self._answer("undecided", (), 0.0, 0.4, candidates=tuple(ranks))
        if len(ranks) == 1:
            # A dump that nobody collected looks like one that nobody wrote.
            return self._answer("dead", ranks, 0.74 if len(self.table.missing) == 1 else 0.6, 0.6)
        block = ranks[-1] - ranks[0] + 1 == len(ranks) and ranks[0] % len(ranks) == 0
        if block and set(ranks) == self.table.missing:
            return self._answer("dead", ranks, 0.7, 0.6)  # as a node would be gone
        return self._answer("dead", (), 0.0, 0.5, candidates=tuple(ranks))

    def _cycle(self) -> Traced:
        circle = next((root for root in self.roots if root.kind == "cycle"), self.roots[0])
        return self._answer("undecided", (), 0.0, 0.5, candidates=circle.ranks)


def _home(ties: dict[int, int], rank: int) -> int:
    while ties[rank] != rank:
        rank = ties[rank]
    return rank
