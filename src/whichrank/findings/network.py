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
from whichrank.findings.counters import Counters, Growth
from whichrank.findings.fabric import Bandwidth, bandwidth
from whichrank.findings.hosts import Span, addresses, timely
from whichrank.job.model import Job
from whichrank.job.names import canon

_HARMLESS = re.compile(
    r"reregist|port active|lid change|sm change|pkey|gid change|client|non-?fatal.*(?:active|rereg)", re.I
)
# Counters whose growth tells of a bad path, the growth from which it does, and the weight of the clue. Sequence gaps
# also come from adaptive routing, discards from congestion: they tell less.
_TROUBLE = tuple(
    (re.compile(pattern, re.I), least, weight)
    for pattern, least, weight in (
        (r"link_?down|carrier|link_?error_?recovery|link_events_phy", 1, 3.5),
        (
            r"retries_exceeded|ack_timeout|packet_seq_err|implied_nak|retrans_timeout|unresponsive_remote|impaired_remote",
            5,
            2.5,
        ),
        (r"symbol|crc|pcs_|rcv_?err|receive_err|rx_.*err|transmit_errs|remote_?phys|integrity|overrun", 10, 2.5),
        (r"discard", 1000, 1.5),
        (r"out_of_sequence", 100, 1.0),
    )
)
# Interfaces that come and go with containers
_VIRTUAL = re.compile(r"lo$|veth|docker|virbr|br-|cni|flannel|cali|ifb|tap|tun|dummy")
_LOSS = 0.01  # share of segments that TCP sends again on a path that loses packets
_DAY = 86400.0
# What TCP says of a connection whose packets no one answers: Linux sends again for some 15 min (tcp_retries2) before it
# gives up. A process that died, or a host that restarted, answers and is told apart by that.
_MUTE = re.compile(r"timed out|no route to host|(?:network|host) is unreachable|host is down", re.I)
PATIENCE = 1200e9  # ns between a link's end and the error of a socket that used it


@dataclass(frozen=True, slots=True)
class Network:
    """`end` is the host at which the fault was seen, if the evidence agrees on one."""

    transport: tuple[Fact, ...]  # completion errors, fatal events, failed calls
    links: tuple[Fact, ...]  # links that went down in the window
    measured: Bandwidth
    counters: tuple[tuple[float, Growth], ...]  # weight and growth, the heaviest first
    still: tuple[Growth, ...]  # error counters that did not move between two snapshots
    listed: tuple[Fact, ...]  # ports that a tool shows down on one host and up on another, then one of those
    rates: tuple[Fact, ...]  # links that run slower than the same device of the other hosts, then one of those
    mtu: tuple[Fact, ...]  # differing MTUs of like interfaces, one fact a host
    end: str | None


def network(job: Job, arrived: Arrivals, span: Span, counted: Counters) -> Network:
    transport = tuple(_transport(job))
    downs = [fact for fact in job.of("link") if fact["state"] == "down" and not fact["listed"]]
    mute = [fact for fact in transport if fact.kind == "connect_failed"]
    gave_up = min((fact.at_ns for fact in mute if fact.at_ns and fact.clock in ("wall", "near")), default=None)
    lately = (min(span[0], gave_up - PATIENCE), span[1]) if gave_up is not None else span
    links = tuple(fact for fact in downs if timely(fact, lately) and fact.spot.source.kind != "note")
    if not arrived.waits and span[0] == float("-inf"):
        links = tuple(downs)
    measured = bandwidth(job)
    slow_host = None if measured.inside else measured.host
    counters = _counters(counted)
    mtu = _mtu(job)
    return Network(
        transport,
        links,
        measured,
        counters,
        tuple(
            growth for growth in counted.still if tells_of_path(growth.name) and not _VIRTUAL.match(growth.device or "")
        ),
        _listed(job),
        _rates(job),
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
    return [*found, *_mute(job)]


def _mute(job: Job) -> list[Fact]:
    """Connections that had been made and got no answer any more, as several ranks tell; one of each rank and peer."""
    told: dict[tuple[int | None, str | None, int | None, str], Fact] = {}
    for fact in job.of("connect_failed"):
        # NCCL quotes its last error once more where PyTorch prints it, without saying who speaks.
        if fact["established"] and _MUTE.search(str(fact["error"])) and (fact.rank is not None or fact.who.pid):
            told.setdefault((fact.rank, fact.who.host, fact.who.pid, str(fact["address"])), fact)
    return list(told.values()) if len({key[:3] for key in told}) >= 2 else []


def _trouble(name: str) -> tuple[int, float] | None:
    return next(((least, weight) for pattern, least, weight in _TROUBLE if pattern.search(name)), None)


def tells_of_path(name: str) -> bool:
    """Does the growth of this counter tell of a bad path?"""
    return _trouble(name) is not None


def _counters(counted: Counters) -> tuple[tuple[float, Growth], ...]:
    """Error counters that grew between two snapshots, with their weights."""
    found = []
    for growth in counted.grown:
        known = _trouble(growth.name)
        if known is None or _VIRTUAL.match(growth.device or ""):
            continue
        least, weight = known
        # Few may be chance, hundreds of times as many are a broken cable.
        weight = weight + 1.0 if growth.by >= 100 * least > 0 and weight >= 2 else weight
        weight = weight if growth.by >= least else min(1.0, weight / 2)
        # A few errors in weeks are every link's.
        found.append((weight * 0.3 if (growth.seconds or 0) > 2 * _DAY else weight, growth))
    sent = {
        (growth.host, growth.after.spot.source.path): growth for growth in counted.grown if growth.name == "TcpOutSegs"
    }
    for growth in counted.grown:
        total = sent.get((growth.host, growth.after.spot.source.path))
        if growth.name == "TcpRetransSegs" and total is not None and growth.by >= max(100, _LOSS * total.by):
            found.append((1.5, growth))
    return tuple(sorted(found, key=lambda entry: (-entry[0], -entry[1].by)))


def _listed(job: Job) -> tuple[Fact, ...]:
    """A port that is down may just be unused: it tells where the same port of another host is up."""
    down = {(fact.who.host, str(fact["device"])): fact for fact in job.of("link") if fact["listed"]}
    shown = [fact for fact in job.of("counter", "mtu") if fact["name"] == "rate_gbps" or fact["device"]]
    for (host, device), fact in down.items():
        others = [up for up in shown if up["device"] == device and up.who.host not in (None, host)]
        up = [other for other in others if (other.who.host, device) not in down]
        if host and up and len(up) == len(others):
            return fact, up[0]
    return ()


def _rates(job: Job) -> tuple[Fact, ...]:
    """Ports that came up slower than the same port of most other hosts."""
    ports: dict[str, dict[str, Fact]] = defaultdict(dict)
    for fact in job.of("counter"):
        if fact["name"] == "rate_gbps" and fact.who.host:
            ports[str(fact["device"])][fact.who.host] = fact
    for by_host in ports.values():
        usual, count = Counter(fact["value"] for fact in by_host.values()).most_common(1)[0]
        slow = [fact for fact in by_host.values() if fact["value"] < usual]
        if slow and count > len(by_host) / 2 and count >= 2:
            return (*slow, next(fact for fact in by_host.values() if fact["value"] == usual))
    return ()


def _mtu(job: Job) -> tuple[Fact, ...]:
    by_name: dict[str, dict[str, Fact]] = defaultdict(dict)
    for fact in job.of("mtu"):
        if fact.who.host and fact["state"] != "DOWN" and not _VIRTUAL.match(str(fact["interface"])):
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
    counters: tuple[tuple[float, Growth], ...],
) -> str | None:
    """The host at one end of everything."""
    if slow:
        return slow
    votes: Counter[str] = Counter()
    known = addresses(job)
    ends: list[set[str]] = []
    for fact in transport:
        sides = {fact.who.host} if fact.who.host else set()
        peer = str(fact["peer"] or (fact["address"] if fact.kind == "connect_failed" else ""))
        peer_host = known.get(peer) or canon(peer)
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
    for weight, growth in counters:
        if growth.host and weight >= 1.5:
            votes[growth.host] += 2
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
