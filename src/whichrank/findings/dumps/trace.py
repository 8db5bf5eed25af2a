"""Dumps of one hang -> which rank, by which mechanism, how sure; or that they cannot tell.

The order of reasoning: is it a hang at all; do calls differ; who never came; whose GPU stopped; who left no dump.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from whichrank.dump import COLLECTIVE, NEVER, STARTED
from whichrank.findings.dumps.calls import Sides, sides
from whichrank.findings.dumps.program import Departure, Programs
from whichrank.findings.dumps.roots import Root, roots
from whichrank.findings.dumps.waits import Waits, waits
from whichrank.job.collectives import Collectives
from whichrank.model import Mechanism

SURE, LIKELY, WEAK = 0.96, 0.85, 0.55
ENDS_EARLY = ("broadcast", "reduce", "gather", "scatter", "send", "recv", "coalesced")


@dataclass(frozen=True, slots=True)
class Where:
    """An entry that proves something: the rank whose dump holds it, its index there."""

    rank: int
    at: int


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
    proofs: tuple[tuple[str, Where], ...] = ()
    departure: Departure | None = None
    sides: Sides | None = None
    root: Root | None = None
    notes: tuple[str, ...] = field(default=())


def trace(table: Collectives) -> Traced:
    found = waits(table)
    return _Tracer(table, found).run()


class _Tracer:
    def __init__(self, table: Collectives, found: Waits) -> None:
        self.table, self.waits = table, found
        self.roots = roots(found)
        self.programs = Programs(table)

    def run(self) -> Traced:
        if not self.waits.held:
            return self._answer("no_hang", (), 0.0, 0.9)
        if _alive(self.table):
            return self._answer("no_hang", (), 0.0, 0.85)
        return self._calls_differ() or self._nobody_came() or self._gpu() or self._met() or self._no_dump() or self._cycle()

    def _answer(
        self, mechanism: Mechanism, culprits: Sequence[int], sure: float, mechanism_sure: float, **more: object
    ) -> Traced:
        main = self._main()
        filled: dict[str, object] = {"waiting": frozenset(self.waits.held) - set(culprits), "root": self.roots[0] if self.roots else None}
        if main is not None and mechanism != "no_hang":
            rank, at = main
            ring = self.table.rings[rank]
            group = self.table.groups[int(ring.group[at])]
            filled |= {
                "group": group.number,
                "group_ranks": group.members,
                "seq": int(ring.dump.seq[at]) if ring.dump.kind[at] == COLLECTIVE else None,
                "op": ring.dump.names[int(ring.dump.name[at])],
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
        root = self.roots[0]
        idle = self._idle()
        departures = self._departures(root, idle)
        apart = sides(self.table, *root.call[:2]) if root.call and root.call[2] == NEVER and root.kind in ("met", "behind") else None
        if apart is None:
            apart = self._differing_call()
        if apart is None and root.kind in ("met", "behind"):
            return None
        if not departures:
            return self._by_sides(apart) if apart else None
        odd = tuple(sorted({rank for departure in departures for rank in departure.odd}))
        if idle and not set(odd) & idle and apart is None:
            return None
        if len(odd) * 2 > len(self.table.rings) and len(self.table.rings) > 2:
            return self._by_sides(apart) if apart else None
        first = departures[0]
        mechanism: Mechanism = {"order": "deadlock", "arguments": "mismatch", "operation": "mismatch", "calls": "desync"}[first.what]  # type: ignore[assignment]
        if apart is not None and apart.same_operation and first.what == "calls" and len(apart.ways[0][0][1]) == 0:
            mechanism = "mismatch"
        settled = all(departure.sure for departure in departures)
        by_history = any(departure.by_history for departure in departures)
        sure = (LIKELY if by_history else SURE) if settled else 0.5
        if not settled:
            both = tuple(sorted({rank for departure in departures for rank in (*departure.odd, *departure.others)}))
            return self._answer(mechanism, (), 0.0, 0.8, candidates=both, departure=first, sides=apart)
        return self._answer(mechanism, odd, sure, 0.9, departure=first, sides=apart)

    def _departures(self, root: Root, idle: frozenset[int]) -> list[Departure]:
        ranks = list(self.table.rings) if len(self.table.rings) <= 1024 else [*root.ranks, *idle][:256]
        found = self.programs.departures(ranks, sites=False)
        if (not found or not all(departure.sure for departure in found)) and self.table.frames:
            again = self.programs.departures(ranks, sites=True)
            if again and all(departure.sure for departure in again):
                return again
        return found

    def _differing_call(self) -> Sides | None:
        """Of the calls that hold ranks, one that was not made alike."""
        for call in self.waits.calls:
            if call[2] == NEVER and (apart := sides(self.table, call[0], call[1])) is not None:
                return apart
        return None

    def _by_sides(self, apart: Sides) -> Traced:
        mechanism: Mechanism = "mismatch" if apart.same_operation else "desync"
        sizes = [len(ranks) for _, ranks in apart.ways]
        members = tuple(sorted(rank for _, ranks in apart.ways for rank in ranks))
        if sizes[0] > sum(sizes[1:]):
            odd = tuple(sorted(rank for _, ranks in apart.ways[1:] for rank in ranks))
            return self._answer(mechanism, odd, LIKELY, 0.85, sides=apart)
        return self._answer(mechanism, (), 0.0, 0.8, candidates=members, sides=apart)

    # ---- who never came

    def _idle(self) -> frozenset[int]:
        """Ranks with nothing unfinished that did not make a call which is unfinished elsewhere."""
        asked: dict[int, int] = {}
        for ring in self.table.rings.values():
            dump = ring.dump
            for at in ring.open_at:
                if dump.kind[at] == COLLECTIVE:
                    group = int(ring.group[at])
                    asked[group] = max(asked.get(group, NEVER), int(dump.seq[at]))
        found = set()
        for rank in self.waits.idle:
            ring = self.table.rings[rank]
            for group, seq in asked.items():
                if rank in self.table.groups[group].members:
                    place = ring.places.get(group)
                    if place is None or place.last < seq:
                        found.add(rank)
                        break
        found |= {root.ranks[0] for root in self.roots if root.kind == "idle"}
        return frozenset(found)

    def _nobody_came(self) -> Traced | None:
        idle = self._idle()
        if not idle:
            return None
        present = len(self.table.rings)
        if 2 * len(idle) > present:
            return self._answer("host_stuck", (), 0.0, 0.5, candidates=tuple(sorted(idle)))
        reached = max((root.reach for root in self.roots if root.kind == "idle"), default=0)
        sure = SURE if reached >= 0.8 * present else LIKELY
        if self.table.missing and len(idle) == 1 and sure == SURE:
            sure = 0.93
        if self.table.backend == "gloo" and self._hides_transfers():
            sure = min(sure, WEAK)
        if len(idle) > 2:
            sure = min(sure, 0.8)
        return self._answer("host_stuck", sorted(idle), sure, 0.9)

    def _hides_transfers(self) -> bool:
        """gloo counts sends and receives and does not record them."""
        for ring in self.table.rings.values():
            dump = ring.dump
            for number in ring.places:
                at = ring.calls(number)
                if len(at) and dump.op[at[-1]] > dump.seq[at[-1]] > 0:
                    return True
        return False

    # ---- whose GPU stopped

    def _gpu(self) -> Traced | None:
        behind = [root for root in self.roots if root.kind == "behind"]
        if not behind:
            return None
        ranks = sorted({rank for root in behind for rank in root.ranks})
        if 2 * len(ranks) > len(self.table.rings):
            return None
        return self._answer("gpu_hang", ranks, LIKELY, 0.85)

    def _met(self) -> Traced | None:
        met = [root for root in self.roots if root.kind == "met"]
        if not met:
            return None
        root = met[0]
        holders = list(root.ranks)
        members = self._members(root)
        if self._goes_on():
            return self._answer("timeout_short", (), 0.0, 0.7, group_ranks=members)
        if self.table.start_events:
            states = {rank: int(self.table.rings[rank].dump.state[self.waits.held[rank].at]) for rank in holders}
            not_started = [rank for rank, state in states.items() if state < STARTED]
            if not not_started:
                return self._answer("network", (), 0.0, 0.8, group_ranks=members, candidates=members)
            if len(not_started) == 1 and len(states) > 1:
                return self._answer("gpu_hang", not_started, LIKELY, 0.85, group_ranks=members)
        return self._answer("undecided", (), 0.0, 0.6, group_ranks=members, candidates=members)

    def _members(self, root: Root) -> tuple[int, ...]:
        rank = root.ranks[0]
        unit = self.waits.held[rank]
        if unit.seq != NEVER:
            return self.table.groups[unit.group].members
        return tuple(sorted({rank, *self.waits.standing(rank).stands}))

    def _goes_on(self) -> bool:
        return False

    # ---- no dump; a circle

    def _no_dump(self) -> Traced | None:
        unknown = [root for root in self.roots if root.kind == "unknown"]
        if not unknown or any(root.kind == "cycle" for root in self.roots):
            return None
        ranks = sorted({rank for root in unknown for rank in root.ranks})
        if len(ranks) == 1:
            alone = len(self.table.missing) == 1
            return self._answer("dead", ranks, LIKELY if alone else 0.7, 0.7)
        return self._answer("dead", (), 0.0, 0.5, candidates=tuple(ranks))

    def _cycle(self) -> Traced:
        circle = next((root for root in self.roots if root.kind == "cycle"), self.roots[0])
        return self._answer("undecided", (), 0.0, 0.5, candidates=circle.ranks)


def _alive(table: Collectives) -> bool:
    """Has the job gone on between the dumps of two ranks? A call that ended on one was not yet made on another."""
    done: dict[int, int] = {}
    for ring in table.rings.values():
        dump = ring.dump
        for group in ring.places:
            at = ring.calls(group)
            ended = at[~dump.open[at]]
            if len(ended):
                last = int(ended[-1])
                if dump.names[int(dump.name[last])] not in ENDS_EARLY:
                    done[group] = max(done.get(group, NEVER), int(dump.seq[last]))
    for rank, ring in table.rings.items():
        for group, place in ring.places.items():
            if place.last != NEVER and place.last < done.get(group, NEVER) and table.groups[group].sure and rank in table.groups[group].members:
                return True
    return False
