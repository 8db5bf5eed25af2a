"""NCCL's lists of operations, joined across ranks: which communicator each is of, and whether it can be compared.

A pointer means nothing outside its process. The init lines tie it to the communicator's id; one that ncclCommSplit made
has none from 2.24 on, but its parent, the number of the split and its color, which together are the same on all ranks.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field, replace

from whichrank.evidence.nccl_operations import P2P
from whichrank.facts import Fact, Spot
from whichrank.job.model import Job

ROOTED = frozenset({"Broadcast", "Reduce", "Gather", "Scatter"})
REDUCING = frozenset({"AllReduce", "Reduce", "ReduceScatter"})
MOST = 64  # communicators that are compared
OVERLAP = 16  # calls of lists with gaps that must agree before their ends are compared

Call = tuple[str, int, str, str, int]  # operation, count, datatype, operator, root


@dataclass(slots=True)
class Log:
    """One rank's operations on one communicator. `calls` are the last of `total` collectives."""

    rank: int
    fact: Fact
    whole: bool  # the list begins with the communicator's first operation
    total: int
    number: int | None = None  # its rank in the communicator
    calls: list[Call] = field(default_factory=list)
    places: list[int] = field(default_factory=list)  # of each call among all lines of its process
    spots: list[Spot] = field(default_factory=list)  # of each call
    launches: bool = False  # numbers are opCounts: the list has gaps, and only its end is compared

    def at(self, place: int) -> Call | None:
        """The call with this number (0 is the communicator's first), if it is among those that were kept."""
        index = place - (self.total - len(self.calls))
        return self.calls[index] if 0 <= index < len(self.calls) else None

    def line(self, place: int) -> Fact:
        """The list's fact, proved by the line of this call where it was kept, else by its last line."""
        index = place - (self.total - len(self.calls))
        return replace(self.fact, spot=self.spots[index]) if 0 <= index < len(self.spots) else self.fact


Process = tuple[str | None, int | None]


def communicators(job: Job) -> dict[str, list[Log]]:
    """The logs of each communicator that can be told apart: by its id, or as the only one of the whole job."""
    inits: dict[tuple[str | None, int | None, object], Fact] = {}
    for fact in sorted(job.of("init_start", "init_complete"), key=lambda fact: fact.spot.line or 0):
        inits[fact.who.host, fact.who.pid, fact["comm"]] = fact
    found: dict[str, dict[int, list[Log]]] = defaultdict(lambda: defaultdict(list))
    for fact in job.of("nccl_operations"):
        process = fact.who.host, fact.who.pid
        name = _name(inits, process, fact["comm"])
        if name is None and fact["nranks"] == job.world_size:
            name = "of all ranks"
        if fact.rank is not None and name is not None:
            init = inits.get((*process, fact["comm"]))
            found[f"{name} ({fact['nranks']} ranks)"][fact.rank].append(_log(fact.rank, fact, init))
    _never_called(job, inits, found)
    comms = {
        name: _comparable(job, [logs[0] for _, logs in sorted(by_rank.items())])
        for name, by_rank in sorted(found.items())
        if len(by_rank) > 1 and all(len(logs) == 1 for logs in by_rank.values()) and _one(by_rank)
    }
    return dict(itertools.islice(((name, logs) for name, logs in comms.items() if len(logs) > 1), MOST))


def _never_called(
    job: Job, inits: dict[tuple[str | None, int | None, object], Fact], found: dict[str, dict[int, list[Log]]]
) -> None:
    """Ranks that list their operations and are in a communicator, but called nothing on it: they stand at none."""
    listing = {(fact.who.host, fact.who.pid) for fact in job.of("nccl_operations")}
    for (host, pid, comm), init in inits.items():
        if (host, pid) not in listing or init.rank is None or init.kind != "init_complete":
            continue
        name = f"{_name(inits, (host, pid), comm)} ({init['nranks']} ranks)"
        if name in found and init.rank not in found[name]:
            found[name][init.rank].append(Log(init.rank, init, True, 0, init["rank_in_comm"]))


def _name(
    inits: dict[tuple[str | None, int | None, object], Fact], process: Process, comm: object, depth: int = 8
) -> str | None:
    """The communicator's id, the same on all its ranks; one that was split off is known by its parent's and its color."""
    init = inits.get((*process, comm))
    if init is None or depth == 0:
        return None
    if init["parent"]:
        above = _name(inits, process, init["parent"], depth - 1)
        return (
            f"{above}, split {init['split'] or 0}, color {init['color']}"
            if above and init["color"] is not None
            else None
        )
    return str(init["comm_id"]) if init["comm_id"] else None


def _one(by_rank: dict[int, list[Log]]) -> bool:
    """Is it one communicator? Then no two ranks have the same number in it."""
    numbers = [log.number for logs in by_rank.values() for log in logs if log.number is not None]
    return len(set(numbers)) == len(numbers)


def _log(rank: int, fact: Fact, init: Fact | None) -> Log:
    """A list begins with the communicator if its init stands before it in the same file, and no other init later."""
    same = init is not None and init.spot.source is fact.spot.source
    line = (init.spot.line or 0) if init is not None and same else None
    begun = line < int(fact["from_line"]) if line is not None else fact["first"] == 0
    number = init["rank_in_comm"] if init is not None else None
    log = Log(rank, fact, begun, int(fact["collectives"]), number)
    spots = fact["spots"] or ()
    for at, (place, _, name, count, datatype, operator, root) in enumerate(fact["last"]):
        if name not in P2P:
            log.calls.append(
                (name, count, datatype, operator if name in REDUCING else "", root if name in ROOTED else 0)
            )
            log.places.append(place)
            log.spots += spots[at : at + 1]
    return log


def _comparable(job: Job, logs: list[Log]) -> list[Log]:
    """Lists that are whole; else the ends of those with gaps, by opCount, where that is sure."""
    sound = [
        log for log in logs if log.rank not in job.ranks or job.ranks[log.rank].coverage not in ("cut", "rate_limited")
    ]
    gaps = {gap.what for gap in job.gaps}  # a large text of which not every line was taken apart
    partly = [log for log in sound if log.fact["lost"] or log.fact.spot.source.path in gaps]
    if not partly:
        return [log for log in sound if log.whole and (log.calls or not log.total)]
    whole = [log for log in sound if log.whole and log.calls and log not in partly]
    return whole if len(whole) > len(sound) // 2 else _ends(sound)


def _ends(logs: list[Log]) -> list[Log]:
    """The last calls of each list up to its last gap, numbered by opCount.

    Only where each call is a launch of its own, and all lists agree in what they have in common but for the last call:
    from NCCL 2.27 on ranks may count differently.
    """
    ends = [end for log in logs if (end := _end(log)) is not None]
    if len(ends) < 2 or len({call for end in ends for call in end.calls}) < 2:
        return []
    start = max(end.total - len(end.calls) for end in ends)
    stop = min(end.total for end in ends) - 1
    if stop - start < OVERLAP:
        return []
    agree = all(len({end.at(number) for end in ends}) == 1 for number in range(start, stop))
    return ends if agree else []


def _end(log: Log) -> Log | None:
    """The list's end with one opCount a call, or None."""
    last = log.fact["last"] or ()
    counts = [operation[1] for operation in last]
    begin = len(counts) - 1
    while begin > 0 and counts[begin - 1] == counts[begin] - 1:
        begin -= 1
    kept = last[begin:]
    if len(kept) < OVERLAP or any(operation[2] in P2P for operation in kept):
        return None
    calls = log.calls[-len(kept) :]
    places, spots = log.places[-len(kept) :], log.spots[-len(kept) :]
    return Log(log.rank, log.fact, True, counts[-1] + 1, log.number, calls, places, spots, True)
