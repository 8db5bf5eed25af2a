"""What rank 0 does: it gives the commands, step after step, and judges what comes back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from whichrank.preflight import alike, gather, gpus, links, measure, nccl_perf, reach, storage, unreached
from whichrank.preflight.answer import CHECKS, Answer, Check, Finding, State, names_text, state_of
from whichrank.preflight.meeting import Store
from whichrank.preflight.place import Place
from whichrank.preflight.roster import Roster, roster

GRACE = 3.0  # seconds for an answer to arrive after its step's limit
FIRST = ("ranks", "settings", "connections")  # steps that are never left out for want of time
LEAST = 6.0  # seconds that a step gets in any case
LIMITS = {"facts": 25.0, "reach": 20.0, "gpus": 45.0, "storage": 12.0}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user wants checked. seconds: for all of it; wait: for ranks to come; workers: count, bytes each."""

    paths: tuple[str, ...] = ()
    script: str | None = None
    backend: str | None = None
    workers: tuple[int, int] | None = None
    seconds: float = 60.0
    wait: float = 30.0
    least_gbps: float = links.FLOOR
    busbw: float | None = None
    skip: frozenset[str] = frozenset()


class Conductor:
    def __init__(self, store: Store, place: Place, asked: Asked, tell: Callable[[str], None]) -> None:
        self.store, self.place, self.asked, self.tell = store, place, asked, tell
        self.begin = time.monotonic()
        self.number = 0
        self.tickets: list[int] = []
        self.roster = Roster({})
        self.answer = Answer(place.world, place.launcher, f"{place.master}:{place.port}", asked.backend or "gloo")
        self.facts: dict[int, dict[str, Any]] = {}
        self.came = gather.Came(place.world)

    @property
    def left(self) -> float:
        return self.begin + self.asked.seconds - time.monotonic()

    def command(self, step: str, ranks: Iterable[int], told: Any, seconds: float) -> int:
        message = {"step": step, "ranks": list(ranks), "tickets": self.tickets, "told": told, "seconds": seconds}
        self.store.put(f"command/{self.number}", json.dumps(message).encode())
        self.number += 1
        return self.number - 1

    def ask(self, step: str, ranks: Sequence[int], told: Any, seconds: float) -> dict[int, Any]:
        """What the ranks answer; those that do not, or fail, are left out. All steps together stay within the user's time."""
        seconds = min(seconds, max(LEAST, self.left))
        number = self.command(step, ranks, told, seconds)
        until = time.monotonic() + seconds + GRACE
        found = {}
        for rank in ranks:
            data = self.store.get(f"result/{number}/{rank}", max(0.0, until - time.monotonic()))
            answer = json.loads(data) if data is not None else {}
            if "value" in answer:
                found[rank] = answer["value"]
        return found

    def run(self) -> Answer:
        self.check("ranks", self.ranks)
        for name, step in (
            ("settings", self.settings),
            ("connections", self.connections),
            ("gpus", self.gpus),
            ("storage", self.storage),
            ("bandwidth", lambda: measure.bandwidth(self)),
            ("collective", lambda: measure.collectives(self)),
        ):
            if name in self.asked.skip:
                self.answer.checks.append(Check(name, "skipped", "left out as asked", 0.0))
            else:
                self.check(name, step)
        self.late_ones()
        self.answer.nodes = self.nodes()
        self.answer.seconds = round(time.monotonic() - self.begin, 2)
        return self.answer

    def end(self) -> None:
        """Lets the others go, after the answer is out: launchers end rank 0 when another rank has ended with an error."""
        self.command("end", [], {"go": self.answer.go}, 0)

    def check(self, name: str, step: Callable[[], tuple[list[Finding], str]]) -> None:
        """A step that says "left out: …" was. Connections that fail for a reason that is told already have failed too."""
        begin = time.monotonic()
        findings, says = step() if name in FIRST or self.left > LEAST else self._no_time(name)
        state: State = "skipped" if says.startswith("left out") else state_of(findings)
        if name == "connections" and any(row["failed"] for row in self.answer.pairs):
            state = "failed"
        self.answer.findings += findings
        self.answer.checks.append(Check(name, state, says, round(time.monotonic() - begin, 2)))

    def _no_time(self, name: str) -> tuple[list[Finding], str]:
        if name == "storage" and not self.asked.paths:
            return self.storage()
        says = f"There was no time left for {CHECKS[name]}: not checked."
        do = f"correct what is above, or run it again with --seconds {2 * self.asked.seconds:.0f}"
        return [Finding(name, "warn", "no_time", says, do)], "left out: no time left"

    def ranks(self) -> tuple[list[Finding], str]:
        self.came = gather.gather(self.store, self.place, self.asked.wait, self.tell)
        self.roster = roster(gather.accepted(self.came))
        self.tickets = [ticket for ticket, _ in self.came.first.values()]
        for rank, said in gather.accepted(self.came).items():
            self.answer.ranks.append(
                {"rank": rank, "node": self.roster.node_of(rank), "local_rank": said["local_rank"], "pid": said["pid"]}
            )
        found = list(gather.judge(self.came, self.place, self.roster, self.asked.wait))
        return (
            found,
            f"{len(self.roster.places)} of {self.place.world} came, on {len(self.roster.names)} node{'s' if len(self.roster.names) != 1 else ''}",
        )

    def settings(self) -> tuple[list[Finding], str]:
        self.facts = self.ask("facts", self.roster.ranks, {"script": self.asked.script}, LIMITS["facts"])
        missing = [rank for rank in self.roster.ranks if rank not in self.facts]
        found = []
        if missing:
            found.append(
                Finding(
                    "settings", "stop", "no_facts", f"{self.roster.where(missing)} came, and then said nothing of itself for {LIMITS['facts']:.0f} s.",
                    "look at the output of these ranks; a file system or name server that hangs there", self.roster.nodes_of(missing), tuple(missing),
                )
            )  # fmt: skip
            self.roster = Roster({rank: node for rank, node in self.roster.places.items() if rank in self.facts})
        if not self.asked.backend and any(told["gpus"] for told in self.facts.values()):
            self.answer.backend = "nccl"
        found += alike.judge(self.facts, self.roster, self.answer.backend, self.asked.workers)
        usual: dict[str, str | None] = next(iter(self.facts.values()), {"versions": {}})["versions"]
        says = ", ".join(
            f"{name} {usual[name]}" for name in ("python", "torch", "nccl", "cuda", "driver") if usual.get(name)
        )
        return found, says if state_of(found) == "passed" else f"{len(found)} to look at"

    def connections(self) -> tuple[list[Finding], str]:
        if len(self.facts) < 2:
            return [], "left out: one rank has nobody to connect to"
        backend = self.answer.backend
        peers = {
            str(rank): {
                "ports": told["listening"],
                "address": (told[backend] or {"addresses": [None]})["addresses"][0],
                "other": told["towards_master"],
            }
            for rank, told in self.facts.items()
        }
        told = {"peers": peers, "places": list(self.roster.places.items())}
        results = self.ask("reach", self.roster.ranks, told, LIMITS["reach"])
        if (failing := reach.failing(results)) and self.left > 2 * LEAST:
            results = reach.better(results, self.ask("reach", failing, told, LIMITS["reach"]))
        found = unreached.judge(results, self.facts, self.roster, backend, self.place.port)
        looped = {
            node
            for one in self.answer.findings
            if one.id in ("loopback", "no_interface") and one.grade == "stop"
            for node in one.nodes
        }
        found = [
            one
            for one in found
            if not (one.id in ("wrong_interface", "blocked_in", "blocked_pair") and looped & set(one.nodes))
        ]
        self.answer.pairs = reach.rows(results, self.roster)
        tried, reached = (sum(row[name] for row in self.answer.pairs) for name in ("tried", "reached"))
        return found, f"{reached} of {tried} connections on ephemeral ports"

    def gpus(self) -> tuple[list[Finding], str]:
        leaders = [self.roster.leader(node) for node in self.roster.names]
        told = {self.roster.node_of(rank): one for rank, one in self.ask("gpus", leaders, None, LIMITS["gpus"]).items()}
        for rank in leaders:
            if self.facts[rank]["gpus"] and self.roster.node_of(rank) not in told:
                told[self.roster.node_of(rank)] = {"present": self.facts[rank]["gpus"], "silent": True}
        if not any(told.values()):
            return [], "left out: no GPU here"
        found = gpus.judge(told, self.roster)
        if "collective" not in self.asked.skip and not self.came.missing:
            counts = {str(self.roster.leader(node)): len(one.get("gpus", ())) for node, one in told.items()}
            perf = self.ask("nccl_perf", [int(rank) for rank in counts], counts, nccl_perf.SECONDS + 2)
            found += nccl_perf.judge({self.roster.node_of(rank): one for rank, one in perf.items()}, self.roster)
        return found, f"{sum(len(one.get('gpus', ())) for one in told.values())} GPUs on {len(told)} nodes"

    def storage(self) -> tuple[list[Finding], str]:
        if not self.asked.paths:
            return [], "left out: no --path given"
        seconds = min(LIMITS["storage"], max(LEAST - 2, self.left - 2))
        told = self._storage(seconds)
        if storage.suspicious(told, self.roster) and self.left > seconds:
            told = storage.better(told, self._storage(seconds))
        found = storage.judge(told, self.roster, seconds / len(self.asked.paths))
        self.answer.storage = [
            {
                "rank": rank,
                "node": self.roster.node_of(rank),
                "path": path,
                **one,
                "took": {name: round(took, 5) for name, took in one["took"].items()},
            }
            for rank, paths in told.items()
            for path, one in paths.items()
        ]
        return found, f"{names_text(self.asked.paths, 3)} from {len(told)} ranks"

    def _storage(self, seconds: float) -> dict[int, Any]:
        return self.ask("storage", self.roster.ranks, {"paths": self.asked.paths, "seconds": seconds}, seconds + 2)

    def unfit(self) -> str | None:
        """Why nothing can be measured over all ranks, if so."""
        if self.came.missing or len(self.facts) < len(self.came.first):
            return "left out: not all ranks are here"
        if any(check.name == "connections" and check.state == "failed" for check in self.answer.checks):
            return "left out: connections fail"
        return None

    def late_ones(self) -> None:
        """Who came after the gathering was over: doubles, and ranks that were too late."""
        before = {(one.id, one.ranks) for one in self.answer.findings}
        missing = self.came.missing
        while self.came.take(self.store, 0):
            pass
        for one in gather.judge(self.came, self.place, self.roster, self.asked.wait):
            if (one.id, one.ranks) not in before and one.id != "missing":
                self.answer.findings.append(one)
        late = [rank for rank in missing if rank not in self.came.missing]
        if late:
            where = ", ".join(sorted({self.came.first[rank][1]["host"] for rank in late}))
            self.answer.findings.append(
                Finding(
                    "ranks", "note", "late", f"{names_text([f'rank {rank}' for rank in late])} came after the {self.asked.wait:.0f} s, from {where}.",
                    f"run it again with --wait {2 * self.asked.wait:.0f}", tuple(sorted({self.came.first[rank][1]["host"] for rank in late})), tuple(late),
                )
            )  # fmt: skip

    def nodes(self) -> list[dict[str, Any]]:
        """Rows of the table."""
        found = []
        for node in self.roster.names:
            told = self.facts[self.roster.leader(node)]
            chosen = told[self.answer.backend] or {"name": None, "addresses": [None], "mtu": None, "speed": None}
            found.append(
                {
                    "node": node, "ranks": self.roster.ranks_of(node), "interface": chosen["name"], "address": chosen["addresses"][0],
                    "mtu": chosen["mtu"], "line_mbps": chosen["speed"], "versions": told["versions"], "shm": told["shm"],
                    "memory": told["memory"], "limits": told["limits"], "commit": told["commit"], "script": told["script"],
                }
            )  # fmt: skip
        return found
