"""Who is who: ranks with their hosts, processes and GPUs, and every fact and line with its rank.

Nothing is guessed: a rank comes from a label, a message, a file's name, or from a pid that one line ties to it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace

from whichrank.facts import MOST_RANKS, Fact, Identity, Said
from whichrank.job.model import Job, RankInfo, Told


def introduce(job: Job, told: Told) -> None:
    """Who is who: ranks with their hosts and pids, and every fact and line with its rank."""
    _main_threads(job)
    job.world_size, job.world_told = _world_size(job, told)
    _from_members(job)
    _from_inits(job)
    _from_tasks(job)
    _from_agents(job)
    _from_streams(job)
    _link_by_pid(job)
    for rank in sorted({item.who.rank for item in job.items() if item.who.rank is not None}):
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
            if isinstance(size, int):
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
        (item.who.rank for item in job.items() if item.who.rank is not None and item.spot.source.kind != "note"),
        default=-1,
    )
    fits = [size for size in sizes if highest < size <= MOST_RANKS and size]
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
    product = max(per_node, default=0) * max(nodes, default=1)
    if highest < product <= MOST_RANKS and product:
        return product, True
    return None, False


def _from_members(job: Job) -> None:
    for fact in sorted(job.of("member", "exit"), key=lambda fact: bool(fact["given"])):  # the user's own word is last
        if fact.who.rank is None:
            continue
        info = _info(job, fact.who.rank)
        if fact.who.host and (fact.values or fact.kind == "exit" or info.host is None):
            info.host = fact.who.host
        if fact.who.pid is not None:
            info.pids.add(fact.who.pid)
        if fact.who.local_rank is not None:
            info.local_rank = fact.who.local_rank
        if fact["given"] and fact.who.host:
            info.host = fact.who.host
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

    def size(fact: Fact) -> int:
        found = fact["nranks"] or fact["size"]
        return found if isinstance(found, int) else 0

    inits = [
        fact
        for fact in job.of("init_start", "init_complete", "ras_counts", "ras_missing", "nccl_inspector")
        if size(fact) and isinstance(fact["rank_in_comm"], int)
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
        spoken = sorted(
            {
                item.who.rank
                for item in job.items()
                if item.spot.source is stops[0].spot.source and item.who.rank is not None
            }
        )
        homeless = [rank for rank in spoken if rank in job.ranks and job.ranks[rank].host is None]
        ranks = job.ranks_on(host) or homeless
        ranks = ranks if len(ranks) >= len(spoken) else spoken
        if (
            len(pids) == len(ranks)
            and pids
            and pids[-1] - pids[0] < 4 * len(pids)
            and not any(_info(job, rank).pids for rank in ranks)
        ):
            for rank, pid in zip(ranks, pids, strict=True):
                _info(job, rank).pids.add(pid)


def _from_streams(job: Job) -> None:
    """Lines labelled with a task and a local rank (srun -l before torchrun --tee): the task's first rank tells the rest."""
    firsts: dict[int, Counter[int]] = defaultdict(Counter)
    for item in job.items():
        who = item.who
        if who.task is None:
            continue
        if who.rank is not None and who.local_rank is not None:
            firsts[who.task][who.rank - who.local_rank] += 1
    first = {task: found.most_common(1)[0][0] for task, found in firsts.items()}
    if not first or any(found[first[task]] < 0.9 * sum(found.values()) for task, found in firsts.items()):
        return
    per_task = {start // task for task, start in first.items() if task}
    even = len(per_task) == 1 and all(start == task * min(per_task) for task, start in first.items())

    def named(who: Identity) -> Identity:
        if who.rank is not None or who.task is None or who.local_rank is None:
            return who
        start = first.get(who.task, who.task * min(per_task) if even else None)
        return who if start is None else replace(who, rank=start + who.local_rank)

    job.facts[:] = [replace(fact, who=who) if (who := named(fact.who)) is not fact.who else fact for fact in job.facts]
    job.said[:] = [replace(line, who=who) if (who := named(line.who)) is not line.who else line for line in job.said]


def _link_by_pid(job: Job) -> None:
    """Any line that carries both a rank and a pid (Ray's actors), stacks of processes, children of ranks."""
    seen: dict[tuple[str | None, int], Counter[int]] = defaultdict(Counter)
    for item in job.items():
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
    for item in job.items():
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
    for fact in job.of("pid_map"):  # a container's own numbering -> the host's
        inner = fact["inner"]
        owners = [info for info in job.ranks.values() if inner in info.pids and info.host == fact.who.host]
        if len(owners) == 1 and fact.who.pid is not None and fact.who.host:
            owners[0].pids.add(fact.who.pid)
    for fact in job.of("stack", "process"):
        parent = fact["ppid"]
        told = re.search(r"worker (?:\d+ )?of (?:pid )?(\d+)", str(fact["command"] or ""))
        parent = int(told[1]) if told else parent
        if (
            fact.who.pid is not None
            and isinstance(parent, int)
            and (owner := job.rank_by_pid(parent, fact.who.host)) is not None
        ):
            job.children[fact.who.pid] = owner
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
    for item in job.items():
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
        and fact.kind in ("exit", "exception", "cuda_oom", "timeout", "size_mismatch")
        and (rank := job.local(fact.who.host, fact.who.local_rank)) is not None
    ):
        return rank
    if fact.kind in _OF_THE_RANK and isinstance(fact["group_rank"], int) and fact.group in (None, "0", "default_pg"):
        # Before torch 2.2 nothing but the rank in its group is printed; for the default group that is the rank.
        return fact["group_rank"]
    if fact.kind == "dl_worker_killed" and isinstance(fact["worker_pid"], int):
        return job.children.get(fact["worker_pid"])
    return None
