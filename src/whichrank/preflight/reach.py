"""Who reaches whom: every pair of nodes, both directions, on ephemeral ports, as NCCL and gloo connect."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from whichrank.preflight import listeners
from whichrank.preflight.roster import Roster

WAIT = 4.0  # seconds for a connection: two packets may be lost on the way
LARGE = 64 << 10  # bytes: more than a packet holds, jumbo frames included
AT_ONCE = 256  # connections of one rank that are tried at the same time
EVERYBODY = 64  # ranks up to which every rank tries every other one

Peers = Mapping[str, Mapping[str, Any]]  # rank -> {"ports", "address", "other"}: JSON has no keys but texts


def partners(rank: int, roster: Roster) -> list[int]:
    """Whom a rank tries: all; in large jobs one rank on each other node, so that all ranks have about as many callers."""
    if len(roster.places) <= EVERYBODY:
        return [other for other in roster.ranks if other != rank]
    own = roster.node_of(rank)
    place = roster.ranks_of(own).index(rank)
    return [(there := roster.ranks_of(node))[place % len(there)] for node in roster.names if node != own]


def attempt(peers: Peers, wanted: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Connects to every port of the wanted ranks, all at once."""
    tries = [(rank, port, place == 0) for rank in wanted for place, port in enumerate(peers[str(rank)]["ports"])]
    found: dict[str, dict[str, Any]] = {str(rank): {"ports": {}} for rank in wanted}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = pool.map(lambda one: _one(peers[str(one[0])]["address"], one[1], one[0], one[2]), tries)
        for (rank, port, _), told in zip(tries, results, strict=True):
            mine = found[str(rank)]
            mine["ports"][str(port)] = told.pop("result")
            mine.update(told)
        # Where the chosen address does not answer: does the one towards MASTER_ADDR?
        shut = [rank for rank in wanted if "ok" not in found[str(rank)]["ports"].values() and _other(peers[str(rank)])]
        answers = pool.map(lambda rank: _one(_other(peers[str(rank)]), peers[str(rank)]["ports"][0], rank, False), shut)
        for rank, told in zip(shut, answers, strict=True):
            found[str(rank)]["other"] = told["result"]
    return found


def _other(peer: Mapping[str, Any]) -> str | None:
    other = peer.get("other")
    return other if other != peer["address"] else None


def _one(address: str | None, port: int, rank: int, more: bool) -> dict[str, Any]:
    """result: ok, refused, silent, unreachable, stranger, stalled (small packets arrive, large ones do not)."""
    if address is None:
        return {"result": "no address"}
    try:
        connected = listeners.connect(address, port, rank, WAIT)
    except TimeoutError:
        return {"result": "silent"}
    except ConnectionAbortedError:
        return {"result": "stranger"}
    except OSError as error:
        return {"result": _named(error)}
    with connected:
        try:
            listeners.echoed(connected, LARGE, WAIT)
            if not more:
                return {"result": "ok"}
            trips = listeners.round_trips(connected, 20)
            return {
                "result": "ok",
                "rtt_ms": round(min(trips) * 1000, 3),
                "ahead": round(listeners.clock_ahead(connected), 4),
            }
        except OSError:
            return {"result": "stalled"}


def _named(error: OSError) -> str:
    if error.errno == errno.ECONNREFUSED:
        return "refused"
    return f"unreachable: {os.strerror(error.errno)}" if error.errno else "stranger"


def failing(results: Mapping[int, Mapping[str, Mapping[str, Any]]]) -> list[int]:
    """Ranks that did not reach all they tried."""
    return [
        rank
        for rank, peers in results.items()
        if any(result != "ok" for told in peers.values() for result in told["ports"].values())
    ]


def better(
    results: Mapping[int, Mapping[str, Mapping[str, Any]]], again: Mapping[int, Mapping[str, Mapping[str, Any]]]
) -> dict[int, dict[str, dict[str, Any]]]:
    """Of two looks: a port that answered once is open."""
    found: dict[int, dict[str, dict[str, Any]]] = {}
    for rank, peers in results.items():
        for peer, told in peers.items():
            later = again.get(rank, {}).get(peer, {"ports": {}})
            ports = {
                port: later["ports"].get(port, result) if result != "ok" else result
                for port, result in told["ports"].items()
            }
            found.setdefault(rank, {})[peer] = {**later, **told, "ports": ports}
    return found


@dataclass(frozen=True, slots=True)
class Way:
    """From one node to another: ports tried and reached, and how the others failed."""

    tried: int
    reached: int
    failed: str  # the most frequent result but ok, "" if there is none
    other: bool  # the other address, towards MASTER_ADDR, answers
    ports: tuple[int, ...]  # that failed

    @property
    def bad(self) -> bool:
        return self.reached < self.tried


def together(several: Sequence[Way]) -> Way:
    """All of them as one. Needs at least one."""
    failed = Counter(way.failed for way in several if way.failed)
    return Way(
        sum(way.tried for way in several),
        sum(way.reached for way in several),
        failed.most_common(1)[0][0] if failed else "",
        any(way.other for way in several),
        tuple(sorted({port for way in several for port in way.ports})),
    )


def ways(results: Mapping[int, Mapping[str, Mapping[str, Any]]], roster: Roster) -> dict[tuple[str, str], Way]:
    """results: what each rank found of each other one. Node to node, the same node included."""
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    others: dict[tuple[str, str], bool] = {}
    for rank, peers in results.items():
        for peer, told in peers.items():
            pair = (roster.node_of(rank), roster.node_of(int(peer)))
            found.setdefault(pair, []).extend((int(port), result) for port, result in told["ports"].items())
            others[pair] = others.get(pair, False) or told.get("other") == "ok"
    made = {}
    for pair, tries in found.items():
        failed = Counter(result for _, result in tries if result != "ok")
        ports = tuple(sorted({port for port, result in tries if result != "ok"}))
        usual = failed.most_common(1)[0][0] if failed else ""
        made[pair] = Way(len(tries), len(tries) - sum(failed.values()), usual, others[pair], ports)
    return made


def rows(results: Mapping[int, Mapping[str, Mapping[str, Any]]], roster: Roster) -> list[dict[str, Any]]:
    """For the table: node to node, with the best round trip."""
    trips: dict[tuple[str, str], float] = {}
    for rank, peers in results.items():
        for peer, told in peers.items():
            if "rtt_ms" in told:
                pair = (roster.node_of(rank), roster.node_of(int(peer)))
                trips[pair] = min(trips.get(pair, float("inf")), told["rtt_ms"])
    return [
        {"from": pair[0], "to": pair[1], "tried": way.tried, "reached": way.reached, "failed": way.failed or None,
         "rtt_ms": trips.get(pair), "gbps": None}
        for pair, way in ways(results, roster).items()
    ]  # fmt: skip
