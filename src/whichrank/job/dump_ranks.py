"""Whose dump a file is, where its name alone does not say: by host, pid, pod or file name, as the evidence ties these to ranks.

A dump carries no rank. What the groups rule out is never believed. Else, the surest first: a placement that names the
file; a process (host and pid) in the name; the word "rank" in it; a host or pod with a local rank; a pid that only one
rank has; a host on which only one rank runs; a bare number at the end, which may be a pid or a local rank as well.
Where two of these contradict each other the surer one holds, and a Gap says so.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from whichrank.evidence.dump_names import NAMELESS, in_groups, lists_members, local_in, named, only_rank
from whichrank.facts import Fact, Gap, slashed
from whichrank.job import dump_folders
from whichrank.job.names import canon, in_path

if TYPE_CHECKING:
    from whichrank.dump import Dump

FILE, PROCESS, WORD, LOCAL, PID, NUMBER, ALONE, PLAIN, VAGUE = range(9, 0, -1)  # the surest first
MOST_SAID = 8
A_PID = 10_000  # a bare number from here on is no rank unless groups say so
_NUMBER = re.compile(r"(?<!\d)\d{2,8}(?!\d)")


class Guess(NamedTuple):
    sure: int
    rank: int
    by: str


@dataclass(slots=True)
class Places:
    """Where ranks run, by what a name can hold. A key with several ranks names none."""

    on_host: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    by_pid: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    by_process: dict[tuple[str, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    by_local: dict[tuple[str, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    by_file: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    told_by: str = "the evidence"

    @property
    def world(self) -> int:
        return len(set().union(*self.on_host.values())) if self.on_host else 0

    def hosts_of(self, rank: int) -> set[str]:
        return {host for host, ranks in self.on_host.items() if rank in ranks}


def places(facts: Iterable[Fact]) -> Places:
    """From notes and the placement file, NCCL's init lines of the world, and ends of processes."""
    facts = list(facts)
    found = Places()
    ties = [fact for fact in facts if fact.kind in ("member", "exit") and fact.rank is not None]
    given = [fact for fact in ties if fact["given"]]
    if given:
        found.told_by = f"the placement ({given[0].spot.source.path})"
    spoken_for = {fact.rank for fact in given}
    for fact in given + [fact for fact in ties if not fact["given"] and fact.rank not in spoken_for]:
        _tie(found, fact, fact.rank)
    inits = [fact for fact in facts if fact.kind in ("init_complete", "init_start")]
    size = max((fact["nranks"] for fact in inits if isinstance(fact["nranks"], int)), default=0)
    for fact in inits:
        if fact["nranks"] == size and isinstance(fact["rank_in_comm"], int):
            _tie(found, fact, fact["rank_in_comm"])
    for host, ranks in list(found.on_host.items()):  # one after the other, as launchers number them
        ordered = sorted(ranks)
        if ordered[-1] - ordered[0] + 1 == len(ordered) and not any(key[0] == host for key in found.by_local):
            for local, rank in enumerate(ordered):
                found.by_local[host, local].add(rank)
    return found


def _tie(found: Places, fact: Fact, rank: int | None) -> None:
    if rank is None:
        return
    who = fact.who
    for name in {canon(who.host), canon(who.pod)} - {None}:
        assert name is not None
        found.on_host[name].add(rank)
        if who.pid is not None:
            found.by_process[name, who.pid].add(rank)
        if who.local_rank is not None:
            found.by_local[name, who.local_rank].add(rank)
    if who.pid is not None:
        found.by_pid[who.pid].add(rank)
    if fact["file"]:
        found.by_file[slashed(str(fact["file"])).lstrip("./")].add(rank)


class Settled(NamedTuple):
    """assumed: ranks rest on an order of folders that nothing confirms."""

    facts: list[Fact]
    dumps: list[Dump]
    gaps: list[Gap]
    assumed: bool = False


def settle(facts: list[Fact], dumps: Sequence[Dump], gaps: Sequence[Gap]) -> Settled:
    """The dumps with their ranks, the facts that they are there likewise, and the gaps that are left."""
    known = places(facts)
    shared = Counter(dump.source.path for dump in dumps)  # a page of several ranks names each of them itself
    own = [dump for dump in dumps if shared[dump.source.path] == 1 and dump.source.kind in ("dump", "unknown")]
    local = _names_are_local(own, known)
    said: list[Gap] = []
    found = {dump.source.path: _whose(dump, known, local, said) for dump in own}
    by_order = {} if known.on_host or known.by_file else dump_folders.by_order(own)
    if by_order:
        said = [dump_folders.assumed(by_order)]
        found |= by_order
    changed = {dump.source.path: found[dump.source.path] for dump in own if found[dump.source.path] != dump.rank}
    settled = [replace(dump, rank=changed[dump.source.path]) if dump.source.path in changed else dump for dump in dumps]
    ranks = {dump.source.path: dump.rank for dump in settled if dump.source.path in changed}
    answered = {path for path, rank in ranks.items() if rank is not None}
    left = [gap for gap in gaps if not (gap.what in answered and gap.why.startswith(NAMELESS))]
    facts = dump_folders.with_hosts([_renamed(fact, ranks) for fact in facts], dump_folders.hosts(settled))
    return Settled(facts, settled, left + _few(said), bool(by_order))


def _few(said: list[Gap]) -> list[Gap]:
    """Where a placement is of another run, every dump contradicts it: a few stand for all."""
    if len(said) <= MOST_SAID:
        return said
    rest = len(said) - MOST_SAID
    return [
        *said[:MOST_SAID],
        Gap(f"{rest} more dumps", "what names, groups and placement say of their ranks differs too"),
    ]


def _renamed(fact: Fact, ranks: dict[str, int | None]) -> Fact:
    path = fact.spot.source.path
    if fact.kind != "dump" or path not in ranks:
        return fact
    return replace(fact, who=replace(fact.who, rank=ranks[path]))


def _names_are_local(dumps: Sequence[Dump], known: Places) -> bool:
    """Do all names carry a rank on the node? Several nodes' dumps then have the same numbers, none above a node's."""
    ranks = [(found.rank, _host(dump, known)) for dump in dumps if (found := named(dump.source.path)) is not None]
    hosts = {host for _, host in ranks if host}
    if len(hosts) < 2 or any(host is None for _, host in ranks):
        return False
    most = max(len(known.on_host[host]) for host in hosts if host)
    return (
        most < known.world and all(rank < most for rank, _ in ranks) and len({rank for rank, _ in ranks}) < len(ranks)
    )


def _host(dump: Dump, known: Places) -> str | None:
    return in_path(dump.source.path, known.on_host)


def _whose(dump: Dump, known: Places, local: bool, said: list[Gap]) -> int | None:
    guesses = sorted(_guesses(dump, known, local), reverse=True)
    fits = [guess for guess in guesses if in_groups(dump, guess.rank)]
    path = dump.source.path
    only = only_rank(dump)
    if only is not None and not (fits and fits[0].rank == only):
        fits = [Guess(FILE + 1, only, "its groups")]
    for guess in guesses:
        if guess.sure < NUMBER:
            continue
        if not in_groups(dump, guess.rank):
            if guess.by != "its name":  # of the name the reader has said so
                said.append(Gap(path, f"{guess.by} says rank {guess.rank}, which is not in the groups that it used"))
        elif fits and guess.rank != fits[0].rank:
            why = f"{guess.by} says rank {guess.rank}, {fits[0].by} says rank {fits[0].rank}: taken as rank {fits[0].rank}"
            said.append(Gap(path, why, "which of the two is right: the placement of this very run"))
    if not fits:
        return None
    best = fits[0]
    if best.sure == VAGUE and not lists_members(dump):
        said.append(
            Gap(path, f"{NAMELESS}its name ends in {best.rank}, which looks like a process and not like a rank",
                "the rank in the name, or --placement FILE with its host, pid or file name")
        )  # fmt: skip
        return None
    _check_home(dump, best, known, said)
    return best.rank


def _check_home(dump: Dump, best: Guess, known: Places, said: list[Gap]) -> None:
    """A name that says rank 12 in a folder of a host on which it does not run."""
    host = _host(dump, known)
    homes = known.hosts_of(best.rank)
    if best.sure == WORD and host and homes and host not in homes:
        why = f"its name says rank {best.rank} and {host}, by {known.told_by} rank {best.rank} is on {', '.join(sorted(homes))}: the rank is taken from the name"
        said.append(Gap(dump.source.path, why, "the placement of this very run"))


def _guesses(dump: Dump, known: Places, local: bool) -> Iterable[Guess]:
    path = slashed(dump.source.path)
    by = known.told_by
    host = _host(dump, known)
    for file, ranks in known.by_file.items():
        if path == file or path.endswith("/" + file):
            yield from _one(FILE, ranks, by)
    own_number = named(path)
    pids = [int(number) for number in _NUMBER.findall("/".join(path.split("/")[-2:]))]
    for pid in pids:
        if host is not None:
            yield from _one(PROCESS, known.by_process.get((host, pid), ()), by)
        if pid >= 100:
            yield from _one(PID, known.by_pid.get(pid, ()), by)
    if host is not None:
        yield from _by_host(path, host, known, local)
    if own_number is None or local:
        return
    if own_number.explicit:
        yield Guess(WORD, own_number.rank, "its name")
    elif own_number.rank >= A_PID:
        yield Guess(VAGUE, own_number.rank, "its name")
    else:
        known_rank = bool(known.hosts_of(own_number.rank)) and not _of_host(path, own_number.rank, host)
        yield Guess(NUMBER if known_rank else PLAIN, own_number.rank, "its name")


def _by_host(path: str, host: str, known: Places, local: bool) -> Iterable[Guess]:
    """A host or pod in the name: with a local rank, or with one rank alone on it."""
    number, own = local_in(path), named(path)
    if number is None and own is not None and (local or _is_local(own.rank, own.explicit, path, host, known)):
        number = own.rank
    if number is not None:
        yield from _one(LOCAL, known.by_local.get((host, number), ()), known.told_by)
    elif len(known.on_host[host]) == 1:
        yield from _one(ALONE, known.on_host[host], known.told_by)


def _is_local(rank: int, explicit: bool, path: str, host: str, known: Places) -> bool:
    """A bare number at the end that is no rank of this host."""
    return not explicit and not _of_host(path, rank, host) and rank not in known.on_host[host]


def _of_host(path: str, number: int, host: str | None) -> bool:
    """Is the number at the end of a name that of the host, as in fr_node-3?"""
    stem = path.rpartition("/")[2].split(".")[0]
    return host is not None and stem.lower().endswith(host) and host.endswith(str(number))


def _one(sure: int, ranks: Iterable[int], by: str) -> Iterable[Guess]:
    found = set(ranks)
    if len(found) == 1:
        yield Guess(sure, found.pop(), by)
