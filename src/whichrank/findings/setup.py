"""What differs between the nodes of one job though it must not: versions, the master's address, interfaces asked for."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass

from whichrank.facts import Fact
from whichrank.job.model import Job
from whichrank.job.names import canon, is_address


@dataclass(frozen=True, slots=True)
class Differing:
    """One thing that has several values: a fact of each value, the rarest first."""

    what: str
    facts: tuple[Fact, ...]
    by_host: dict[str, str]

    @property
    def says(self) -> str:
        """ "n3: 2.4.0, n4: 2.5.1"."""
        return ", ".join(f"{fact.who.host}: {fact['value']}" for fact in self.facts)


@dataclass(frozen=True, slots=True)
class Setup:
    versions: tuple[Differing, ...]
    equal: tuple[Fact, ...]  # the same version of torch or NCCL, a fact of each of two hosts
    masters: tuple[Differing, ...]
    lacking: tuple[Fact, Fact] | None  # the interface asked for, and one that the host has instead
    nodes: tuple[Fact, Fact] | None  # nodes that the batch script asks for, nodes that the launcher waits for
    loopback: Fact | None  # a host whose own name resolves to its loopback
    memlock: Fact | None  # a host that may pin next to nothing


def setup(job: Job) -> Setup:
    versions, equal = _versions(job)
    small = [
        fact
        for fact in job.of("version")
        if fact["what"] == "memlock_kb" and isinstance(fact["value"], int) and fact["value"] <= 65536
    ]
    return Setup(
        versions,
        equal,
        tuple(found for name in ("MASTER_ADDR", "MASTER_PORT") if (found := _master(job, name)) is not None),
        _lacking(job),
        _nodes(job),
        _loopback(job),
        small[0] if small else None,
    )


def _by_host(facts: list[Fact]) -> dict[str, Fact]:
    """Each host's fact; none of a host that shows several values (an image beside the host's own)."""
    values: dict[str, dict[str, Fact]] = defaultdict(dict)
    for fact in facts:
        if fact.who.host:
            values[fact.who.host].setdefault(str(fact["value"]), fact)
    return {host: next(iter(found.values())) for host, found in values.items() if len(found) == 1}


def _differing(what: str, by_host: dict[str, Fact]) -> Differing | None:
    counts = Counter(str(fact["value"]) for fact in by_host.values())
    if len(counts) < 2:
        return None
    chosen = {str(fact["value"]): fact for fact in reversed(by_host.values())}
    return Differing(
        what,
        tuple(sorted(chosen.values(), key=lambda fact: (counts[str(fact["value"])], fact.order))),
        {host: str(fact["value"]) for host, fact in by_host.items()},
    )


def _versions(job: Job) -> tuple[tuple[Differing, ...], tuple[Fact, ...]]:
    things: dict[str, list[Fact]] = defaultdict(list)
    for fact in job.of("version"):
        if fact["what"] != "memlock_kb":
            things[str(fact["what"])].append(fact)
    found = []
    equal: tuple[Fact, ...] = ()
    for what, facts in things.items():
        by_host = _by_host(facts)
        if (differing := _differing(what, by_host)) is not None:
            found.append(differing)
        elif what in ("torch", "nccl") and len(by_host) > 1:
            equal = tuple(by_host.values())[:2]
    return tuple(found), equal


def _master(job: Job, name: str) -> Differing | None:
    facts = [fact for fact in job.of("env_set") if fact["name"] == name and "$" not in str(fact["value"])]
    by_host = _by_host(facts)
    # A name beside an address may be the same machine twice.
    kinds = {is_address(str(fact["value"])) for fact in by_host.values()}
    if name == "MASTER_ADDR":
        short = {canon(str(fact["value"])) for fact in by_host.values()}
        if len(kinds) > 1 or len(short) < 2:
            return None
    return _differing(name, by_host)


def _lacking(job: Job) -> tuple[Fact, Fact] | None:
    """NCCL_SOCKET_IFNAME as NCCL reads it: a list of prefixes, `=` for exact names, `^` for what to leave out."""
    own: dict[str, list[Fact]] = defaultdict(list)
    for fact in job.of("ip_address"):
        if fact.who.host:
            own[fact.who.host].append(fact)
    for asked in job.of("env_set"):
        value = str(asked["value"])
        if asked["name"] != "NCCL_SOCKET_IFNAME" or value.startswith("^") or not re.match(r"=?[a-z]", value):
            continue
        exact, names = value.startswith("="), [name for name in value.lstrip("=").split(",") if name]
        for host, facts in own.items():
            if asked.who.host not in (None, host):
                continue
            # `ip addr` lists everything; two addresses that somebody picked out are no list.
            has = {str(fact["interface"]).split(":")[0] for fact in facts}
            whole = "lo" in has
            if whole and not any(one == name or (not exact and one.startswith(name)) for one in has for name in names):
                other = next((fact for fact in facts if str(fact["interface"]) not in ("lo", "docker0")), facts[0])
                return asked, other
    return None


def _nodes(job: Job) -> tuple[Fact, Fact] | None:
    told: dict[str, Fact] = {}
    for fact in job.of("config"):
        if isinstance(fact["value"], int):
            told.setdefault(str(fact["name"]), fact)
    given, asked = told.get("sbatch_nodes"), told.get("nnodes")
    if given is None or asked is None or given["value"] >= asked["value"]:
        return None
    return given, asked


def _loopback(job: Job) -> Fact | None:
    return next(
        (
            fact
            for fact in job.of("resolves")
            if str(fact["address"]).startswith("127.") and fact.who.host and canon(str(fact["name"])) == fact.who.host
        ),
        None,
    )
