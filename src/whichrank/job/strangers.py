"""Lines of processes that are none of this job's, and launchers' lines about a process that lived on.

NCCL puts its host and process before each line. Where it is known which processes the ranks are, a line of another one
is a quotation, or another job's that writes to the same place. A launcher's "exits with return code = -9" in a log of
all ranks names a local rank: whoever speaks or waits after it is not the one that died. Neither is used as proof.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from whichrank.facts import Fact, Gap
from whichrank.job.model import Item, Job, before
from whichrank.job.names import canon

_NCCL = re.compile(r"(?:^|[\] ])(?P<host>[A-Za-z0-9][\w.-]*):(?P<pid>\d+):\d+ \[-?\d+\] .{0,120}?\bNCCL (?:WARN|INFO) ")
_INITS = ("init_start", "init_complete")
_ANEW = (*_INITS, "member", "restart", "restored")  # whoever speaks after these may be a new process
_BY_PYTHON = re.compile(r"\.py:\d+")  # a logger's line tells its own process; a shell's "pid $$" need not
_WATCHDOG = ("timeout", "pg_status", "dump_signal")  # of the rank's own process
_DIED = frozenset({9, "SIGKILL"})
LATER = 500_000_000  # ns by the stamps of one host's lines
LINES = 3  # where no stamp tells: pipes are emptied late
SHOWN = 3


@dataclass(slots=True)
class Processes:
    """What is known of the processes that one rank was, over all its starts."""

    pids: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    firm: bool = False  # the pids are those of the Python processes themselves

    def knows(self, host: str, pid: int) -> bool:
        return pid in self.pids or (not self.firm and host in self.hosts)


def leave(job: Job) -> bool:
    """Take the strangers' facts out of the job; a gap for each sort. Was there any? Then who is who must be told anew."""
    out = [*_of_no_rank(job), *_outlived(job)]
    if not out:
        return False
    gone = {(fact.spot.source.path, fact.spot.line, fact.kind) for fact, _ in out}
    job.facts[:] = [fact for fact in job.facts if (fact.spot.source.path, fact.spot.line, fact.kind) not in gone]
    found: dict[tuple[str, str], set[int]] = defaultdict(set)
    for fact, why in out:
        found[fact.spot.source.path, why].add(fact.spot.line or 0)
    for (path, why), lines in found.items():
        where = ", ".join(map(str, sorted(lines)[:SHOWN])) + (", …" if len(lines) > SHOWN else "")
        job.gaps.append(Gap(f"{path}:{where}", f"{why}: not used as proof"))
    return True


def _of_no_rank(job: Job) -> Iterator[tuple[Fact, str]]:
    """Facts of NCCL's lines from processes that the ranks are known not to be."""
    ranks = _processes(job)
    known = {rank for rank, own in ranks.items() if own.pids and own.hosts}
    everyone = set(range(job.world_size)) if job.world_told and job.world_size else set()
    whole = bool(everyone) and everyone <= known
    for fact in job.facts if known else ():
        if fact.kind in _INITS or "NCCL " not in fact.spot.excerpt:
            continue
        if (match := _NCCL.search(fact.spot.excerpt)) is None:
            continue
        host, pid = canon(match["host"]) or "", int(match["pid"])
        own = [fact.rank] if fact.rank is not None else sorted(everyone) if whole else []
        if own and set(own) <= known and not any(ranks[rank].knows(host, pid) for rank in own):
            who = f"rank {own[0]} is none" if len(own) == 1 else "no rank is one"
            yield fact, f"NCCL's line of process {pid} on {match['host']}, and {who}"


def _processes(job: Job) -> dict[int, Processes]:
    """Rank -> its processes, by what NCCL's init lines and the program's own lines say."""
    found: dict[int, Processes] = defaultdict(Processes)
    for fact in job.of("member", *_INITS):
        by_nccl = fact.kind != "member"
        rank = fact.rank
        if rank is None and by_nccl and fact["nranks"] == job.world_size:
            rank = fact["rank_in_comm"]
        if rank is None:
            continue
        own = found[rank]
        if fact.who.pid is not None:
            own.pids.add(fact.who.pid)
            own.firm |= by_nccl or _BY_PYTHON.search(fact.spot.excerpt) is not None
        if host := canon(fact.who.host):
            own.hosts.add(host)
    return found


def _outlived(job: Job) -> Iterator[tuple[Fact, str]]:
    """Launchers' words that a process was killed, where each rank that may be meant went on in the same log."""
    for fact in job.of("exit"):
        if fact["signal"] not in _DIED and fact["exitcode"] not in (-9, 137):
            continue
        ranks = _meant(job, fact)
        if ranks and all(_went_on(job, rank, fact) for rank in ranks):
            yield (
                fact,
                f"says that a process was killed, but rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))} went on after it",
            )


def _meant(job: Job, fact: Fact) -> list[int]:
    """The ranks of which a launcher may speak: by rank, or by local rank on its host."""
    if fact.rank is not None:
        return [fact.rank]
    local = fact.who.local_rank
    if local is None:
        return []
    here = [info for info in job.ranks.values() if fact.who.host in (None, info.host) or info.host is None]
    if any(info.local_rank is not None for info in here):
        return sorted(info.rank for info in here if info.local_rank == local)
    sizes = {
        int(config["value"])
        for config in job.of("config")
        if config["name"] in ("num_local_procs", "nproc_per_node") and str(config["value"]).isdigit()
    }
    if len(sizes) != 1 or not (size := sizes.pop()):
        return []
    return sorted(info.rank for info in here if info.rank % size == local)


def _went_on(job: Job, rank: int, fact: Fact) -> bool:
    """Did the rank say anything in the same log after it, as the process that it had been?"""
    info = job.ranks.get(rank)
    if info is None:
        return False

    def later(items: Iterable[Item]) -> list[Item]:
        return [item for item in items if item.spot.source is fact.spot.source and before(fact, item) is True]

    facts = [item for item in later(info.facts) if isinstance(item, Fact) and item.kind != "exit"]
    kinds = {item.kind for item in facts}
    if kinds.intersection(_ANEW):
        return False
    if kinds.intersection(_WATCHDOG):
        return True
    after = [*later(info.said), *facts]
    stamped = fact.at_ns is not None and fact.clock == "wall"
    since = (fact.at_ns or 0) + LATER
    return len(after) >= LINES or (stamped and any((item.at_ns or 0) > since for item in after))
