"""What the training framework itself said of slow or sick ranks before the hang: a hint, never a proof.

A straggler detector sees whoever computed slowly, not who stopped; a rank monitor reports every rank of a hang. Only what
sets a few ranks apart from the others counts, and only what was said before the first timeout.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from whichrank.facts import Fact
from whichrank.findings.arrivals import Arrivals
from whichrank.job.model import Job, before, moment

Topic = Literal["data", "compute", "checkpoint", "evaluation", "gpu"]
SLOW = 0.75  # a score below this share of the others' is a straggler's
TURNS = 3  # the last reports that are compared
_DATA = re.compile(r"batch-generator|data|DRtt|loader|get.?batch")
_CHECKPOINT = re.compile(r"checkpoint|save|load", re.I)
_EVALUATION = re.compile(r"eval|valid|test", re.I)


@dataclass(frozen=True, slots=True)
class Hint:
    """`ranks` may be empty: a table of extremes says that some rank is slow, not which."""

    topic: Topic
    ranks: tuple[int, ...]
    says: str
    facts: tuple[Fact, ...]
    located: bool = False  # it says where the rank stood, not only that it was slow


def hints(job: Job, arrived: Arrivals) -> tuple[Hint, ...]:
    def said(*kinds: str) -> list[Fact]:
        """These facts, the last one last, without what came after the first timeout."""
        found = [fact for fact in job.of(*kinds) if arrived.first is None or before(arrived.first, fact) is not True]
        return sorted(found, key=moment)

    few = max(1, len(job.everyone()) // 4)
    found = [
        *_named(said("straggler_hint"), few),
        *_scored(said("rank_score"), few),
        *_extremes(said("rank_extremes")),
        *_sections(job),
        *_sick(said("result_check", "health_failed")),
    ]
    return tuple(found)


def _named(facts: list[Fact], few: int) -> Iterator[Hint]:
    for fact in facts[-1:]:
        ranks = tuple(sorted({rank for rank in fact["ranks"] if isinstance(rank, int)}))
        if 0 < len(ranks) <= few and fact["by"] == "nvrx":
            yield Hint("compute", ranks, f"{fact['by']}'s straggler report names {len(ranks)} rank(s) as slow", (fact,))


def _scored(facts: list[Fact], few: int) -> Iterator[Hint]:
    last: dict[tuple[str, int], Fact] = {}
    for fact in facts:
        if fact.rank is not None:
            last[str(fact["what"]), fact.rank] = fact
    slow = [fact for fact in last.values() if isinstance(fact["score"], float) and fact["score"] < SLOW]
    ranks = tuple(sorted({fact.rank for fact in slow if fact.rank is not None}))
    if 0 < len(ranks) <= few:
        worst = min(slow, key=lambda fact: fact["score"])
        yield Hint(
            "compute", ranks, f"rank {worst.rank} scored {worst['score']} of 1 in the GPU performance report", (worst,)
        )


def _extremes(facts: list[Fact]) -> Iterator[Hint]:
    """The same rank at the end of the last reports; or a spread that names nobody."""
    by_name: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        by_name[str(fact["name"])].append(fact)
    for name, rows in by_name.items():
        last = rows[-TURNS:]
        slowest = "low_rank" if name in ("Etpt", "Clk") else "high_rank"
        named = Counter(fact[slowest] for fact in last if isinstance(fact[slowest], int))
        topic: Topic = "data" if _DATA.search(name) else "checkpoint" if _CHECKPOINT.search(name) else "compute"
        spread = f"{name} from {last[-1]['low']:g} to {last[-1]['high']:g} {last[-1]['unit']} over the ranks"
        if named and (most := named.most_common(1)[0])[1] >= min(2, len(last)):
            yield Hint(topic, (most[0],), f"rank {most[0]} is the slowest in the timers: {spread}", (last[-1],))
        elif not named and topic != "compute":
            yield Hint(topic, (), f"some rank is slow: {spread}", (last[-1],))


def _sections(job: Job) -> Iterator[Hint]:
    """Rank monitors that name the section in which each rank stood: one that differs from most."""
    where: dict[int, Fact] = {}
    for fact in sorted(job.of("heartbeat_missed"), key=moment):
        if fact.rank is not None and fact["section"]:
            where.setdefault(fact.rank, fact)
    sections = Counter(str(fact["section"]) for fact in where.values())
    if len(where) < 3 or len(sections) < 2:
        return
    (usual, count), *_ = sections.most_common(1)
    odd = [fact for fact in where.values() if fact["section"] != usual]
    if count < 2 * len(odd) or len({fact["section"] for fact in odd}) > 1:
        return
    section = str(odd[0]["section"])
    topic: Topic = (
        "checkpoint" if _CHECKPOINT.search(section) else "evaluation" if _EVALUATION.search(section) else "compute"
    )
    ranks = tuple(sorted({fact.rank for fact in odd if fact.rank is not None}))
    place = f"in the section {section}" if section != "none" else "in no section"
    yield Hint(
        topic,
        ranks,
        f"by its monitor it stood {place}, the others in {usual}",
        (odd[0], next(f for f in where.values() if f["section"] == usual)),
        True,
    )


def _sick(facts: list[Fact]) -> Iterator[Hint]:
    for fact in facts:
        if fact.kind == "result_check" and fact["verdict"] == "persistent":
            ranks = () if fact.rank is None else (fact.rank,)
            yield Hint("gpu", ranks, f"rank {fact.rank}: a result that another GPU did not reproduce", (fact,))
            return
        if fact.kind == "health_failed" and fact["what"] == "gpu":
            ranks = () if fact.rank is None else (fact.rank,)
            yield Hint("gpu", ranks, f"the health check of GPU {fact['index']} failed: {fact['text']}", (fact,))
            return
