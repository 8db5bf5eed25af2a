"""Do all ranks wait in the same collective? The table of what each rank waits on shows a desync by itself.

Sequence numbers are compared within one group only. Lower is behind, higher is ahead: both are told, neither is guilty
by its number alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from whichrank.facts import Fact
from whichrank.findings.arrivals import Arrivals, Wait
from whichrank.job.model import Job


@dataclass(frozen=True, slots=True)
class Sides:
    """Two or more parties of ranks that wait in different operations of one group.

    what      seq (other place), op (same place, other operation), size (same operation, other elements),
              group (each side waits in another group)
    minority  ranks of the smaller side; empty where the sides are equal
    """

    what: Literal["seq", "op", "size", "group"]
    parties: tuple[tuple[tuple[int, ...], Wait], ...]
    minority: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """DETAIL fingerprints: what ranks ran, by majority."""

    odd: tuple[int, ...]
    others: tuple[int, ...]
    differ: tuple[str, ...]
    fact: Fact
    odd_fact: Fact
    op: str | None
    seq: int | None


def sides(arrived: Arrivals) -> Sides | None:
    """The parties that the waiting ranks form, or None if they all wait in the same operation."""
    # Dumps are compared call by call elsewhere: in them ranks wait in many groups by right.
    waits = [wait for wait in arrived.waits if wait.rank is not None and wait.op and wait.fact.kind != "dump_wait"]
    if len(waits) < 2:
        return None
    groups = {wait.group for wait in waits}
    if len(groups) > 1 and None not in groups:
        by_group = _parties(waits, lambda wait: wait.group)
        if len({(wait.op, wait.seq, wait.size) for wait in waits}) > 1 and _can_share(waits):
            return Sides("group", by_group, _minority(by_group))
        return None
    for what, key in (
        ("seq", lambda w: w.seq),
        ("op", lambda w: (w.seq, w.op)),
        ("size", lambda w: (w.seq, w.op, w.size)),
    ):
        parties = _parties([wait for wait in waits if wait.seq is not None or what != "seq"], key)
        if len(parties) > 1:
            if what == "size" and _uneven_by_design(waits):
                return None
            return Sides(what, parties, _minority(parties))  # type: ignore[arg-type]
    return None


def _can_share(waits: list[Wait]) -> bool:
    """Can each rank be a member of the other side's group too? Ranks in a group are numbered in order of the global ones.

    Two groups that wait at once for one silent rank look like opposite order until the numbers in them are counted.
    """
    for wait in waits:
        number = wait.fact["group_rank"]
        if not isinstance(number, int) or wait.rank is None:
            continue
        if number < sum(other.rank is not None and other.rank < wait.rank for other in waits):
            return False
    return True


def _uneven_by_design(waits: list[Wait]) -> bool:
    """Gather, scatter and all-to-all have sizes that differ by role: the root's output, uneven splits."""
    op = str(waits[0].op)
    if op in ("GATHER", "SCATTER") or "ALLTOALL" in op:
        inputs = {wait.size[0] for wait in waits}
        return len(inputs) == 1 or "ALLTOALL" in op or op == "SCATTER"
    return False


def _parties(waits: list[Wait], key: Callable[[Wait], object]) -> tuple[tuple[tuple[int, ...], Wait], ...]:
    found: dict[object, list[Wait]] = defaultdict(list)
    for wait in waits:
        found[key(wait)].append(wait)
    parties = [(tuple(sorted(wait.rank for wait in some if wait.rank is not None)), some[0]) for some in found.values()]
    return tuple(sorted(parties, key=lambda party: (len(party[0]), party[0])))


def _minority(parties: tuple[tuple[tuple[int, ...], Wait], ...]) -> tuple[int, ...]:
    if len(parties) < 2 or len(parties[0][0]) == len(parties[-1][0]):
        return ()
    return tuple(sorted(rank for ranks, _ in parties[:-1] for rank in ranks))


def mismatch(job: Job) -> Mismatch | None:
    """The fingerprints' majority: which ranks ran something else."""
    facts = [fact for fact in job.of("fingerprint") if isinstance(fact["a_rank"], int)]
    if not facts:
        return None
    prints: dict[int, tuple[object, ...]] = {}
    spot: dict[int, Fact] = {}
    for fact in facts:
        for side in "ab":
            rank = fact[f"{side}_rank"]
            if isinstance(rank, int):
                prints[rank] = (
                    fact[f"{side}_op"],
                    str(fact[f"{side}_shape"]),
                    fact[f"{side}_seq"],
                    str(fact[f"{side}_dtype"]),
                )
                spot.setdefault(rank, fact)
    tally = Counter(prints.values())
    common, count = tally.most_common(1)[0]
    odd = tuple(sorted(rank for rank, mine in prints.items() if mine != common)) if count * 2 > len(prints) else ()
    first = facts[0]
    odd_fact = next((fact for fact in facts if fact["a_rank"] in odd), spot[odd[0]] if odd else first)
    differ = tuple(dict.fromkeys(what for fact in facts for what in (fact["differ"] or ())))
    return Mismatch(odd, tuple(sorted(set(prints) - set(odd))), differ, first, odd_fact, first["a_op"], first["a_seq"])
