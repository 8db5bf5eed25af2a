"""NCCL Inspector: who enters each collective last, and where the bandwidth falls.

All ranks leave a collective together, so that its time on a rank is the rank's wait for the last one: who is late has
the shortest. What a rank did not log proves nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from whichrank.facts import Fact
from whichrank.findings.fabric import Run, apart
from whichrank.job.model import Job

TURNS, SHARE = 6, 0.8  # collectives in which the same rank must be last, and in what part of all
RATIO, LEAST_US = 3.0, 1000  # the others' time against its own, and the least difference in microseconds
FALLEN = 0.6  # of the busbw at first


@dataclass(frozen=True, slots=True)
class Last:
    """The rank that the others wait for again and again: median microseconds of its and of their collectives."""

    rank: int
    own_us: float
    others_us: float
    turns: int
    fact: Fact
    usual: Fact


@dataclass(frozen=True, slots=True)
class Fall:
    """A communicator whose busbw fell, or that is far below its like (`usual`). GB/s."""

    fact: Fact
    first: float
    last: float
    usual: Fact | None
    host: str | None


@dataclass(frozen=True, slots=True)
class Inspected:
    last: Last | None
    fall: Fall | None


def inspected(job: Job) -> Inspected:
    comms: dict[tuple[object, object], list[Fact]] = defaultdict(list)
    for fact in job.of("nccl_inspector"):
        comms[fact["comm_id"], fact["nranks"]].append(fact)
    found = [last for facts in comms.values() if (last := _last(facts))]
    return Inspected(max(found, key=lambda last: last.others_us, default=None), _fall(list(comms.values())))


def _last(facts: Sequence[Fact]) -> Last | None:
    times: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    by_rank = {fact.rank: fact for fact in facts if fact.rank is not None}
    for rank, fact in by_rank.items():
        for number, coll, _, microseconds, _ in fact["last"]:
            times[coll, number][rank] = microseconds
    whole = [turn for turn in times.values() if len(turn) == len(by_rank)]
    if len(by_rank) < 3 or len(whole) < TURNS or 4 * len(by_rank) < 3 * int(facts[0]["nranks"]):
        return None
    ends = Counter(min(turn, key=lambda rank: (turn[rank], rank)) for turn in whole)
    rank, turns = ends.most_common(1)[0]
    own = median(turn[rank] for turn in whole)
    others = median(median(us for other, us in turn.items() if other != rank) for turn in whole)
    if turns < SHARE * len(whole) or others < RATIO * max(own, 1) or others - own < LEAST_US:
        return None
    usual = next(fact for other, fact in by_rank.items() if other != rank)
    return Last(rank, own, others, turns, by_rank[rank], usual)


def _fall(comms: Sequence[Sequence[Fact]]) -> Fall | None:
    """The communicator that fell most; its host where others of its kind, on other hosts, did not."""
    like: dict[tuple[object, ...], list[tuple[Run, float]]] = defaultdict(list)
    for facts in comms:
        timed = [fact for fact in facts if fact["busbw_last"]]
        hosts = frozenset(fact.who.host for fact in facts if fact.who.host)
        if not timed or not hosts:
            continue
        one = timed[0]
        late = median(float(fact["busbw_last"]) for fact in timed)
        early = median(float(fact["busbw_first"]) for fact in timed)
        like[one["nranks"], len(hosts), one["coll"], one["size"]].append((Run(hosts, late, one), early))
    for alike in sorted(like.values(), key=len, reverse=True):
        slow, usual, host = apart([run for run, _ in alike])
        for run, early in alike:
            if (run in slow and host) or run.busbw < FALLEN * early:
                return Fall(run.fact, early, run.busbw, usual.fact if usual and run in slow else None, host)
    return None
