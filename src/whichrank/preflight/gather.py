"""Who came, who did not, who came twice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from whichrank.preflight.answer import Finding, names_text, ranks_text
from whichrank.preflight.meeting import Store
from whichrank.preflight.place import Place
from whichrank.preflight.roster import Roster

LOOK = 0.5  # seconds between two looks at the time


@dataclass(slots=True)
class Came:
    """By ticket, in the order of arrival; of each rank the first counts."""

    world: int
    tickets: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def first(self) -> dict[int, tuple[int, dict[str, Any]]]:
        """rank -> ticket, and what it said; without those that are beyond the world."""
        found: dict[int, tuple[int, dict[str, Any]]] = {}
        for ticket, said in self.tickets.items():
            if said["rank"] < self.world:
                found.setdefault(said["rank"], (ticket, said))
        return found

    @property
    def missing(self) -> list[int]:
        here = self.first
        return [rank for rank in range(self.world) if rank not in here]

    def take(self, store: Store, seconds: float) -> bool:
        """The next one, if one comes in time."""
        data = store.get(f"came/{len(self.tickets) + 1}", seconds)
        if data is not None:
            self.tickets[len(self.tickets) + 1] = json.loads(data)
        return data is not None


def gather(store: Store, place: Place, seconds: float, tell: Callable[[str], None]) -> Came:
    """Until all are here, or the time is over."""
    came = Came(place.world)
    begin = time.monotonic()
    said = 0.0
    while came.missing and (left := begin + seconds - time.monotonic()) > 0:
        came.take(store, min(LOOK, left))
        if time.monotonic() - begin > said + 5 and came.missing:
            said = time.monotonic() - begin
            tell(
                f"{place.world - len(came.missing)} of {place.world} ranks are here, waiting for {ranks_text(came.missing)} ({max(0.0, seconds - said):.0f} s more)"
            )
    return came


def judge(came: Came, place: Place, roster: Roster, seconds: float) -> Iterator[Finding]:
    if came.missing:
        yield from _missing(came, place, roster, seconds)
    seen: dict[int, list[dict[str, Any]]] = {}
    for said in came.tickets.values():
        seen.setdefault(said["rank"], []).append(said)
    for rank, each in sorted(seen.items()):
        where = ", ".join(f"{said['host']} pid {said['pid']}" for said in each)
        if rank >= place.world:
            yield Finding(
                "ranks", "stop", "beyond_world", f"Rank {rank} came from {each[0]['host']}, but rank 0 was started with WORLD_SIZE={place.world}.",
                "start every node with the same number of nodes and ranks (torchrun: --nnodes, --nproc-per-node)",
                (each[0]["host"],), (rank,),
            )  # fmt: skip
        elif len(each) > 1:
            yield Finding(
                "ranks", "stop", "twice", f"Rank {rank} came {len(each)} times: {where}.",
                "give each node its own --node-rank (or RANK), and end what is left of an earlier start",
                tuple(dict.fromkeys(said["host"] for said in each)), (rank,),
            )  # fmt: skip


def _missing(came: Came, place: Place, roster: Roster, seconds: float) -> Iterator[Finding]:
    by_node: dict[str, list[int]] = {}
    for rank in came.missing:
        by_node.setdefault(_home(rank, came, place, roster), []).append(rank)
    for node, ranks in by_node.items():
        one = node if node in place.nodes or node in roster.names else None
        plural = "" if len(ranks) == 1 else "s"
        yield Finding(
            "ranks", "stop", "missing", f"{ranks_text(ranks).capitalize()} never came within {seconds:.0f} s{f': {node}' if node else ''}.",
            f"look at the output of {'that rank' if not plural else 'those ranks'}{f' on {one}' if one else ''}: it says whether it reached {place.master} "
            f"port {place.port}; if there is none, the launcher did not start it there (is the node up? ssh, sinfo, kubectl get pods)",
            (one,) if one else (), tuple(ranks),
        )  # fmt: skip


def _home(rank: int, came: Came, place: Place, roster: Roster) -> str:
    """Where a missing rank would have run, by the launcher's word, else by how the others lie."""
    if told := place.node_of(rank):
        return told
    sizes = {said["local_world"] for _, said in came.first.values() if said["local_world"]}
    if len(sizes) != 1:
        sizes = {len(roster.ranks_of(node)) for node in roster.names}
    size = max(sizes)
    mates = [other for other in range(rank // size * size, (rank // size + 1) * size) if other in came.first]
    if mates:
        return roster.node_of(mates[0]) if size > 1 else ""
    near = [
        name
        for name in (roster.places.get(rank // size * size - 1), roster.places.get((rank // size + 1) * size))
        if name
    ]
    return f"a node from which no rank came, number {rank // size} counting from 0" + (
        f", beside {names_text(near)}" if near else ""
    )


def accepted(came: Came) -> Mapping[int, Mapping[str, Any]]:
    return {rank: said for rank, (_, said) in sorted(came.first.items())}
