"""Which host each line and file belongs to: canonical names, pods and addresses, files named after their host."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from whichrank.facts import Fact, Identity, Said, Source
from whichrank.job.model import both
from whichrank.job.names import beside_hosts, canon, guess_from_path, in_path, is_address, mentioned

FEW = 200  # files: each is compared with each, and a name that only a file carries is believed if another speaks of it


def with_hosts(
    facts: list[Fact], said: list[Said], sources: Sequence[Source]
) -> tuple[list[Fact], list[Said], set[str]]:
    """Canonical host names everywhere, and each source's own host where it has one."""
    aliases = _aliases(facts)

    def name(host: str | None) -> str | None:
        return aliases.get(canon(host) or "", canon(host))

    seen = Counter(host for fact in facts if (host := name(fact.who.host)))
    seen.update(host for line in said if (host := name(line.who.host)))
    known = set(seen)
    guessed = {host for source in sources if source.kind == "kernel" and (host := guess_from_path(source.path))}
    known |= beside_hosts((source.path for source in sources), known | guessed)
    home: dict[str, str | None] = {}
    spoken: dict[str, set[str]] = defaultdict(set)
    for item in both(facts, said):
        if host := name(item.who.host):
            spoken[item.spot.source.path].add(host)
    shared = _shared(both(facts, said), aliases)
    few = len(sources) <= FEW
    others = _texts_of_others(facts, said, sources) if few else {}
    for source in sources:
        named = in_path(source.path, [*known, *aliases])
        if named is None and source.kind in ("kernel", "stack", "metrics"):
            named = guess_from_path(source.path)
        if named is None:
            # A merged log speaks for many hosts: only a file in which one host alone is ever named is that host's.
            named = (
                next(iter(spoken[source.path]))
                if len(spoken[source.path]) == 1
                and source.kind in ("training", "unknown")
                and source.path not in shared
                else None
            )
        if named is None and few and source.kind in ("training", "unknown"):
            named = mentioned(source.path, others[source.path])
        home[source.path] = aliases.get(named or "", named)
        if home[source.path]:
            known.add(home[source.path] or "")

    def at_home(who: Identity, source: Source) -> Identity:
        host = name(who.host) or aliases.get(canon(who.pod) or "") or home.get(source.path)
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


def _shared(items: Iterable[Fact | Said], aliases: dict[str, str]) -> set[str]:
    """Files in which several pods speak, or more ranks than those of the one pod that is named there.

    A pod that nothing describes may run on any node.
    """
    pods: dict[str, set[str]] = defaultdict(set)
    speak: dict[str, set[int]] = defaultdict(set)
    placed: dict[str, set[int]] = defaultdict(set)
    by_pod: set[str] = set()
    for item in items:
        path, who = item.spot.source.path, item.who
        told = (who.rank, item["rank_in_comm"] if isinstance(item, Fact) else None)
        ranks = {rank for rank in told if isinstance(rank, int)}
        speak[path] |= ranks
        if who.pod:
            pods[path].add(who.pod)
        if who.host:
            placed[path] |= ranks
            if canon(who.host) in aliases:
                by_pod.add(path)
    return {path for path, found in pods.items() if len(found) > 1} | {
        path for path in by_pod if speak[path] - placed[path]
    }


def _texts_of_others(facts: list[Fact], said: list[Said], sources: Sequence[Source]) -> dict[str, str]:
    """For each source what the short files and restart lines beside it say: they may name it."""
    short = {source.path for source in sources if source.lines <= 60}
    telling: dict[str, list[str]] = defaultdict(list)
    for item in both(facts, said):
        if item.spot.source.path in short or (isinstance(item, Fact) and item.kind == "restart"):
            telling[item.spot.source.path].append(item.spot.excerpt)
    return {
        source.path: "\n".join(text for path, texts in telling.items() if path != source.path for text in texts)
        for source in sources
    }


def _by_process(facts: Iterable[Fact]) -> dict[str, str]:
    """NCCL's RAS knows hosts by their address, its log by their name: one process, and the same rank of as many."""
    named: dict[tuple[int, object, object], set[str]] = defaultdict(set)
    for fact in facts:
        host = canon(fact.who.host)
        if fact.kind in ("init_start", "init_complete") and fact.who.pid and host and not is_address(host):
            named[fact.who.pid, fact["rank_in_comm"], fact["nranks"]].add(host)
    found: dict[str, str] = {}
    for fact in facts:
        host = canon(fact.who.host)
        if fact.kind in ("ras_counts", "ras_missing") and fact.who.pid and host and is_address(host):
            names = named.get((fact.who.pid, fact["rank_in_comm"], fact["size"]), set())
            if len(names) == 1:
                found.setdefault(host, next(iter(names)))
    return found


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
    aliases = {**_by_process(facts), **aliases}
    longer: dict[str, set[str]] = defaultdict(set)
    for full in names:
        for at, char in enumerate(full):
            if char == "-" and (short := full[at + 1 :]) in names:
                longer[short].add(aliases.get(full, full))
    return {**{short: full.pop() for short, full in longer.items() if len(full) == 1}, **aliases}
