"""gloo's word that a peer sent more than a rank had room for; and which of the two departed from the others.

The rank that says so may be the one with the small buffer, or the neighbour of one with a large one. Where other ranks
left dumps, their sizes tell: what most of them passed is divided into parts of the one number or of the other (gloo
sends a tensor in segments: allgather.cc, allreduce.cc).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from whichrank.facts import Fact
from whichrank.job.model import Job

SEGMENTS = 4  # into at most as many parts for each rank a tensor is cut
_BYTES = {
    "Double": 8, "Long": 8, "ComplexFloat": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2,
    "Byte": 1, "Char": 1, "Bool": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Received:
    """odd: who passed another size than most, empty where that cannot be told; sure: of them."""

    fact: Fact
    rank: int | None  # who says so
    received: int
    expected: int
    odd: tuple[int, ...]
    sure: float

    @property
    def says(self) -> str:
        who = "a rank" if self.rank is None else f"rank {self.rank}"
        return f"{who} was sent {self.received} bytes and had room for {self.expected}"


def received(job: Job) -> Received | None:
    for fact in job.of("size_mismatch"):
        if isinstance(fact["received"], int) and isinstance(fact["expected"], int):
            rank = fact.rank if fact.rank is not None else _aborted(job)
            odd, sure = _odd(job, fact, rank)
            return Received(fact, rank, fact["received"], fact["expected"], odd, sure)
    return None


def _aborted(job: Job) -> int | None:
    """Who says it ends with SIGABRT: the only rank that did, where the line itself names none."""
    ranks = {exit.rank for exit in job.of("exit") if exit["signal"] == 6 or exit["exitcode"] == -6}
    return ranks.pop() if len(ranks) == 1 else None


def _odd(job: Job, fact: Fact, rank: int | None) -> tuple[tuple[int, ...], float]:
    """By the sizes that the other ranks passed last."""
    world = len(job.everyone())
    if rank is None:
        return (), 0.0
    if job.table is None:  # a batch that lacks some rows is more usual than one that has more
        return ((rank,), 0.6) if world > 2 else ((), 0.0)
    passed = {other: size for other in job.table.rings if other != rank and (size := _last_size(job, other))}
    as_sent = [other for other, (size, _) in passed.items() if _fits(size, fact, "received", "expected", world)]
    as_here = [other for other, (size, _) in passed.items() if _fits(size, fact, "expected", "received", world)]
    if len(as_sent) > len(as_here):
        known = len(as_sent) > 1 or all(passed[other][1] for other in as_sent)
        return ((rank,), 0.9 if len(as_sent) > 1 else 0.75) if known else ((), 0.0)
    if len(as_here) > max(1, len(as_sent)):
        absent = job.everyone() - set(job.table.rings) - {rank}
        larger = as_sent or sorted(absent)
        return (tuple(larger), 0.8) if len(larger) == 1 else ((), 0.0)
    return (), 0.0


def _fits(size: int, fact: Fact, one: str, other: str, world: int) -> bool:
    """Is a tensor of this size sent in parts of the one number of bytes, and not of the other?"""

    def parts(piece: int) -> bool:
        return piece > 0 and size % piece == 0 and size // piece <= SEGMENTS * max(2, world)

    return parts(fact[one]) and not parts(fact[other])


def _last_size(job: Job, rank: int) -> tuple[int, bool] | None:
    """Bytes that the rank passed to the last call with a tensor, and whether it had passed as many before."""
    from whichrank.job.gloo_ends import last_burst

    ring = job.table.rings[rank] if job.table is not None else None
    if ring is None or not len(ring):
        return None
    dump = ring.dump
    for at in reversed(last_burst(ring)):
        signature = dump.signatures[int(dump.signature[at])]
        size = prod(signature.inputs[0]) if signature.inputs else 0
        if size and (width := _BYTES.get((signature.input_dtypes or ("",))[0])):
            alike = (dump.signature[:at] == dump.signature[at]) & (dump.name[:at] == dump.name[at])
            return size * width, bool(alike.any())
    return None
