"""Evidence -> jobs: who is who, which attempt is which, one clock.

Several attempts of one run, or several runs in one folder, become several jobs; host evidence belongs to all of them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from whichrank.evidence import Evidence
from whichrank.facts import Fact, Gap, Identity, Said, Source
from whichrank.job import clocks, coverage
from whichrank.job.model import Job, RankInfo, moment
from whichrank.job.names import canon, guess_from_path, in_path, is_address, mentioned

HOST_KINDS = {"kernel", "scheduler", "metrics", "note"}


@dataclass(frozen=True, slots=True)
class Told:
    """What the user says beside the evidence."""

    placement: tuple[Fact, ...] = ()
    world_size: int | None = None
    attempt: int | None = None
    since_ns: int | None = None


def build(evidence: Evidence, told: Told = Told()) -> list[Job]:
    """One job for each run and attempt that the evidence shows, in time order; always at least one."""
    facts, said = clocks.settle([*evidence.facts, *told.placement], evidence.said)
    if told.since_ns is not None:
        facts = [fact for fact in facts if fact.at_ns is None or fact.clock == "boot" or fact.at_ns >= told.since_ns]
        said = [line for line in said if line.at_ns is None or line.at_ns >= told.since_ns]
    facts, said, hosts = _with_hosts(facts, said, evidence.sources)
    jobs = []
    for label, attempt, sources, some_facts, some_said in _segments(facts, said, evidence.sources, told):
        job = Job(sorted(some_facts, key=moment), some_said, sources, list(evidence.gaps), label=label, attempt=attempt)
        job.hosts = hosts
        _people(job, told)
        coverage.judge(job)
        jobs.append(job)
    return jobs


# --- hosts ---------------------------------------------------------------------------------------------------------


def _with_hosts(
    facts: list[Fact], said: list[Said], sources: Sequence[Source]
) -> tuple[list[Fact], list[Said], set[str]]:
    """Canonical host names everywhere, and each source's own host where it has one."""
    aliases = _aliases(facts)
    name = lambda host: aliases.get(canon(host) or "", canon(host))  # noqa: E731
    seen = Counter(host for fact in facts if (host := name(fact.who.host)))
    seen.update(host for line in said if (host := name(line.who.host)))
    known = set(seen)
    home: dict[str, str | None] = {}
    spoken: dict[str, set[str]] = defaultdict(set)
    for item in (*facts, *said):
        if host := name(item.who.host):
            spoken[item.spot.source.path].add(host)
    others = _texts_of_others(facts, said, sources)
    for source in sources:
        named = in_path(source.path, [*known, *aliases])
        if named is None and source.kind in ("kernel", "stack", "metrics"):
            named = guess_from_path(source.path)
        if named is None:
            # A merged log speaks for many hosts: only a file in which one host alone is ever named is that host's.
            named = (
                next(iter(spoken[source.path]))
                if len(spoken[source.path]) == 1 and source.kind in ("training", "unknown")
                else None
            )
        if named is None and source.kind in ("training", "unknown"):
            named = mentioned(
                source.path, [other.path for other in sources if other is not source], others[source.path]
            )
        home[source.path] = aliases.get(named or "", named)
        if home[source.path]:
            known.add(home[source.path] or "")

    def at_home(who: Identity, source: Source) -> Identity:
        host = name(who.host) or home.get(source.path)
        return who if host == who.host else replace(who, host=host)

    new_facts = [
        replace(fact, who=who) if (who := at_home(fact.who, fact.spot.source)) is not fact.who else fact
        for fact in facts
    ]
    new_said = [
        replace(line, who=who) if (who := at_home(line.who, line.spot.source)) is not line.who else line
        for line in said
    ]
    return new_facts, new_said, {host for host in known if host}


def _texts_of_others(facts: list[Fact], said: list[Said], sources: Sequence[Source]) -> dict[str, str]:
    """For each source what the short files and restart lines beside it say: they may name it."""
    short = {source.path for source in sources if source.lines <= 60}
    telling: dict[str, list[str]] = defaultdict(list)
    for item in (*facts, *said):
        if item.spot.source.path in short or (isinstance(item, Fact) and item.kind == "restart"):
            telling[item.spot.source.path].append(item.spot.excerpt)
    return {
        source.path: "\n".join(text for path, texts in telling.items() if path != source.path for text in texts)
        for source in sources
    }


def _aliases(facts: Iterable[Fact]) -> dict[str, str]:
    """Pod -> node, and a short role name ("worker-1") -> the pod or node that ends in it."""
    aliases: dict[str, str] = {}
    names: set[str] = set()
    for fact in facts:
        host, pod = canon(fact.who.host), canon(fact.who.pod)
        if pod and host and pod != host and fact.kind in ("member", "pod_evicted", "container_exit", "pod_oom"):
            aliases[pod] = host
        names.update(n for n in (host, pod) if n)
    for fact in facts:
        address, host = str(fact["address"] or ""), canon(fact.who.host)
        if (
            fact.kind in ("bootstrap_using", "net_using", "ip_address")
            and is_address(address)
            and host
            and not is_address(host)
        ):
            aliases.setdefault(address, host)
    for short in names:
        longer = {aliases.get(full, full) for full in names if full != short and full.endswith("-" + short)}
        if len(longer) == 1 and short not in aliases:
            aliases[short] = longer.pop()
    return aliases


# --- runs and attempts ---------------------------------------------------------------------------------------------


Segment = tuple[str, "int | None", list[Source], list[Fact], list[Said]]


def _segments(facts: list[Fact], said: list[Said], sources: Sequence[Source], told: Told) -> list[Segment]:
    worlds = _worlds(facts, said, sources)
    segments: list[Segment] = []
    for world in worlds:
        mine = lambda source, world=world: (
            world is None or source.identity.world == world or (source.identity.world not in worlds)
        )
        some_facts = [fact for fact in facts if mine(fact.spot.source)]
        some_said = [line for line in said if mine(line.spot.source)]
        segments.extend(_attempts(world or "", [s for s in sources if mine(s)], some_facts, some_said, told))
    return segments


def _worlds(facts: Sequence[Fact], said: Sequence[Said], sources: Sequence[Source]) -> list[str | None]:
    """Job ids in file names separate runs only if the same rank speaks under more than one of them."""
    ranks: dict[str, set[int]] = defaultdict(set)
    for item in (*facts, *said):
        world = item.spot.source.identity.world
        rank = (
            item.who.rank
            if item.who.rank is not None
            else item["rank_in_comm"]
            if isinstance(item, Fact) and item.kind == "init_complete"
            else None
        )
        if world and rank is not None:
            ranks[world].add(rank)
    shared = [world for world in ranks if any(ranks[world] & ranks[other] for other in ranks if other != world)]
    if len(shared) < 2:
        return [None]
    return sorted(shared)


def _attempts(label: str, sources: list[Source], facts: list[Fact], said: list[Said], told: Told) -> list[Segment]:
    """Split by attempt_N in paths and by restart lines; evidence of hosts goes to every attempt."""
    marks = _restart_marks(facts)
    named = {source.path: source.identity.attempt for source in sources if source.identity.attempt is not None}

    def attempt_of(item: Fact | Said) -> int | None:
        path = item.spot.source.path
        if path in named:
            return named[path]
        if item.spot.source.kind in HOST_KINDS:
            return None
        current = None
        for line, number in marks.get(path, ()):
            if (item.spot.line or 0) < line:
                break
            current = number
        if current is None and path in marks:
            return marks[path][0][1] - 1 if marks[path][0][1] > 0 else 0
        return current

    buckets: dict[int | None, tuple[list[Fact], list[Said]]] = defaultdict(lambda: ([], []))
    for fact in facts:
        buckets[attempt_of(fact)][0].append(fact)
    for line in said:
        buckets[attempt_of(line)][1].append(line)
    numbers = sorted(number for number in buckets if number is not None and _has_substance(*buckets[number]))
    if told.attempt is not None and told.attempt in numbers:
        numbers = [told.attempt]
    elif len(numbers) < 2:
        return [(label, numbers[0] if numbers and len(buckets) == 1 else None, sources, facts, said)]
    common_facts, common_said = buckets[None]
    common_facts = [
        *common_facts,
        *(
            fact
            for fact in facts
            if fact.kind == "member" and fact.spot.source.kind == "note" and fact not in common_facts
        ),
    ]
    segments = []
    for number in numbers:
        own = {item.spot.source.path for item in (*buckets[number][0], *buckets[number][1])}
        windowed = [fact for fact in common_facts if _within(fact, buckets, number, numbers)]
        segments.append(
            (
                label,
                number,
                [s for s in sources if s.path in own or s.kind in HOST_KINDS or s.path not in named],
                [*buckets[number][0], *windowed],
                [*buckets[number][1], *common_said],
            )
        )
    return segments


def _within(
    fact: Fact, buckets: dict[int | None, tuple[list[Fact], list[Said]]], number: int, numbers: list[int]
) -> bool:
    """Does a fact of the host, by its time, belong to this attempt rather than to the next or the one before?"""
    if fact.at_ns is None or fact.clock == "boot":
        return True
    starts = {
        n: min((item.at_ns for items in buckets[n] for item in items if item.at_ns), default=None) for n in numbers
    }
    follower = next((starts[n] for n in numbers if n > number and starts[n]), None)
    if follower is not None and fact.at_ns >= follower:
        return False
    mine = starts[number]
    return mine is None or number == numbers[0] or fact.at_ns >= mine


def _has_substance(facts: list[Fact], said: list[Said]) -> bool:
    """An attempt that only shows its launcher's farewell is none."""
    telling = [
        fact
        for fact in facts
        if fact.kind not in ("restart", "rendezvous_complete", "launcher_stop", "config", "exit", "member")
    ]
    return bool(telling) or len(said) > 3


def _restart_marks(facts: Iterable[Fact]) -> dict[str, list[tuple[int, int]]]:
    """For each source the lines at which a new attempt begins, with its number."""
    marks: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for fact in sorted(facts, key=lambda fact: (fact.spot.source.path, fact.spot.line or 0)):
        path, line = fact.spot.source.path, fact.spot.line or 0
        number: int | None = None
        if fact.kind == "rendezvous_complete" and isinstance(fact["restart_count"], int):
            number = fact["restart_count"]
        elif fact.kind == "restart":
            told = fact["attempt"]
            number = told if isinstance(told, int) else (marks[path][-1][1] + 1 if marks[path] else 1)
        if number is not None and not (marks[path] and marks[path][-1][1] == number):
            if marks[path] and number < marks[path][-1][1]:
                number = marks[path][-1][1] + 1
            marks[path].append((line, number))
    return {path: found for path, found in marks.items() if found}


# --- ranks ---------------------------------------------------------------------------------------------------------


def _people(job: Job, told: Told) -> None:
    """Who is who: ranks with their hosts and pids, and every fact and line with its rank."""
    _main_threads(job)
    job.world_size, job.world_told = _world_size(job, told)
    _from_members(job)
    _from_inits(job)
    _from_tasks(job)
    _from_agents(job)
    _link_by_pid(job)
    for rank in sorted({item.who.rank for item in (*job.facts, *job.said) if item.who.rank is not None}):
        _info(job, rank)
    _attach(job)
    if job.world_size is None and job.ranks:
        job.world_size = max(job.ranks) + 1


def _main_threads(job: Job) -> None:
    """On Linux a main thread's number is its process's: a dump whose "Process P:" line is lost still says whose it is."""
    for number, fact in enumerate(job.facts):
        ident = str(fact["ident"] or "")
        if (
            fact.kind == "stack"
            and fact["main"]
            and ident.isdecimal()
            and 1 < int(ident) < 1 << 23
            and fact.who.pid not in (None, int(ident))
        ):
            job.facts[number] = replace(fact, who=replace(fact.who, pid=int(ident), rank=None))
    job.by_kind["stack"] = [fact for fact in job.facts if fact.kind == "stack"]


def _info(job: Job, rank: int) -> RankInfo:
    return job.ranks.setdefault(rank, RankInfo(rank))


def _world_size(job: Job, told: Told) -> tuple[int | None, bool]:
    if told.world_size:
        return told.world_size, True
    sizes: Counter[int] = Counter()
    for fact in job.facts:
        for name in ("world_size", "nranks", "global_world_size", "expected"):
            size = fact.values.get(name)
            if isinstance(size, int) and 1 <= size <= 1_000_000:
                sizes[size] += 1
        if fact.kind == "config" and str(fact["name"]).lower().replace("-", "_") in (
            "world_size",
            "dist_world_size",
            "nranks",
            "ntasks",
            "num_processes",
            "distributed_world_size",
        ):
            value = fact["value"]
            if isinstance(value, int) or str(value).isdigit():
                sizes[int(value)] += 1
    sizes.update(fact["size"] for fact in job.of("ras_counts") if isinstance(fact["size"], int))
    highest = max(
        (
            item.who.rank
            for item in (*job.facts, *job.said)
            if item.who.rank is not None and item.spot.source.kind != "note"
        ),
        default=-1,
    )
    fits = [size for size in sizes if size > highest]
    if fits:
        return max(fits), True
    nodes = [
        int(f["value"]) for f in job.of("config") if f["name"] in ("nnodes", "max_nodes") and str(f["value"]).isdigit()
    ]
    per_node = [
        int(f["value"])
        for f in job.of("config")
        if f["name"] in ("nproc_per_node", "nproc-per-node", "num_local_procs") and str(f["value"]).isdigit()
    ]
    if per_node and max(per_node) * (max(nodes) if nodes else 1) > highest:
        return max(per_node) * (max(nodes) if nodes else 1), True
    return None, False


def _from_members(job: Job) -> None:
    for fact in job.of("member", "exit"):
        if fact.who.rank is None:
            continue
        info = _info(job, fact.who.rank)
        if fact.who.host and (fact.values or fact.kind == "exit" or info.host is None):
            info.host = fact.who.host
        if fact.who.pid is not None:
            info.pids.add(fact.who.pid)
        if fact.who.local_rank is not None:
            info.local_rank = fact.who.local_rank
        info.gpu = info.gpu or fact.who.gpu
        info.pod = info.pod or fact.who.pod


def _from_tasks(job: Job) -> None:
    """srun's exit lines: task N on a host is rank N, where there are several tasks a host (else they are launchers)."""
    homes: dict[int, str] = {}
    for fact in job.of("task_exit", "task_oom"):
        tasks = fact["tasks"] if isinstance(fact["tasks"], (list, tuple)) else [fact["task"]]
        for task in tasks:
            if isinstance(task, int) and fact.who.host:
                homes[task] = fact.who.host
    if len(homes) <= len(set(homes.values())) or not homes:
        return
    if job.world_size is not None and max(homes) >= job.world_size and job.world_told:
        return
    for task, host in homes.items():
        info = _info(job, task)
        info.host = info.host or host
    if not job.world_told:
        job.world_size = max(job.world_size or 0, max(homes) + 1)


def _from_inits(job: Job) -> None:
    """NCCL's init lines and RAS: host:pid -> rank, where the communicator spans the world."""
    size = lambda fact: fact["nranks"] or fact["size"]  # noqa: E731
    inits = [
        fact
        for fact in job.of("init_start", "init_complete", "ras_counts")
        if isinstance(size(fact), int) and isinstance(fact["rank_in_comm"], int)
    ]
    if not inits:
        return
    widest = max(size(fact) for fact in inits)
    if job.world_size not in (None, widest):
        return
    for fact in inits:
        if size(fact) == widest:
            info = _info(job, fact["rank_in_comm"])
            info.host = info.host or fact.who.host
            if fact.who.pid is not None:
                info.pids.add(fact.who.pid)
            if isinstance(fact["cuda_dev"], int) and info.local_rank is None:
                info.local_rank = fact["cuda_dev"]
            info.gpu = info.gpu or (str(fact["bus_id"]) if fact["bus_id"] else None)


def _from_agents(job: Job) -> None:
    """torchrun's agents: local ranks -> global ranks on their host; and the pids of their workers in local order."""
    for fact in job.of("rendezvous_complete"):
        ranks, locals_ = fact["global_ranks"], fact["local_ranks"]
        if isinstance(ranks, (list, tuple)) and isinstance(locals_, (list, tuple)):
            for rank, local in zip(ranks, locals_, strict=False):
                info = _info(job, int(rank))
                info.local_rank = int(local)
                info.host = info.host or fact.who.host
    by_source: dict[str, list[Fact]] = defaultdict(list)
    for fact in job.of("launcher_stop", "launcher_kill"):
        by_source[fact.spot.source.path].append(fact)
    for stops in by_source.values():
        pids = sorted({fact.who.pid for fact in stops if fact.who.pid})
        host = stops[0].who.host
        ranks = job.ranks_on(host) or sorted(
            {
                rank
                for rank, info in job.ranks.items()
                if info.host is None and _speaks_in(job, rank, stops[0].spot.source)
            }
        )
        spoken = sorted(
            {
                item.who.rank
                for item in (*job.facts, *job.said)
                if item.spot.source is stops[0].spot.source and item.who.rank is not None
            }
        )
        ranks = ranks if len(ranks) >= len(spoken) else spoken
        if (
            len(pids) == len(ranks)
            and pids
            and pids[-1] - pids[0] < 4 * len(pids)
            and not any(_info(job, rank).pids for rank in ranks)
        ):
            for rank, pid in zip(ranks, pids, strict=True):
                _info(job, rank).pids.add(pid)


def _speaks_in(job: Job, rank: int, source: Source) -> bool:
    return any(item.who.rank == rank and item.spot.source is source for item in (*job.facts, *job.said))


def _link_by_pid(job: Job) -> None:
    """Any line that carries both a rank and a pid (Ray's actors), stacks of processes, children of ranks."""
    seen: dict[tuple[str | None, int], Counter[int]] = defaultdict(Counter)
    for item in (*job.facts, *job.said):
        if (
            item.who.rank is not None
            and item.who.pid is not None
            and not (isinstance(item, Fact) and item.kind == "timeout" and item.who.local_rank is not None)
        ):
            if isinstance(item, Fact) and item.kind in (
                "oom_kill",
                "oom_constraint",
                "hung_task",
                "xid",
                "launcher_stop",
                "launcher_kill",
                "dl_worker_killed",
                "process",
            ):
                continue
            seen[item.who.host, item.who.pid][item.who.rank] += 1
    locals_: dict[int, Counter[int]] = defaultdict(Counter)
    for item in (*job.facts, *job.said):
        if item.who.rank is not None and item.who.local_rank is not None:
            locals_[item.who.rank][item.who.local_rank] += 1
    for rank, found in locals_.items():
        if _info(job, rank).local_rank is None:
            _info(job, rank).local_rank = found.most_common(1)[0][0]
    for (host, pid), ranks in seen.items():
        rank, count = ranks.most_common(1)[0]
        if count >= 0.9 * sum(ranks.values()):
            info = _info(job, rank)
            if len(info.pids) < 3:
                info.pids.add(pid)
            info.host = info.host or host
    for fact in job.of("stack", "process"):
        parent = fact["ppid"]
        told = re.search(r"worker (?:\d+ )?of (?:pid )?(\d+)", str(fact["command"] or ""))
        parent = int(told[1]) if told else parent
        if (
            fact.who.pid is not None
            and isinstance(parent, int)
            and (rank := job.rank_by_pid(parent, fact.who.host)) is not None
        ):
            job.children[fact.who.pid] = rank
    for fact in job.of("dl_worker_killed"):
        if isinstance(fact["worker_pid"], int) and fact.who.rank is not None:
            job.children[fact["worker_pid"]] = fact.who.rank


def _attach(job: Job) -> None:
    """Give every fact and line its rank where pid, local rank or an old watchdog's own words tell it."""
    for number, fact in enumerate(job.facts):
        rank = _rank_of(job, fact)
        if rank is not None and fact.who.rank is None:
            fact = job.facts[number] = replace(fact, who=replace(fact.who, rank=rank))
        if fact.who.rank is not None:
            info = _info(job, fact.who.rank)
            info.facts.append(fact)
            info.sources.add(fact.spot.source)
            if info.host is None and fact.who.host and fact.spot.source.kind != "note":
                info.host = fact.who.host
    owners = _owners(job)
    for number, line in enumerate(job.said):
        rank = line.who.rank if line.who.rank is not None else owners.get(line.spot.source.path)
        if rank is None and line.who.pid is not None:
            rank = job.rank_by_pid(line.who.pid, line.who.host)
        if rank is None and line.who.local_rank is not None:
            rank = job.local(line.who.host, line.who.local_rank)
        if rank is not None:
            if line.who.rank is None:
                line = job.said[number] = replace(line, who=replace(line.who, rank=rank))
            info = _info(job, rank)
            info.said.append(line)
            info.sources.add(line.spot.source)
            info.host = info.host or (line.who.host if line.spot.source.kind != "note" else None)
    for number, fact in enumerate(job.facts):
        if fact.who.rank is not None and fact.who.host is None and (host := job.host_of(fact.who.rank)):
            job.facts[number] = replace(fact, who=replace(fact.who, host=host))
    job.by_kind.clear()
    for fact in job.facts:
        job.by_kind.setdefault(fact.kind, []).append(fact)


def _owners(job: Job) -> dict[str, int]:
    """Files in which one rank alone speaks, where there are several such files: all their lines are that rank's."""
    speakers: dict[str, set[int]] = defaultdict(set)
    for item in (*job.facts, *job.said):
        if (
            item.who.rank is not None
            and item.spot.source.kind in ("training", "unknown")
            and (isinstance(item, Said) or item.kind not in ("member", "exit"))
        ):
            speakers[item.spot.source.path].add(item.who.rank)
    alone = {path: next(iter(ranks)) for path, ranks in speakers.items() if len(ranks) == 1}
    return alone if len(set(alone.values())) >= 2 and len(alone) >= 0.6 * len(speakers) else {}


_OF_THE_RANK = {
    "timeout",
    "pg_status",
    "dump_signal",
    "watchdog_stuck",
    "generic_abort",
    "barrier_innocent",
    "store_timeout",
}


def _rank_of(job: Job, fact: Fact) -> int | None:
    if fact.who.rank is not None:
        return fact.who.rank
    if (
        fact.who.pid is not None
        and fact.kind not in ("launcher_stop",)
        and (rank := job.rank_by_pid(fact.who.pid, fact.who.host)) is not None
    ):
        return rank
    if (
        fact.who.local_rank is not None
        and fact.kind in ("exit", "exception", "cuda_oom", "timeout")
        and (rank := job.local(fact.who.host, fact.who.local_rank)) is not None
    ):
        return rank
    if fact.kind in _OF_THE_RANK and isinstance(fact["group_rank"], int):
        # Before torch 2.2 nothing but the rank in its group is printed; for the default group that is the rank.
        return fact["group_rank"]
    if fact.kind == "dl_worker_killed" and isinstance(fact["worker_pid"], int):
        return job.children.get(fact["worker_pid"])
    return None


__all__ = ["Gap", "Told", "build"]
