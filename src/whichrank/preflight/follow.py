"""What every rank does: it comes, follows the commands of rank 0, and goes when told.

A command is {"step", "ranks", "told", "seconds"} under `command/N`; each of its ranks answers under `result/N/RANK`
with {"value"}, {"error"} or {"late"}. The last one has the step `end`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from whichrank.preflight import collective, facts, gpus, limits, links, listeners, nccl_perf, reach, storage
from whichrank.preflight.meeting import Store, listening
from whichrank.preflight.place import Place
from whichrank.preflight.roster import Roster

PORTS = 3  # listeners of each rank: NCCL and gloo open several


class Lost(Exception):
    """Rank 0 gave no command any more."""


class Rank:
    """The steps, as one rank takes them. Every method: told -> a value for JSON."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.listeners: listeners.Listeners | None = None
        self.steps: Mapping[str, Callable[[Any], Any]] = {
            "facts": self.facts,
            "reach": self.reach,
            "stream": self.stream,
            "storage": self.storage,
            "port": lambda told: free_port(),
            "collective": self.collective,
            "gpus": lambda told: gpus.look(),
            "nccl_perf": lambda told: nccl_perf.run(told[str(place.rank)]),
        }

    def facts(self, told: Mapping[str, Any]) -> dict[str, Any]:
        self.listeners = listeners.Listeners(self.place.rank, PORTS)
        return {**facts.facts(self.place, told["script"]), "listening": self.listeners.ports}

    def reach(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """told: places, [rank, node] of each, from which every rank finds its partners itself: messages stay short."""
        return reach.attempt(told["peers"], reach.partners(self.place.rank, Roster(dict(told["places"]))))

    def stream(self, told: Mapping[str, Any]) -> float | None:
        """Gb/s to the partner, None if the stream broke."""
        address, port, rank = told["to"][str(self.place.rank)]
        try:
            return links.stream(address, port, rank, told["seconds"])
        except OSError:
            return None

    def storage(self, told: Mapping[str, Any]) -> dict[str, Any]:
        return storage.probe(told["paths"], told["seconds"])

    def collective(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Several groups may run at once: each rank is in one of them."""
        own = next(group for group in told["groups"] if self.place.rank in group["ranks"])
        mine = {name: own[name] for name in ("host", "port")}
        mine |= {name: told[name] for name in ("backend", "sizes", "seconds")}
        mine |= {
            "rank": own["ranks"].index(self.place.rank),
            "world": len(own["ranks"]),
            "local_rank": self.place.local_rank,
        }
        return collective.run(mine, told["seconds"])


def free_port() -> int:
    """Free now: the sweep's store takes it a moment later."""
    with listening(0) as one:
        return int(one.getsockname()[1])


def come(store: Store, place: Place) -> int:
    """Says that this rank is here; its ticket, by which rank 0 tells doubles apart."""
    ticket = store.add("came")
    said = {
        **facts.node(),
        "rank": place.rank,
        "world": place.world,
        "local_rank": place.local_rank,
        "local_world": place.local_world,
    }
    store.put(f"came/{ticket}", json.dumps(said).encode())
    return ticket


def follow(store: Store, place: Place, ticket: int, patience: float) -> dict[str, Any]:
    """Until the end, whose command it returns. patience: seconds without a command after which rank 0 is taken for lost.

    Raises:
        Lost, OSError: rank 0 or its store is gone.
    """
    rank = Rank(place)
    number = 0
    while True:
        data = store.get(f"command/{number}", patience)
        if data is None:
            raise Lost(f"no command from rank 0 for {patience:.0f} s")
        command = json.loads(data)
        if command["step"] == "end":
            return dict(command["told"])
        if place.rank in command["ranks"] and ticket in command["tickets"]:
            answer = limits.within(command["seconds"], partial(rank.steps[command["step"]], command["told"]))
            store.put(f"result/{number}/{place.rank}", json.dumps(answer).encode())
        number += 1


def farewell(store: Store, count: int, seconds: float) -> None:
    """Rank 0 waits until the others have heard the end: the store goes with it."""
    until = time.monotonic() + seconds
    for number in range(1, count + 1):
        if store.get(f"gone/{number}", max(0.0, until - time.monotonic())) is None:
            return
