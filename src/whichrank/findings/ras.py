"""NCCL RAS: which ranks of a communicator had launched fewer operations than the rest, poll after poll.

Counts are of launched operations, and launches are asynchronous: one poll of a healthy job may show a difference. Ranks
are behind only if the last two polls show the same counts; a single poll is taken for a hint where the job is known to
hang, and polls between which the counts grew say that it moves. The text report lists outliers only, ahead or behind:
the level of the rest is its largest set.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from whichrank.facts import Fact
from whichrank.job.model import Job

DEAD, SILENT = 0.8, 0.6  # RAS gave a process up; it has not answered yet
STEADY, HINT, WEAK = 0.93, 0.7, 0.45  # several polls; one poll of a job that hangs, of one that may not
ASYNCHRONY = 2  # operations by which a single poll must differ


@dataclass(frozen=True, slots=True)
class Behind:
    ranks: tuple[int, ...]
    says: str
    fact: Fact
    sure: float


@dataclass(slots=True)
class _Poll:
    """One communicator at one time. `level`: function -> the count that most ranks have."""

    facts: list[Fact] = field(default_factory=list)
    level: dict[str, int] = field(default_factory=dict)

    def settle(self) -> None:
        sets: dict[str, Counter[int]] = defaultdict(Counter)
        for fact in self.facts:
            for name, count in (fact["counts"] or {}).items():
                if fact["sets"]:
                    sets[name] = Counter(fact["sets"])
                else:
                    sets[name][count] += 1
        self.level = {name: max(tally, key=lambda count: (tally[count], count)) for name, tally in sets.items()}

    def lag(self, fact: Fact) -> int:
        """How far below the level, in the function where it is farthest; negative if it is above in one."""
        gaps = [self.level[name] - count for name, count in (fact["counts"] or {}).items()]
        return min(gaps) if min(gaps, default=0) < 0 else max(gaps, default=0)

    def counts(self) -> dict[tuple[int, str], int]:
        """What ranks stand apart, and where: the same in the next poll if nothing moved."""
        found = {
            (int(fact["rank_in_comm"]), name): count
            for fact in self.facts
            for name, count in (fact["counts"] or {}).items()
            if count != self.level[name]
        }
        return found | {(-1, name): count for name, count in self.level.items()}


def launched(job: Job, hang: bool) -> Behind | None:
    """The ranks that RAS has lost; else those behind in a communicator, and level with nobody who waits in another."""
    if (lost := _lost(job)) is not None:
        return lost
    found = []
    level: set[int] = set()
    for polls in _polls(job).values():
        if (behind := _behind(job, polls, hang)) is None:
            continue
        found.append(behind)
        level |= {
            rank for fact in polls[-1].facts if polls[-1].lag(fact) <= 0 and (rank := _global(job, fact)) is not None
        }
    for behind in sorted(found, key=lambda behind: len(behind.ranks)):
        ranks = tuple(rank for rank in behind.ranks if rank not in level)
        if ranks:
            return Behind(ranks, behind.says, behind.fact, behind.sure)
    return None


def _lost(job: Job) -> Behind | None:
    """Ranks whose process gave RAS no answer in the last poll: gone, stopped, or cut off."""
    facts = job.of("ras_missing")
    if not facts:
        return None
    newest = max(facts, key=lambda fact: (fact.at_ns or 0, fact.spot.source.path, int(fact["poll"] or 0)))
    facts = [
        fact
        for fact in facts
        if (fact.at_ns, fact["poll"]) == (newest.at_ns, newest["poll"]) and (fact["unresponsive"] or fact["dead"])
    ]
    by_rank = {rank: fact for fact in facts if (rank := _global(job, fact)) is not None}
    if not by_rank or 2 * len(by_rank) > max(len(job.everyone()), newest["size"] or 0):
        return None
    dead = [fact for fact in by_rank.values() if fact["dead"]]
    word = "considers its process dead" if dead else "gets no answer"
    return Behind(
        tuple(sorted(by_rank)), f"NCCL RAS ({word})", (dead or list(by_rank.values()))[0], DEAD if dead else SILENT
    )


def _polls(job: Job) -> dict[str, list[_Poll]]:
    """Polls of each communicator, in time order (else in order of files and of polls in a file)."""
    found: dict[str, dict[tuple[float, str, int], _Poll]] = defaultdict(lambda: defaultdict(_Poll))
    for fact in job.of("ras_counts"):
        at = fact.at_ns if fact.at_ns is not None and fact.clock == "wall" else 0
        when = float(at), fact.spot.source.path, int(fact["poll"] or 0)
        found[str(fact["comm"])][when].facts.append(fact)
    result = {}
    for comm, polls in found.items():
        result[comm] = [polls[when] for when in sorted(polls)]
        for poll in result[comm]:
            poll.settle()
    return result


def _behind(job: Job, polls: Sequence[_Poll], hang: bool) -> Behind | None:
    last = polls[-1]
    if len(polls) > 1 and polls[-2].counts() != last.counts():
        return None  # it moves
    least = 1 if len(polls) > 1 else ASYNCHRONY
    slow = [fact for fact in last.facts if last.lag(fact) >= least]
    ahead = [fact for fact in last.facts if last.lag(fact) < 0]
    size = last.facts[0]["size"] or len(last.facts)
    ranks = sorted({rank for fact in slow if (rank := _global(job, fact)) is not None})
    if not ranks or 2 * len(ranks) > size or size < 3:
        return None
    worst = max(slow, key=last.lag)
    name, count = next((n, c) for n, c in worst["counts"].items() if last.level[n] - c == last.lag(worst))
    function = "" if name == "all" else f" {name}"
    also = f"; rank {', '.join(str(fact['rank_in_comm']) for fact in ahead[:8])} is ahead" if ahead else ""
    often = f", the same in {len(polls)} polls" if len(polls) > 1 else ""
    says = f"NCCL RAS ({count}{function} operations launched, most others {last.level[name]}{often}{also})"
    return Behind(tuple(ranks), says, worst, STEADY if len(polls) > 1 else HINT if hang else WEAK)


def _global(job: Job, fact: Fact) -> int | None:
    """The global rank: by host and pid, or the rank in a communicator of all ranks."""
    if fact.rank is not None or fact["rank_in_comm"] is None:
        return fact.rank
    whole = job.world_size is None or fact["size"] == job.world_size
    return int(fact["rank_in_comm"]) if whole else None
