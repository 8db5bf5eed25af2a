"""What it means that ranks do not reach each other: whose firewall, interface, MTU, or which pair. See reach.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from whichrank.preflight.answer import Finding, names_text, ranks_text
from whichrank.preflight.reach import Way, together, ways
from whichrank.preflight.roster import Roster

SKEW = 1.0  # seconds between clocks from which on logs mislead
Results = Mapping[int, Mapping[str, Mapping[str, Any]]]  # rank -> peer -> what attempt() found
Facts = Mapping[int, Mapping[str, Any]]


def judge(
    results: Results,
    facts: Facts,
    roster: Roster,
    backend: str,
    port: int,
) -> list[Finding]:
    """port: MASTER_PORT, through which all of them have come."""
    found = list(_silent_ones(results, roster))
    between = ways(results, roster)
    bad = {pair: way for pair, way in between.items() if way.bad}
    told: set[tuple[str, str]] = set()
    for node in roster.names:
        inward = {pair for pair in between if pair[1] == node and pair[0] != node}
        outward = {pair for pair in between if pair[0] == node and pair[1] != node}
        for ends, id in ((inward, "blocked_in"), (outward, "blocked_out")):
            fresh = [pair for pair in sorted(ends) if pair in bad and pair not in told]
            # One partner is not enough to tell which end it is, unless the node shuts out its own ranks as well.
            sure = len(ends) > 1 or (id == "blocked_in" and (node, node) in bad)
            if not ends or not sure or set(fresh) != ends:
                continue
            told.update(fresh)
            found.append(_node(node, id, together([bad[pair] for pair in fresh]), facts, roster, backend, port))
    closed = {node for one in found for node in one.nodes}  # for the ranks beside it too
    for pair in sorted(set(bad) - told):
        if pair not in told and not (pair[0] == pair[1] and pair[0] in closed):
            told.update({pair, (pair[1], pair[0])} & set(bad))
            found.append(_pair(pair, bad, facts, roster, backend, port))
    once = {(one.id, one.nodes): one for one in found}
    return [*once.values(), *_clocks(results, roster)]


def _silent_ones(results: Mapping[int, Any], roster: Roster) -> Iterator[Finding]:
    missing = [rank for rank in roster.ranks if rank not in results]
    if missing:
        yield Finding(
            "connections", "stop", "no_result", f"{roster.where(missing)} did not finish trying connections.",
            f"look at the output of {ranks_text(missing)}, and whether the process still runs", roster.nodes_of(missing), tuple(missing),
        )  # fmt: skip


def _chosen(node: str, facts: Facts, roster: Roster, backend: str) -> tuple[str, str, str | None]:
    """Interface and address that the library takes on a node, and the variable that says so, if one does."""
    told = facts[roster.leader(node)]
    one = told[backend] or {"name": "?", "addresses": ["?"]}
    variable = f"{backend.upper()}_SOCKET_IFNAME"
    return one["name"], one["addresses"][0], f"{variable}={told['env'][variable]}" if variable in told["env"] else None


def _node(node: str, id: str, way: Way, facts: Facts, roster: Roster, backend: str, port: int) -> Finding:
    ranks = tuple(roster.ranks_of(node))
    if id == "blocked_in" and (wrong := _wrong_interface(node, way, facts, roster, backend)):
        return wrong
    if way.failed == "stalled":
        return _stalled(f"between {node} and the others", (node,), ranks)
    side = "reaches" if id == "blocked_in" else "is reached from"
    which = _how(way)
    do = _open(node if id == "blocked_in" else f"{node} (outgoing)", facts, roster)
    return Finding(
        "connections", "stop", id, f"No other node {side} {node} on ephemeral ports ({which}); MASTER_PORT {port} works."
        if side == "reaches" else f"{node} reaches no other node on ephemeral ports ({which}); MASTER_PORT {port} works.",
        do, (node,), ranks,
    )  # fmt: skip


def _pair(
    pair: tuple[str, str], bad: Mapping[tuple[str, str], Way], facts: Facts, roster: Roster,
    backend: str, port: int,
) -> Finding:  # fmt: skip
    source, target = pair
    way = bad[pair]
    nodes = tuple(dict.fromkeys((target, source)))
    if wrong := _wrong_interface(target, way, facts, roster, backend):
        return wrong
    if way.failed == "stalled":
        return _stalled(f"from {source} to {target}", nodes, ())
    if source == target:
        return Finding(
            "connections", "stop", "blocked_inside", f"Ranks on {source} do not reach each other on ephemeral ports ({_how(way)}).",
            _open(source, facts, roster), nodes, tuple(roster.ranks_of(source)),
        )  # fmt: skip
    back = bad.get((target, source))
    if back and (wrong := _wrong_interface(source, back, facts, roster, backend)):
        return wrong
    which = f"{source} and {target} do not reach each other" if back else f"{source} does not reach {target}"
    return Finding(
        "connections", "stop", "blocked_pair",
        f"{which} on ephemeral ports ({_how(way)}); {'' if back else 'the way back works, and '}MASTER_PORT {port} works.",
        f"{_open(target, facts, roster)}; if it lets them in, the firewall of {source} (outgoing) or one between them", nodes, (),
    )  # fmt: skip


def _how(way: Way) -> str:
    words = {"silent": "no answer", "refused": "refused", "stranger": "another program answers"}
    count = f"{way.tried - way.reached} of {way.tried} tries"
    ports = f", ports {names_text([str(port) for port in way.ports], 3)}"
    return f"{count} failed: {words.get(way.failed, way.failed)}{ports}"


def _open(where: str, facts: Facts, roster: Roster) -> str:
    low, high = next((told["ports"] for told in facts.values() if len(told["ports"]) == 2), ("32768", "60999"))
    return (
        f"let TCP ports {low}-{high} (net.ipv4.ip_local_port_range) from the job's other nodes through the firewall of {where} "
        "(iptables -L -n, nft list ruleset, security groups)"
    )


def _wrong_interface(node: str, way: Way, facts: Facts, roster: Roster, backend: str) -> Finding | None:
    """The library's own choice is not reached, the address that reaches MASTER_ADDR is."""
    if not way.other or way.reached:
        return None
    name, address, because = _chosen(node, facts, roster, backend)
    told = facts[roster.leader(node)]
    good = told["towards_master"]
    named = next((one["name"] for one in told["interfaces"] if good in one["addresses"]), None)
    why = because or (f"{node}'s own name resolves to it" if backend == "gloo" else "NCCL's own choice")
    variable = f"{backend.upper()}_SOCKET_IFNAME"
    return Finding(
        "connections", "stop", "wrong_interface",
        f"{backend} on {node} takes {name} ({address}; {why}), which the other nodes do not reach; they do reach {good}{f' on {named}' if named else ''}.",
        f"set {variable}={named or 'the interface of that address'} on {node}", (node,), tuple(roster.ranks_of(node)),
    )  # fmt: skip


def _stalled(where: str, nodes: tuple[str, ...], ranks: tuple[int, ...]) -> Finding:
    return Finding(
        "connections", "stop", "large_packets_lost",
        f"Small packets get through {where}, large ones do not: the MTU of an interface is larger than what the path carries.",
        f"ping -M do -s 8972 between them, then set the MTU that gets through (ip link set dev … mtu 1500) on {names_text(nodes)}, or let ICMP "
        "\"fragmentation needed\" pass", nodes, ranks,
    )  # fmt: skip


def _clocks(results: Results, roster: Roster) -> Iterator[Finding]:
    """Against rank 0's node. Asked from both sides; both must say so."""
    ahead: dict[str, list[float]] = {}
    home = roster.node_of(0)
    for rank, peers in results.items():
        for peer, told in peers.items():
            here, there = roster.node_of(rank), roster.node_of(int(peer))
            if "ahead" in told and home in (here, there) and here != there:
                ahead.setdefault(there if here == home else here, []).append(
                    told["ahead"] * (1 if here == home else -1)
                )
    for node, times in ahead.items():
        least = min(times, key=abs)
        if abs(least) > SKEW:
            yield Finding(
                "connections", "warn", "clock", f"The clock of {node} is {abs(least):.1f} s {'ahead of' if least > 0 else 'behind'} that of {home}.",
                f"start chronyd or ntpd on {node} (chronyc makestep): logs of the two cannot be laid side by side", (node,),
                tuple(roster.ranks_of(node)),
            )  # fmt: skip
