"""NCCL's own lists of operations, laid side by side: who is behind or ahead, who called something else, in which order.

Calls are compared within one communicator, by their place in each rank's list: opCount counts launches, and not all of
them in NCCL 2.27 and newer. Send and Recv are left out, they need no partner at the same place. A list says what was
*enqueued*: a rank that is behind did not call the operation, one that is ahead ran on and is no more guilty for it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whichrank.facts import Fact
from whichrank.findings.operation_logs import Call, Log, communicators
from whichrank.job.model import Job

WENT_ON = 32  # equal operations after a difference that show that it stopped nobody
SHIFT = 3  # operations that must agree for "one operation left out"
LETTERS = 18  # last operations whose order is compared


@dataclass(frozen=True, slots=True)
class Uneven:
    """Ranks of one communicator that enqueued fewer (`behind`) or more (`ahead`) operations than most did."""

    name: str
    behind: tuple[int, ...]
    ahead: tuple[int, ...]
    level: tuple[int, ...]
    call: Call | None  # what those behind did not call
    number: int  # its number, from 0
    fact: Fact  # the last line of one that is behind
    ahead_fact: Fact  # the call that those behind did not make, on one that made it


@dataclass(frozen=True, slots=True)
class Different:
    """Two calls at the same place: other arguments, another operation, or one operation left out or added."""

    what: Literal["arguments", "operation", "skipped", "extra"]
    odd: tuple[int, ...]  # empty where neither side is the smaller one
    others: tuple[int, ...]
    odd_call: Call
    call: Call
    number: int
    odd_fact: Fact
    fact: Fact


@dataclass(frozen=True, slots=True)
class Inverted:
    """Two communicators that some ranks used in one order, and the rest in the other."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    names: tuple[str, str]
    facts: tuple[Fact, Fact]
    only_last: bool  # up to there all had the same order


@dataclass(frozen=True, slots=True)
class Operations:
    uneven: tuple[Uneven, ...]
    different: Different | None
    inverted: Inverted | None
    late: Uneven | None  # those behind that wait for nobody themselves


def operations(job: Job) -> Operations:
    comms = communicators(job)
    different = next((odd for logs in comms.values() if (odd := _different(logs))), None)
    inverted = _inverted(comms)
    uneven = tuple(found for name, logs in comms.items() if (found := _uneven(name, logs)))
    return Operations(uneven, different, inverted, _late(uneven) if not different and not inverted else None)


def _uneven(name: str, logs: Sequence[Log]) -> Uneven | None:
    tally = Counter(log.total for log in logs)
    if len(tally) < 2:
        return None
    most = max(tally, key=lambda total: (tally[total], total))
    behind = [log for log in logs if log.total < most]
    ahead = [log for log in logs if log.total > most]
    if not behind:  # the greater part stands lower: it is they who did not call what the few did
        behind, most = [log for log in logs if log.total == most], max(tally)
    level = [log for log in logs if log not in behind and log not in ahead]
    lowest = min(behind, key=lambda log: log.total)
    leader = max(logs, key=lambda log: log.total)
    return Uneven(
        name,
        tuple(log.rank for log in behind),
        tuple(log.rank for log in ahead),
        tuple(log.rank for log in level),
        leader.at(lowest.total),
        lowest.total,
        lowest.line(lowest.total - 1),
        leader.line(lowest.total),
    )


def _late(uneven: Sequence[Uneven]) -> Uneven | None:
    """Of all that are behind somewhere, the few that wait for nobody: who waits in one group is late in the next."""
    waiting = {rank for found in uneven for rank in (*found.level, *found.ahead)}
    for found in sorted(uneven, key=lambda found: len(found.behind)):
        left = tuple(rank for rank in found.behind if rank not in waiting)
        if left and len(left) <= len(found.level) + len(found.ahead):
            return replace(found, behind=left)
    return None


def _different(logs: Sequence[Log]) -> Different | None:
    """The first place at which not all made the same call."""
    start = max(log.total - len(log.calls) for log in logs)
    for number in range(start, max(log.total for log in logs)):
        here = {log.rank: call for log in logs if (call := log.at(number)) is not None}
        if len(here) < 2:
            return None
        tally = Counter(here.values())
        if len(tally) == 1:
            continue
        common = max(tally, key=lambda call: (tally[call], str(call)))
        odd = [log for log in logs if here.get(log.rank, common) != common]
        usual = [log for log in logs if here.get(log.rank) == common]
        if _went_on(odd[0], usual[0], number):
            return None
        what = _how(odd[0], usual[0], number)
        if usual[0].launches and what != "arguments":
            return None  # one launch that was not counted looks just like that
        even = 2 * tally[common] <= len(here)
        return Different(
            what,
            () if even else tuple(log.rank for log in odd),
            tuple(log.rank for log in usual),
            here[odd[0].rank],
            common,
            number,
            odd[0].line(number),
            usual[0].line(number),
        )
    return None


def _went_on(a: Log, b: Log, number: int) -> bool:
    later = range(number + 1, min(a.total, b.total))
    return sum(a.at(n) == b.at(n) for n in later) >= WENT_ON


def _how(odd: Log, usual: Log, number: int) -> Literal["arguments", "operation", "skipped", "extra"]:
    def shifted(a: Log, b: Log) -> bool:
        """From here on `a` does what `b` does one operation later."""
        pairs = [(a.at(n), b.at(n + 1)) for n in range(number, min(a.total, b.total - 1))]
        return len(pairs) >= SHIFT and all(x == y for x, y in pairs)

    if shifted(odd, usual):
        return "skipped"
    if shifted(usual, odd):
        return "extra"
    a, b = odd.at(number), usual.at(number)
    return "arguments" if a and b and a[0] == b[0] else "operation"


def _inverted(comms: dict[str, list[Log]]) -> Inverted | None:
    for (name, logs), (other, others) in itertools.combinations(comms.items(), 2):
        by_rank = {log.rank: log for log in others}
        both = [
            (log, by_rank[log.rank]) for log in logs if log.rank in by_rank and log.places and by_rank[log.rank].places
        ]
        if len(both) >= 2 and (found := _crossed((name, other), both)):
            return found
    return None


def _crossed(names: tuple[str, str], both: Sequence[tuple[Log, Log]]) -> Inverted | None:
    """Two ranks of which one is ahead here and behind there; or whose last two calls stand in opposite order."""
    for a, b in itertools.combinations(both, 2):
        if (a[0].total - b[0].total) * (a[1].total - b[1].total) < 0:
            break
    else:
        if len({(x.total, y.total) for x, y in both}) > 1:
            return None
        orders = {x.rank: x.places[-1] < y.places[-1] for x, y in both}
        if len(set(orders.values())) < 2:
            return None
    first = tuple(pair for pair in both if pair[0].places[-1] > pair[1].places[-1])
    second = tuple(pair for pair in both if pair not in first)
    if not first or not second:
        return None
    same = len({tuple(_letters(*pair))[-LETTERS:-2] for pair in both}) == 1
    return Inverted(
        tuple(x.rank for x, _ in first),
        tuple(x.rank for x, _ in second),
        names,
        (first[0][0].line(first[0][0].total - 1), second[0][1].line(second[0][1].total - 1)),
        same,
    )


def _letters(a: Log, b: Log) -> Iterator[int]:
    """In which of the two each call was made, for the places that both lists hold."""
    start = max(a.places[0], b.places[0])
    merged = sorted([(place, 0) for place in a.places] + [(place, 1) for place in b.places])
    return (which for place, which in merged if place >= start)
