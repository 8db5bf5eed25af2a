"""Paths between ranks: which host's links, ports or settings stand out.

"Connection closed by remote peer" after a death is that death's shadow, not a network fault. A timeout without any
transport error speaks against the network: a dead InfiniBand path errors by itself after about half a minute.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass

from whichrank.facts import Fact
from whichrank.findings.arrivals import Arrivals
from whichrank.findings.fabric import Bandwidth, bandwidth
from whichrank.findings.hosts import Span, timely
from whichrank.job.model import Job
from whichrank.job.names import canon

_HARMLESS = re.compile(
    r"reregist|port active|lid change|sm change|pkey|gid change|client|non-?fatal.*(?:active|rereg)", re.I
)
_BAD_COUNTER = re.compile(
    r"symbol|link_?down|link_?error|rcv_?err|crc|pcs|discard|out_of_sequence|packet_seq|ack_timeout|retries_exceeded|rx_.*err|remote_?phys|integrity|overrun",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Network:
    """`end` is the host at which the fault was seen, if the evidence agrees on one."""

    transport: tuple[Fact, ...]  # completion errors, fatal events, failed calls
    links: tuple[Fact, ...]  # links that went down in the window
    measured: Bandwidth
    counters: tuple[tuple[str, Fact, int], ...]  # host, fact, growth
    mtu: tuple[Fact, ...]  # differing MTUs of like interfaces, one fact a host
    end: str | None


def network(job: Job, arrived: Arrivals, span: Span) -> Network:
    transport = tuple(_transport(job))
    links = tuple(
        fact
        for fact in job.of("link")
        if fact["state"] == "down" and timely(fact, span) and fact.spot.source.kind != "note"
    )
    if not arrived.waits and span[0] == float("-inf"):
        links = tuple(fact for fact in job.of("link") if fact["state"] == "down")
    measured = bandwidth(job)
    slow_host = None if measured.inside else measured.host
    counters = tuple(_counters(job))
    mtu = _mtu(job)
    return Network(
        transport,
        links,
        measured,
        counters,
        mtu,
        _end(job, transport, links, slow_host, counters),
    )


def _transport(job: Job) -> list[Fact]:
    found = [fact for fact in job.of("ib_error") if fact["status"] != 5]
    found += [
        fact
        for fact in job.of("ib_async")
        if fact["fatal"] is not False and not _HARMLESS.search(str(fact["event"] or ""))
    ]
    found += [
        fact
        for fact in job.of("ib_async")
        if fact["fatal"] is False and re.search(r"port err|port down", str(fact["event"] or ""), re.I)
    ]
    found += job.of("ib_call_failed", "speed_change")
    return found


def _counters(job: Job) -> list[tuple[str, Fact, int]]:
    """Error counters that grew between two snapshots; or, in one snapshot of many hosts, one host far above the rest."""
    series: dict[tuple[str, str, str], list[Fact]] = defaultdict(list)
    for fact in job.of("counter"):
        if fact.who.host and _BAD_COUNTER.search(str(fact["name"])) and isinstance(fact["value"], int):
            series[fact.who.host, str(fact["name"]), str(fact["interface"] or fact["device"] or "")].append(fact)
    found = []
    single: dict[str, dict[str, Fact]] = defaultdict(dict)
    for (host, name, _), facts in series.items():
        if len({fact["snapshot"] for fact in facts}) > 1 and len(facts) > 1:
            grown = facts[-1]["value"] - facts[0]["value"]
            if grown > 0:
                found.append((host, facts[-1], grown))
        elif name not in single or host not in single[name] or single[name][host]["value"] < facts[0]["value"]:
            single[name][host] = facts[0]
    for by_host in single.values():
        if len(by_host) < 3:
            continue
        values = sorted(fact["value"] for fact in by_host.values())
        top = max(by_host.values(), key=lambda fact: fact["value"])
        if top["value"] >= 5 and top["value"] > 5 * max(1, values[-2]):
            found.append((top.who.host or "", top, top["value"]))
    return found


def _mtu(job: Job) -> tuple[Fact, ...]:
    by_name: dict[str, dict[str, Fact]] = defaultdict(dict)
    for fact in job.of("mtu"):
        if fact.who.host and str(fact["interface"]) != "lo":
            by_name[str(fact["interface"])][fact.who.host] = fact
    for by_host in by_name.values():
        if len({fact["value"] for fact in by_host.values()}) > 1:
            values = Counter(fact["value"] for fact in by_host.values())
            chosen = {value: next(fact for fact in by_host.values() if fact["value"] == value) for value in values}
            return tuple(chosen.values())
    return ()


def _end(
    job: Job,
    transport: tuple[Fact, ...],
    links: tuple[Fact, ...],
    slow: str | None,
    counters: tuple[tuple[str, Fact, int], ...],
) -> str | None:
    """The host at one end of everything."""
    if slow:
        return slow
    votes: Counter[str] = Counter()
    addresses = {
        str(fact["address"]): fact.who.host
        for fact in job.of("bootstrap_using", "net_using", "ip_address")
        if fact["address"] and fact.who.host
    }
    ends: list[set[str]] = []
    for fact in transport:
        sides = {fact.who.host} if fact.who.host else set()
        peer = str(fact["peer"] or "")
        peer_host = addresses.get(peer) or canon(peer)
        if peer and peer_host:
            sides.add(peer_host)
        own = {side for side in sides if side}
        if own:
            ends.append(own)
        if fact.kind == "ib_async" and fact.who.host:
            votes[fact.who.host] += 1
    if len({fact.who.host for fact in links}) < 3:  # more are a switch, a fabric: no host's own
        for fact in links:
            if fact.who.host:
                votes[fact.who.host] += 2
    for host, _, _ in counters:
        votes[host] += 2
    if ends:
        tally = Counter(host for own in ends for host in own)
        host, count = tally.most_common(1)[0]
        others = tally.most_common(2)[1][1] if len(tally) > 1 else 0
        if count == len(ends) and count > others:
            votes[host] += 3
    if not votes:
        return None
    ranked = votes.most_common(2)
    return ranked[0][0] if len(ranked) == 1 or ranked[0][1] > 1.5 * ranked[1][1] else None
