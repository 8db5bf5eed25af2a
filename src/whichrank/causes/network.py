"""network: a path between ranks that once was or should be there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.causes.base import Cause, Clue, by_dumps, facts_of, host
from whichrank.facts import Fact
from whichrank.findings import Findings
from whichrank.findings.hosts import grave, timely
from whichrank.job.model import Job, before, earliest
from whichrank.model import Check

SAME_FALL = 2_000_000_000  # ns


def weigh(job: Job, found: Findings) -> Iterator[Clue]:
    net = found.network
    if (told := by_dumps(found, "network")) is not None:
        says = f"all ranks of the group started {told.traced.op or 'the collective'}, and none finished it"
        yield Clue(2.5, "dump", says, told.proofs, mechanism="network")
    if net.transport:
        yield from _transport(job, found)
    if net.links:
        fact = net.links[0]
        same = [f for f in net.links if f.who.host == fact.who.host and f["interface"] == fact["interface"]]
        # The driver and the bond above it tell of the same fall: more sure, not more often.
        often = len({f.at_ns // SAME_FALL if f.at_ns else f.spot for f in same})
        yield Clue(
            4.0 if len(same) > 1 or found.arrived.waits else 2.5,
            "kernel",
            f"{fact['interface'] or 'a link'} on {fact.who.host or 'a host'} went down{f' {often} times' if often > 1 else ''}",
            (fact,),
            (),
            host(fact.who.host),
        )
    yield from _measured(found)
    yield from _counted(job, found)
    pinned = next(
        (
            fact
            for fact in job.of("ib_call_failed")
            if re.search(r"reg_mr|reg_dmabuf|create_(?:cq|qp)", str(fact["call"]))
        ),
        None,
    )
    if found.setup.memlock is not None and pinned is not None:
        fact = found.setup.memlock
        says = f"{fact.who.host or 'a host'} lets a process pin only {fact['value']} kB, and registering memory failed"
        yield Clue(3.0, "setup", says, (fact, pinned), (), host(fact.who.host))
    if net.mtu:
        yield Clue(
            3.5 if net.transport or found.arrived.waits else 1.5,
            "setup",
            "the hosts' MTUs differ: " + ", ".join(f"{fact.who.host}: {fact['value']}" for fact in net.mtu),
            net.mtu,
        )
    yield from _sockets(job, found)
    if found.unanswered and found.beats:
        one = found.unanswered[0]
        yield Clue(1.0 + 2.0 * one.lasting, "setup", one.says, one.proof, (), host(one.at_fault))
    for less in found.unlike:
        if less.lost == "adapter" and less.sure:
            yield Clue(2.0, "setup", less.says, (less.fact, less.usual), (), host(less.fact.who.host))
            break
    if found.arrived.everyone_waited and found.sides is None and found.raised is None and not found.failed.roots:
        yield Clue(
            1.0, "watchdog", "every rank entered the same collective and none finished", (found.arrived.waits[0].fact,)
        )
    if (all_there := found.met) is not None and found.received is None and not found.failed.roots:
        says = f"all ranks were in {all_there.op} #{all_there.seq} in time, on {len(all_there.hosts)} hosts, and it did not end: nobody was late"
        yield Clue(2.8, "dump", says, all_there.facts, mechanism="network")
    yield from _against(job, found)


def _counted(job: Job, found: Findings) -> Iterator[Clue]:
    """Error counters between two snapshots, and ports that came up slower than the others'."""
    net = found.network
    for weight, growth in net.counters[:1]:
        end = growth.host if growth.host == net.end else None
        yield Clue(weight, "counters", growth.says, growth.proof, (), host(end))
    if net.still and not net.counters and found.met is None:  # a link that is cut or slow counts no errors
        still = net.still[0]
        says = f"{still.name}{f' on {still.host}' if still.host else ''} did not move between two snapshots"
        yield Clue(-1.0, "counters", says, (still.before, still.after))
    if net.listed:
        down, up = net.listed
        says = f"{down['device']} is down on {down.who.host} and up on {up.who.host}"
        yield Clue(2.5, "setup", says, (down, up), (), host(down.who.host))
    if net.rates:
        slow, usual = net.rates[0], net.rates[-1]
        says = (
            f"{slow['device']} on {slow.who.host} runs at {slow['value']} Gb/s, on the other hosts at {usual['value']}"
        )
        yield Clue(2.5, "setup", says, (slow, usual), (), host(slow.who.host))
    for fact in found.nics[:1]:
        says = f"the network card of {fact.who.host or 'a host'} reports trouble of its own: {str(fact['text'])[:80]}"
        # A card that is hot or short of power goes on working: it tells only where its host is in trouble besides.
        weight = 3.5 if grave(fact) else 1.0 if fact.who.host and fact.who.host == net.end else 0.2
        yield Clue(weight, "kernel", says, (fact,), (), host(fact.who.host) if weight >= 1 else ())
    full = [fact for fact in job.of("net_limit") if timely(fact, found.window)]
    if full and job.of("peer_closed", "connect_failed", "connect_retry", "store_lost", "connect_timeout", "gloo_error"):
        says = f"a table of the kernel on {full[0].who.host or 'a host'} is full, and connections are dropped"
        most = [
            fact
            for fact in job.of("sysctl")
            if "conntrack" in str(full[0]["text"]) and fact["name"] == "net.netfilter.nf_conntrack_max"
        ]
        most = [fact for fact in most if fact.who.host == full[0].who.host]
        yield Clue(2.5, "kernel", says, (full[0], *most[:1]), (), host(full[0].who.host))


def _measured(found: Findings) -> Iterator[Clue]:
    """Runs of nccl-tests between hosts: those far below their like, or below what such machines reach."""
    ran = found.network.measured
    if ran.slow and not ran.inside:
        where = f": every run with {ran.host}, no other" if ran.host else ""
        yield Clue(
            5.0 if ran.host else 2.5,
            "progress",
            f"the bandwidth between some nodes is far below the rest{where}",
            facts_of([*ran.slow[:3], ran.usual]),
            (),
            host(ran.host),
        )
    fall = found.inspected.fall
    if fall is not None and (fall.fact["nnodes"] or 0) > 1:
        where = f", with {fall.host} in it" if fall.host else ""
        yield Clue(
            3.5 if fall.host else 2.0,
            "progress",
            f"{fall.fact['coll']} of {fall.fact['size']} bytes{where} fell from {fall.first:g} to {fall.last:g} GB/s",
            facts_of([fall.fact, fall.usual]),
            (),
            host(fall.host),
        )
    short = ran.short
    if short is not None and not short.inside:
        yield Clue(
            1.5,
            "progress",
            f"all_reduce reaches {short.fact['busbw']:g} GB/s on {short.reached.nodes} nodes, such machines {short.reached.busbw:g} ({short.reached.source}): fewer adapters, or a path that is not used",
            (short.fact,),
        )
    wrong = ran.wrong[:1]
    if wrong and len(wrong[0]["hosts"] or ()) > 1:
        yield Clue(
            1.5,
            "transport",
            f"{wrong[0]['test'] or 'nccl-tests'} gave {wrong[0]['count']} wrong values: data was corrupted on its way or on a GPU",
            wrong,
        )


def _transport(job: Job, found: Findings) -> Iterator[Clue]:
    """Completion errors and fatal events, and the host that all of them have at one end."""
    net, death = found.network, found.failed.first
    errors = [fact for fact in net.transport if fact.kind in ("ib_error", "connect_failed")] or list(net.transport)
    first = earliest(net.transport)
    mute = bool(errors) and all(fact.kind == "connect_failed" for fact in errors)
    after = death is not None and first is not None and before(death.fact, first) is True
    shown = [first] if first is not None else []
    shown += [fact for fact in errors if fact not in shown][:1]
    shown += [fact for fact in net.transport if fact.who.host == net.end and fact not in shown][:1]
    where = f", with {net.end} at one end of all of them" if net.end else ""
    silent = net.end is not None and net.end not in {
        fact.who.host
        for fact in job.facts
        if fact.spot.source.kind == "kernel"
        or fact.kind in ("ib_error", "ib_async", "connect_failed", "link", "counter", "timeout", "pg_status")
    }
    if silent:
        yield Clue(
            -2.0,
            "absence",
            f"nothing from {net.end} itself: it may be dead instead of unreachable",
            (first,) if first else (),
        )
    yield Clue(
        5.5 if not after else 0.5,
        "transport",
        f"established connections got no answer any more{where}"
        if mute
        else f"the network transport reported errors{where}",
        tuple(shown),
        (),
        host(net.end),
        decisive=bool(net.end) and len(errors) >= 2 and not after,
    )


def _against(job: Job, found: Findings) -> Iterator[Clue]:
    """Who never arrived, who died first, what was ended from outside: the path is not what they waited for."""
    net, death = found.network, found.failed.first
    if (
        found.arrived.suspects
        and len(found.arrived.suspects) <= len(job.everyone()) // 2
        and found.arrived.waits
        and not net.transport
    ):
        yield Clue(
            -1.5,
            "absence",
            "some ranks never arrived: the others' network is not what they waited for",
            (found.arrived.waits[0].fact,),
        )
    if death is not None:
        yield Clue(-4.5, "order", f"a process failed by itself first: {death.says}", (death.fact,))
    for kind in ("oom_event", "task_oom", "pod_evicted", "pod_oom", "step_cancelled"):
        strong = [fact for fact in job.of(kind) if kind != "step_cancelled" or fact["reason"]]
        if strong:
            yield Clue(
                -3.0, "scheduler", "a rank was ended from outside: closed connections follow from it", (strong[0],)
            )
            break
    for fact in job.of("switch_down")[:1]:
        yield Clue(-3.0, "scheduler", "a switch went down: more than one path", (fact,))
    if found.ending.well:
        yield Clue(-5.0, "exit", "the job ended well", facts_of([found.ending.success]))


def _sockets(job: Job, found: Findings) -> Iterator[Clue]:
    """Connections reset or refused between ranks that had trained together, with no death in the evidence."""
    closed = job.of("gloo_error", "peer_closed")
    closed = [fact for fact in closed if fact["backend"] == "gloo" or fact["error"]]
    if closed and not found.failed.roots and found.beats:
        yield Clue(2.0, "transport", "connections between ranks broke, and no rank is shown to have died", (closed[0],))
    failed = [fact for fact in job.of("connect_failed") if found.beats and fact not in found.network.transport]
    if failed:
        yield Clue(2.0, "transport", f"connecting to {failed[0]['address'] or 'a peer'} failed", (failed[0],))
    without = {fact.who.host: fact for fact in job.of("no_ib_device") if fact.who.host}
    # NCCL's own line tells only beside a host that does use InfiniBand; a check by hand or by a preflight tells by itself.
    by_hand = {name for name, fact in without.items() if "NCCL" not in fact.spot.excerpt}
    others = {
        fact.who.host
        for fact in job.of("net_using")
        if fact.who.host and (by_hand or str(fact["transport"]).lower() in ("ib", "roce"))
    } - set(without)
    if without and others and len(without) <= len(others):
        fact = next((without[name] for name in without if name in by_hand), next(iter(without.values())))
        plain = next((f for f in job.of("net_using") if str(f["transport"]).lower() == "socket"), None)
        yield Clue(
            5.0,
            "setup",
            f"{', '.join(str(name) for name in without)} shows no InfiniBand device, the other hosts do",
            (fact, plain) if plain else (fact,),
            (),
            tuple(name for name in without if name),
        )
    networks: dict[str, Fact] = {}
    for fact in job.of("net_using"):
        if fact.who.host and fact["transport"]:
            networks[fact.who.host] = fact
    sockets = [fact for fact in networks.values() if str(fact["transport"]).lower() == "socket"]
    fast = [fact for fact in networks.values() if str(fact["transport"]).lower() in ("ib", "roce")]
    if sockets and fast:
        fact = sockets[0]
        yield Clue(
            4.0,
            "setup",
            f"{fact.who.host} uses plain sockets where the other hosts use InfiniBand",
            (fact, fast[0]),
            (),
            host(fact.who.host) if len(sockets) == 1 else (),
        )


CAUSE = Cause(
    id="network",
    title="a path between the nodes",
    means="A link, port, switch or network setting between hosts is down, flapping or degraded; ranks at both ends are victims.",
    looks_like="Completion errors with one host at one end of all, link down/up on one node, pairs of nodes far below the others in bandwidth, error counters that grow.",
    settles=(
        Check(
            "the port's counters, twice",
            "ssh {host} 'for i in 1 2; do perfquery -x || ethtool -S IFACE | grep -iE \"err|discard|down\"; sleep 60; done'",
            "{host}",
        ),
        Check(
            "isolate the pair: run all_reduce_perf over every pair of nodes; the slow ones share the bad node or link"
        ),
        Check("links in the kernel log", "ssh {host} \"dmesg -T | grep -iE 'link (is )?(down|up)|mlx5'\"", "{host}"),
    ),
    fix=(
        "Have the named port, cable or switch port checked and replaced; keep the node out until its counters stand still.",
        "Same MTU, same GID index, same interface list on all nodes.",
    ),
    stopgap="Restart without the node at the bad end.",
    weigh=weigh,
    mechanism="network",
    blames_ranks=False,
    verb="the path to {host} failed",
    dont="raise the timeout: a broken path does not get faster",
)
