"""init_rendezvous: the ranks never found each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from whichrank.causes.base import Cause, Clue, facts_of, host
from whichrank.facts import MOST_RANKS, Fact
from whichrank.findings import Findings
from whichrank.job.model import Job, earliest
from whichrank.job.names import canon
from whichrank.model import Check


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    trained = [beat for beat in found.beats if beat.count >= 3 and beat.trains]
    yield from _setup(job, found)
    yield from _store(job, found)
    yield from _names(job)
    if not trained:
        yield from _asked(job, found)
        yield from _unanswered(job, found)
    starts, done = job.of("init_start"), job.of("init_complete")
    if starts and not done and found.arrived.waits == () and not job.of("no_interface"):
        yield Clue(2.0, "transport", "NCCL communicators began to initialise and none completed", (starts[0],))
    setting_up = list(job.of("unique_id_wait"))
    if setting_up:
        yield Clue(2.5, "watchdog", "ranks waited for rank 0's NCCL id in the store", (setting_up[0],))
    if trained and any(beat.count > 10 for beat in trained):
        yield Clue(-4.0, "progress", "training steps had been made: they had found each other", (trained[0].last,))
    first = found.failed.first
    if first is not None and (first.kind != "exception" or found.failed.roots):
        yield Clue(-3.5, "order", f"a process failed by itself: {first.says}", (first.fact,))


def _setup(job: Job, found: Findings) -> Iterator[Clue]:
    missing = job.of("no_interface")
    if missing:
        ranks = tuple(sorted({fact.rank for fact in missing if fact.rank is not None}))
        hosts = sorted({fact.who.host for fact in missing if fact.who.host})
        ranks = ranks or tuple(sorted(rank for name in hosts for rank in job.ranks_on(name)))
        names = [fact for fact in job.of("env_set") if "SOCKET_IFNAME" in str(fact["name"])]
        asked = next((fact for fact in names if hosts and fact.who.host == hosts[0]), names[0] if names else None)
        has = next(
            (
                fact
                for fact in job.of("ip_address")
                if hosts and fact.who.host == hosts[0] and str(fact["interface"]) not in ("lo", "docker0")
            ),
            None,
        )
        wanted = f" (it asks for {asked['value']})" if asked else ""
        yield Clue(
            7.5,
            "transport",
            f"NCCL found no network interface on {', '.join(hosts) or 'a host'}{wanted}",
            facts_of((missing[0], asked, has)),
            ranks,
            tuple(hosts),
            decisive=True,
            mechanism="dead",
            sure_of_ranks=0.93,
        )
    by_host: dict[str, Fact] = {}
    for fact in job.of("bootstrap_using"):
        if fact.who.host:
            by_host.setdefault(fact.who.host, fact)
    odd = [
        fact
        for fact in by_host.values()
        if re.match(r"docker|virbr|veth|br-|cni|flannel|cali|lo$", str(fact["interface"]))
    ]
    if odd:
        where = [str(fact.who.host) for fact in odd]
        ranks = tuple(sorted(rank for name in where for rank in job.ranks_on(name))) if len(odd) < len(by_host) else ()
        yield Clue(
            5.0,
            "setup",
            f"{', '.join(where)} chose the interface {odd[0]['interface']}, which other hosts cannot reach",
            (odd[0], *[f for f in by_host.values() if f not in odd][:1]),
            ranks,
            tuple(where),
            sure_of_ranks=0.85,
        )
    elif len({str(fact["interface"]) for fact in by_host.values()}) > 1 and not found.beats:
        chosen = {str(fact["interface"]): fact for fact in by_host.values()}
        yield Clue(
            1.5,
            "setup",
            "the hosts bootstrap over different interfaces: "
            + ", ".join(f"{fact.who.host}: {name}" for name, fact in chosen.items()),
            tuple(chosen.values())[:3],
        )
    used = earliest(job.of("addr_in_use"))
    if used is not None:
        yield Clue(
            6.5,
            "traceback",
            f"port {used['port'] or '?'} was already in use",
            (used,),
            (used.rank,) if used.rank is not None else (),
            host(used.who.host or job.host_of(used.rank)),
            decisive=True,
            mechanism="dead",
            sure_of_ranks=0.75,
        )
    for fact in job.of("duplicate_rank", "duplicate_gpu"):
        yield Clue(
            6.0,
            "transport",
            "two processes claim the same rank or GPU: " + fact.spot.excerpt[-100:],
            (fact,),
            (fact.rank,) if fact.rank is not None and fact.kind == "duplicate_gpu" else (),
            mechanism="dead",
            sure_of_ranks=0.6,
        )
        break


def _store(job: Job, found: Findings) -> Iterator[Clue]:
    joined = [
        fact
        for fact in job.of("store_timeout")
        if isinstance(fact["joined"], int) and isinstance(fact["expected"], int)
    ]
    if joined:
        fact = joined[0]
        yield Clue(
            6.5,
            "traceback",
            f"only {fact['joined']} of {fact['expected']} clients joined the store",
            (fact,),
            _never_seen(job, fact),
            (),
            mechanism="undecided",
            sure_of_ranks=0.75,
        )
    barrier = [
        fact
        for fact in job.of("store_barrier")
        if isinstance(fact["worker_count"], int) and isinstance(fact["world_size"], int)
    ]
    if barrier and barrier[-1]["worker_count"] != barrier[-1]["world_size"]:
        fact = barrier[-1]
        more = fact["worker_count"] > fact["world_size"]
        yield Clue(
            5.0,
            "traceback",
            f"{fact['worker_count']} workers counted for a world of {fact['world_size']}"
            + (": entries of an earlier run were counted too" if more else ""),
            (fact,),
            absent := _not_in_barrier(barrier),
            tuple(dict.fromkeys(name for rank in absent if (name := job.host_of(rank)))),
            sure_of_ranks=0.75,
        )
    connects = job.of("connect_timeout", "rendezvous_error")
    if connects:
        fact = next((f for f in connects if f.kind == "connect_timeout"), connects[0])
        target = f" to {fact['address']}:{fact['port']}" if fact["address"] else ""
        hosts = sorted({f.who.host for f in connects if f.who.host})
        yield Clue(
            5.5,
            "watchdog",
            f"connecting{target} timed out during rendezvous",
            (fact, *[f for f in connects if f is not fact and f.kind != fact.kind][:1]),
            (),
            tuple(hosts[:1]) if len(hosts) == 1 and len(job.hosts) > 1 else (),
            mechanism="undecided",
        )
    refused = [fact for fact in job.of("connect_failed") if not found.beats]
    if refused and not found.failed.roots:
        fact = refused[0]
        yield Clue(
            3.5,
            "transport",
            f"connecting to {fact['address'] or 'a peer'} failed while the communicators were set up",
            (fact,),
            (),
            mechanism="network",
        )


def _not_in_barrier(waits: Sequence[Fact]) -> tuple[int, ...]:
    """Ranks that nobody saw waiting at the last key, if they are as many as the store lacks: each that came says so."""
    last = waits[-1]
    if not 0 < last["world_size"] <= MOST_RANKS:
        return ()
    came = {fact.rank for fact in waits if fact["key"] == last["key"]}
    absent = sorted(set(range(last["world_size"])) - came)
    return tuple(absent) if 0 < len(absent) == last["world_size"] - last["worker_count"] else ()


def _never_seen(job: Job, fact: Fact) -> tuple[int, ...]:
    """Ranks that left no trace at all, if they are as many as did not join."""
    absent = sorted(job.everyone() - {rank for rank, info in job.ranks.items() if info.said or info.facts})
    return tuple(absent) if len(absent) == fact["expected"] - fact["joined"] else ()


def _asked(job: Job, found: Findings) -> Iterator[Clue]:
    """What the nodes were told, where they were told different things or what they cannot do."""
    asked = found.setup
    for differing in asked.masters[:1]:
        says = f"the nodes have different values of {differing.what}: {differing.says}"
        yield Clue(4.5, "settings", says, differing.facts[:3], mechanism="undecided")
    if asked.lacking is not None and not job.of("no_interface"):
        wanted, has = asked.lacking
        where = has.who.host
        says = f"{wanted['name']}={wanted['value']} names no interface of {where} (it has {has['interface']})"
        yield Clue(4.0, "settings", says, (wanted, has), tuple(job.ranks_on(where)), host(where), sure_of_ranks=0.8)
    if asked.nodes is not None:
        given, nodes = asked.nodes
        says = f"the batch script asks for {given['value']} nodes, the launcher waits for {nodes['value']}"
        yield Clue(4.0, "settings", says, (given, nodes), mechanism="undecided")
    if asked.loopback is not None and (
        job.of("connect_timeout", "connect_failed", "rendezvous_error", "store_timeout")
    ):
        fact = asked.loopback
        says = (
            f"{fact.who.host} resolves its own name to {fact['address']}: the others are told an address of their own"
        )
        yield Clue(3.0, "setup", says, (fact,), (), host(fact.who.host))


def _unanswered(job: Job, found: Findings) -> Iterator[Clue]:
    """Connections that wait for an answer; and a listening queue that is shorter than the ranks are many."""
    for one in found.unanswered[:1]:
        alone = one.reached is not None
        weight = 1.0 + 2.5 * one.lasting + 0.5 * (alone or one.listens is not None)
        where, ranks = host(one.at_fault), tuple(job.ranks_on(one.host)) if alone else ()
        yield Clue(weight, "setup", one.says, one.proof, ranks, where, mechanism="network", sure_of_ranks=0.7)
    short = [
        fact
        for fact in job.of("sysctl")
        if fact["name"] == "net.core.somaxconn" and fact["value"] < len(job.everyone()) and job.world_told
    ]
    refused = job.of("connect_timeout", "connect_failed", "connect_retry", "store_timeout")
    if short and refused:
        says = f"net.core.somaxconn of {short[0].who.host or 'a host'} is {short[0]['value']}, fewer than the ranks that connect at once"
        yield Clue(1.5, "settings", says, (short[0], refused[0]), (), host(short[0].who.host))


def _names(job: Job) -> Iterator[Clue]:
    """The master's name resolves to an address on a network that another host is not on."""
    targets = {canon(str(fact["address"])) for fact in job.of("connect_timeout")} | {
        canon(str(fact["master_addr"])) for fact in job.of("rendezvous_complete")
    }
    for fact in job.of("resolves"):
        if canon(str(fact["name"])) not in targets:
            continue
        net = ".".join(str(fact["address"]).split(".")[:3])
        mine = [a for a in job.of("ip_address") if a.who.host == fact.who.host]
        reach = [a for a in mine if str(a["address"]).startswith(net + ".") and str(a["state"]).upper() != "DOWN"]
        if mine and not reach:
            down = next((a for a in mine if str(a["state"]).upper() == "DOWN"), None)
            yield Clue(
                3.0,
                "setup",
                f"{fact['name']} resolves to {fact['address']}, and {fact.who.host} has no address on that network",
                (fact, *((down,) if down else ())),
                (),
                (),
            )
            return


CAUSE = Cause(
    id="init_rendezvous",
    title="the ranks never found each other",
    means="Rendezvous or the first communicator failed: a wrong address, interface or port, a firewall, a node that never started, left-over state of an earlier run.",
    looks_like="'clients joined', connect timeouts, 'no socket interface found', 'Address already in use', ranks that print Init START and no COMPLETE, and no training step.",
    settles=(
        Check(
            "is anybody listening where all connect? (ss -ltnp on the master)",
            "srun -l nc -zv $MASTER_ADDR $MASTER_PORT",
            "{host}",
        ),
        Check(
            "which address does each node use?", "srun -l bash -c 'hostname; getent hosts $MASTER_ADDR; ip -br addr'"
        ),
        Check(
            "which ranks never started?",
            "sacct -j JOBID -o JobID,State,NodeList   # or: kubectl get pods -o wide",
        ),
    ),
    fix=(
        "Give an address that all nodes reach: --rdzv-endpoint / MASTER_ADDR as an IP on the right network, --local-addr where a host has several names.",
        "Choose interfaces by prefix, not by exact name: NCCL_SOCKET_IFNAME=ens (no '='), GLOO_SOCKET_IFNAME alike; exclude docker0 and lo with ^docker0,lo.",
        "Open the ephemeral port range between the nodes, not only MASTER_PORT; a fresh port and a fresh init file for each run.",
    ),
    stopgap="Restart with another port and with the address written as an IP.",
    weigh=weigh,
    mechanism="undecided",
    verb="could not join",
    dont="raise the timeout: nobody is on the way",
)
