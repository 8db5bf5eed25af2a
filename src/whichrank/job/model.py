"""The job as the evidence shows it: ranks, hosts, groups, one timeline."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whichrank.facts import Coverage, Fact, Gap, Said, Source

if TYPE_CHECKING:
    from whichrank.job.collectives import Collectives

Item = Fact | Said


@dataclass(frozen=True, slots=True)
class Told:
    """What the user says beside the evidence."""

    world_size: int | None = None
    attempt: int | None = None
    since_ns: int | None = None


NOTHING_TOLD = Told()


@dataclass(slots=True)
class RankInfo:
    """One rank: where it ran, what it said, what was said about it."""

    rank: int
    host: str | None = None
    pids: set[int] = field(default_factory=set)
    local_rank: int | None = None
    gpu: str | None = None
    pod: str | None = None
    sources: set[Source] = field(default_factory=set)
    facts: list[Fact] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    coverage: Coverage = "unknown"

    @property
    def pid(self) -> int | None:
        return min(self.pids) if len(self.pids) == 1 else None

    @property
    def last(self) -> Said | None:
        return self.said[-1] if self.said else None


@dataclass(slots=True)
class Job:
    """Facts of one job (one world, one attempt), in time order where there is a clock."""

    facts: list[Fact]
    said: list[Said]
    sources: list[Source]
    gaps: list[Gap]
    ranks: dict[int, RankInfo] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    world_size: int | None = None
    world_told: bool = False
    label: str = ""
    attempt: int | None = None
    by_kind: dict[str, list[Fact]] = field(default_factory=dict)
    children: dict[int, int] = field(default_factory=dict)
    table: Collectives | None = None  # Flight Recorder dumps, where there are any
    _shapes: dict[str, list[Said]] = field(default_factory=dict)
    _asked: dict[re.Pattern[str], list[Said]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for fact in self.facts:
            self.by_kind.setdefault(fact.kind, []).append(fact)

    def items(self) -> list[Item]:
        """All facts and all ordinary lines."""
        return both(self.facts, self.said)

    def of(self, *kinds: str) -> list[Fact]:
        """All facts of these kinds, in order."""
        if len(kinds) == 1:
            return self.by_kind.get(kinds[0], [])
        found = [fact for kind in kinds for fact in self.by_kind.get(kind, ())]
        return sorted(found, key=moment)

    def saying(self, pattern: re.Pattern[str]) -> list[Said]:
        """Ordinary lines that match, in reading order. Asked once for each shape: the pattern must not turn on digits."""
        if pattern in self._asked:
            return self._asked[pattern]
        if not self._shapes:
            for line in self.said:
                self._shapes.setdefault(line.shape, []).append(line)
        found = [line for lines in self._shapes.values() if pattern.search(lines[0].text) for line in lines]
        self._asked[pattern] = sorted(found, key=lambda line: (line.spot.source.path, line.index))
        return self._asked[pattern]

    def tie(self, rank: int | None, *, pid: int | None = None, gpu: bool = False) -> Fact | None:
        """The line that says which process or which GPU this rank is."""
        for fact in self.of("init_complete", "init_start", "member", "exit"):
            mine = fact.rank if fact.rank is not None else fact["rank_in_comm"]
            if (
                rank is not None
                and mine == rank
                and (fact.who.pid == pid if pid is not None else bool(fact["bus_id"] or fact.who.gpu) if gpu else True)
            ):
                return fact
        return None

    def host_of(self, rank: int | None) -> str | None:
        info = self.ranks.get(rank) if rank is not None else None
        return info.host if info else None

    def ranks_on(self, host: str | None) -> list[int]:
        return sorted(rank for rank, info in self.ranks.items() if host and info.host == host)

    def everyone(self) -> set[int]:
        """All ranks of the job as far as its size is known."""
        return set(range(self.world_size)) if self.world_size else set(self.ranks)

    def rank_by_pid(self, pid: int | None, host: str | None) -> int | None:
        """The rank that this process is, or whose child it is; only where one host or one rank fits."""
        if pid is None:
            return None
        fits = [
            rank
            for rank, info in self.ranks.items()
            if pid in info.pids and (host is None or info.host is None or info.host == host)
        ]
        if len(fits) == 1:
            return fits[0]
        return self.children.get(pid) if not fits else None

    def local(self, host: str | None, local_rank: int | None) -> int | None:
        """The global rank of a local rank on a host."""
        if local_rank is None:
            return None
        fits = [
            rank
            for rank, info in self.ranks.items()
            if info.local_rank == local_rank and (host is None or info.host == host)
        ]
        return fits[0] if len(fits) == 1 else None


def both(facts: Iterable[Fact], said: Iterable[Said]) -> list[Item]:
    return [*facts, *said]


def moment(item: Fact | Said) -> tuple[float, str, int]:
    """Sort key: time if there is a clock, else where it stands."""
    at = item.at_ns if item.at_ns is not None and not (isinstance(item, Fact) and item.clock == "boot") else None
    return (float(at) if at is not None else float("inf"), item.spot.source.path, item.spot.place)


def when(item: Item) -> int | None:
    """By the wall's clock, if it says."""
    return None if isinstance(item, Fact) and item.clock == "boot" else item.at_ns or None


def gap(one: tuple[int, int], other: tuple[int, int]) -> int:
    """How long lies between two ranges of time; 0 where they overlap."""
    return max(0, one[0] - other[1], other[0] - one[1])


def before(a: Fact | Said, b: Fact | Said) -> bool | None:
    """Did `a` come before `b`? None where the evidence cannot tell.

    Within one file the order of lines tells, whatever quoted or skewed stamps say; an export that was not in time
    order has been sorted by time when it was read.
    """
    if a.spot.source is b.spot.source and a.spot.line is not None and b.spot.line is not None:
        return a.spot.place < b.spot.place
    if (
        a.at_ns is None
        or b.at_ns is None
        or (isinstance(a, Fact) and a.clock == "boot")
        or (isinstance(b, Fact) and b.clock == "boot")
    ):
        return None
    # A line without a stamp is given the last one of its speaker: it may have come any time after that.
    earlier = a.at_ns < b.at_ns
    vague = a if earlier else b
    return None if isinstance(vague, Fact) and vague.clock == "near" else earlier


def earliest(items: Iterable[Fact]) -> Fact | None:
    return min(items, key=moment, default=None)
