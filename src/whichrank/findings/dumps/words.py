"""What the dumps say, in sentences, each with the entry that proves it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from whichrank.dump import describe, group_name
from whichrank.facts import Fact, Identity, Spot
from whichrank.findings.dumps.calls import operation, written
from whichrank.findings.dumps.program import Departure
from whichrank.findings.dumps.trace import Traced
from whichrank.job.collectives import Collectives, Ring
from whichrank.ranges import several

ENTRY, WAIT = "dump_entry", "dump_wait"


def entry(ring: Ring, at: int | None, says: str, kind: str = ENTRY) -> Fact:
    """One entry of a ring as a fact; `at` None: that nothing is unfinished. says: what it proves."""
    dump = ring.dump
    who = Identity(rank=ring.rank)
    if at is None or not len(dump):
        last = f", the last {describe(dump, len(dump) - 1)}" if len(dump) else ""
        among = f"among {len(dump)} calls{last}" if len(dump) else "(only unfinished calls were dumped)"
        spot = Spot(dump.source, None, f"nothing unfinished {among}")
        return Fact(kind, spot, who=who, values={"says": says})
    called = written(ring, at)
    where = f", called in {called.function} ({called.file}:{called.line})" if called else ""
    shapes = dump.signatures[int(dump.signature[at])]
    sizes = f" {' '.join(str(list(shape)) for shape in shapes.inputs[:3])}" if shapes.inputs else ""
    created = int(dump.created[at])
    values = {
        "says": says,
        "op": operation(ring, at),
        "limit_ms": int(dump.timeout_ms[at]) if dump.timeout_ms[at] > 0 else None,
        "site": f"{called.file}:{called.line}" if called else None,
    }
    spot = Spot(dump.source, None, f"{describe(dump, at)}{sizes}{where}")
    known = created > 0
    return Fact(kind, spot, created if known else None, "wall" if known else "none", who, None, None, values)


def held(table: Collectives, ranks: Iterable[int]) -> list[Fact]:
    """For each of these ranks the call that holds it."""
    facts = []
    for rank in ranks:
        ring = table.rings.get(rank)
        if ring is not None and ring.open_at:
            at = ring.open_at[0]
            group = table.groups[int(ring.group[at])].title
            seq = int(ring.dump.seq[at]) if not ring.dump.kind[at] else None
            facts.append(replace(entry(ring, at, f"rank {rank} waits in it", WAIT), group=group, seq=seq))
    return facts


def proofs(table: Collectives, traced: Traced) -> tuple[Fact, ...]:
    """The entries on which it rests: of the culprits first, then of one that waits."""
    departure = traced.departure
    if departure is not None:
        odd, other = table.rings[departure.odd[0]], table.rings[departure.others[0]]
        return (
            entry(
                odd, departure.at, f"rank {odd.rank} called this, at the first place where it differs from its peers"
            ),
            entry(other, departure.other_at, f"rank {other.rank} and others called this in that place"),
        )
    found: list[Fact] = []
    apart = traced.sides
    for key, ranks in apart.ways[:3] if apart is not None else ():
        ring = table.rings[ranks[0]]
        if apart is not None and (at := ring.find(apart.group, apart.seq)) is not None:
            found.append(entry(ring, at, f"{_who(ranks)} called {key[0]}"))
    for rank in traced.culprits[:3] if not found else ():
        if (ring_ := table.rings.get(rank)) is not None:
            stuck = ring_.open_at[0] if ring_.open_at else None
            says = f"rank {rank} has this unfinished" if stuck is not None else f"rank {rank} waits for nothing"
            found.append(entry(ring_, stuck, says))
    waiting = sorted(traced.waiting)
    call = [rank for rank in waiting if rank in traced.in_main] or waiting
    for fact in held(table, call[:1]):
        found.append(replace(fact, values={**fact.values, "says": f"{_who(call)} wait{'s' * (len(call) == 1)} in it"}))
    return tuple(found)


def why(table: Collectives, traced: Traced) -> str:
    """How the dumps show it, to follow the culprits' names, or a sentence by itself where there are none."""
    many = len(traced.culprits) > 1
    call = _call(table, traced)
    if traced.departure is not None:
        return _departed(table, traced) if traced.culprits else _parted(table, traced.departure)
    if traced.sides is not None:
        told = "; ".join(f"{_who(ranks)} {_called(key[0], key[1], key[2])}" for key, ranks in traced.sides.ways[:3])
        return (
            f"made {call} otherwise than the others ({told})"
            if traced.culprits
            else f"{call} was not made alike: {told}"
        )
    if not traced.culprits and len(table.missing) > len(table.rings):
        here = f"{len(table.rings)} of {table.world} dumps {'is' if len(table.rings) == 1 else 'are'} here"
        return f"{_who(sorted(traced.waiting))} wait{'s' * (len(traced.waiting) == 1)} in {call}; {here}, too few to say for whom"
    if not traced.culprits:
        return _nobody(traced, call)
    if traced.mechanism == "gpu_hang":
        have = "have" if many else "has"
        return f"{have} calls unfinished that others have finished or started: the GPU there runs nothing more"
    if traced.mechanism == "dead":
        return f"left no dump, and {'are' if many else 'is'} what the others wait for in {call}"
    return f"did not make {call} and {'have' if many else 'has'} nothing unfinished: in host code since"


def _departed(table: Collectives, traced: Traced) -> str:
    departure = traced.departure
    assert departure is not None
    odd, other = table.rings[departure.odd[0]], table.rings[departure.others[0]]
    mine, theirs = _brief(odd, departure.at), _brief(other, departure.other_at)
    if departure.left_out:
        return f"left out {theirs}: the next call, {mine}, stands in its place"
    if departure.shifted:
        return f"called {mine} in addition, where the others went on to {theirs}"
    return f"called {mine} where the others called {theirs}"


def _parted(table: Collectives, departure: Departure) -> str:
    odd, other = table.rings[departure.odd[0]], table.rings[departure.others[0]]
    return (
        f"{_who(departure.odd)} called {_brief(odd, departure.at)}, "
        f"{_who(departure.others)} {_brief(other, departure.other_at)}: the dumps do not say which is right"
    )


def _brief(ring: Ring, at: int) -> str:
    called = written(ring, at)
    where = f" ({called.file.rpartition('/')[2]}:{called.line})" if called else ""
    dump = ring.dump
    shapes = dump.signatures[int(dump.signature[at])]
    text = _called(operation(ring, at), shapes.inputs, shapes.input_dtypes)
    return f"{text} in {group_name(dump.groups[int(dump.group[at])])}{where}"


def _nobody(traced: Traced, call: str) -> str:
    who = f"between {_who(traced.candidates)}" if traced.candidates else "which rank is not to be told"
    return {
        "network": f"all ranks of the group started {call} and none finished it: look at the path between them",
        "timeout_short": f"no rank is missing from {call}: calls before it in its group still ended when it had waited for long",
        "dead": f"{_who(traced.candidates)} left no dump, and {call} waits for some of them",
        "host_stuck": f"{_who(traced.candidates)} did not make {call}",
        "mismatch": f"{call} gives out more or less than it takes in: two members disagree on a split",
    }.get(traced.mechanism, f"on the GPU side of {call}, unresolved {who} and the network")


def _call(table: Collectives, traced: Traced) -> str:
    if traced.op is None:
        return "the collective"
    number = f" #{traced.seq}" if traced.seq is not None else ""
    group = f" of {table.groups[traced.group].title}" if traced.group is not None else ""
    return f"{traced.op}{number}{group}"


def _called(op: str, shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> str:
    sizes = " ".join(str(list(shape)) for shape in shapes[:2])
    return " ".join(part for part in (op, sizes, dtypes[0] if dtypes else "") if part)


def _who(ranks: Iterable[int]) -> str:
    return several(ranks, limit=80)
