"""What the nodes of a large job cost the job's own store, while all is well and when it hangs: `python bench/nodes.py --python PYTHON-WITH-TORCH`.

A real TCPStore in a process of its own, and as many nodes as asked for: each the watcher's own code with a connection and
a thread of its own, at the real rate. Then one rank is stuck: every other node tells that all its ranks wait, the speaker
asks all, judges, and has the evidence of those that matter sent. Beside it a client of the job's own reads and writes in the
store, twenty times a second: what it waits is what a rank would.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import resource
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from whichrank.watch import council
from whichrank.watch.exchange import EVIDENCE, Exchange
from whichrank.watch.heads import Heard
from whichrank.watch.speaker import ANSWERS, PROOF
from whichrank.watch.states import NodeStall, NodeState, RankState
from whichrank.watch.store import Store

RANKS = 8  # a node
EACH = 250  # nodes in one process
PROOF_BYTES = 200_000  # of one node's evidence
SERVER = """
import resource, sys, torch.distributed as dist
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


class Counted(Store):
    """A connection that counts."""

    questions = sent = received = connections = 0
    sources = itertools.count()

    def _connected(self, host: str, port: int) -> socket.socket:
        """Each from another address of this machine's own: of one alone the ports would run out."""
        Counted.connections += 1
        number = os.getpid() % 200 * 200 + next(Counted.sources) % 200
        return socket.create_connection((host, port), self.seconds, (f"127.1.{number // 200}.{1 + number % 200}", 0))

    def _send(self, data: bytes) -> None:
        Counted.questions += 1
        Counted.sent += len(data)
        super()._send(data)

    def _receive(self, count: int) -> bytes:
        Counted.received += count
        return super()._receive(count)


def state(node: int, stuck: bool = False, hung: bool = False) -> NodeState:
    """Of a node whose ranks wait in one call; stuck: one of them waits for its data."""
    now = time.time()
    ranks = tuple(
        RankState(
            node * RANKS + local,
            1000 + local,
            local,
            4711,
            "collective",
            now - 11.0,
            "all_reduce",
            "default_pg",
            28_266,
            True,
        )
        for local in range(RANKS)
    )
    stall = NodeStall((), "collective", now - 11.0, 4711, (), True) if hung else None
    if stuck:
        ranks = (replace(ranks[0], phase="data", waits=False, over=True), *ranks[1:])
        stall = NodeStall((node * RANKS,), "data", now - 11.0, 4711, (), False)
    return NodeState(f"node-{node:05d}", now, world=None, ranks=ranks, stall=stall)


def crowd(port: int, nodes: range, line: Connection, stuck: int, ramp: float) -> None:
    """So many nodes, none of which speaks."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    proof = random.Random(1).randbytes(PROOF_BYTES)
    made: dict[int, Exchange] = {}

    def join(node: int) -> Exchange:
        one = Exchange(
            f"node-{node:05d}", lambda: Counted("127.0.0.1", port, "/whichrank/1/a0/"), False,
            lambda question: made[node].give(proof, question), lambda: None,
        )  # fmt: skip
        one.tell(state(node))
        made[node] = one
        return one

    for node in nodes:
        join(node).start()
        time.sleep(ramp / len(nodes))
    line.send("joined")
    while (word := line.recv()) != "end":
        if word == "hang":
            for node in nodes:
                made[node].news(state(node, node == stuck, True), hurry=node == stuck)
        elif word == "count":
            failed = sum(one.failed > 0 for one in made.values())
            line.send((Counted.questions, Counted.sent, Counted.received, Counted.connections, failed))
    os._exit(0)


class Job:
    """The store, the nodes in their processes, and the one that speaks in this one."""

    def __init__(self, python: str, nodes: int, ramp: float) -> None:
        self.nodes = nodes
        env = {**os.environ, "RES_OPTIONS": "timeout:1 attempts:1"}  # it asks DNS for the name of whoever comes
        self.server = subprocess.Popen([python, "-c", SERVER], stdin=-1, stdout=-1, text=True, env=env)
        assert self.server.stdout is not None
        self.port = int(self.server.stdout.readline())
        self.stuck = nodes * 2 // 3
        self.called = threading.Event()
        self.speaker = Exchange(
            "node-00000",
            lambda: Counted("127.0.0.1", self.port, "/whichrank/1/a0/"),
            True,
            lambda _: None,
            self.called.set,
        )
        self.speaker.tell(state(0))
        self.speaker.start()
        self.lines = []
        self.children = []
        for first in range(1, nodes, EACH):
            here, there = multiprocessing.Pipe()
            part = range(first, min(nodes, first + EACH))
            child = multiprocessing.Process(target=crowd, args=(self.port, part, there, self.stuck, ramp), daemon=True)
            child.start()
            self.lines.append(here)
            self.children.append(child)
        for line in self.lines:
            line.recv()
        self.waits: list[float] = []
        self.probing = True
        threading.Thread(target=self._probe, daemon=True).start()

    def _probe(self) -> None:
        """As a rank that uses the store."""
        own = Store("127.0.0.1", self.port, "/job/", seconds=30.0)
        while self.probing:
            began = time.perf_counter()
            own.set("key", b"x" * 100)
            own.get(["key"])
            self.waits.append(time.perf_counter() - began)
            time.sleep(0.05)

    def counted(self) -> tuple[int, ...]:
        for line in self.lines:
            line.send("count")
        told = [line.recv() for line in self.lines] + [
            (Counted.questions, Counted.sent, Counted.received, Counted.connections, 0)
        ]
        return tuple(map(sum, zip(*told, strict=True)))

    def cpu(self) -> float:
        """Seconds of processor time of the store's process."""
        with open(f"/proc/{self.server.pid}/stat") as file:  # noqa: PTH123
            cells = file.read().rpartition(")")[2].split()
        return (int(cells[11]) + int(cells[12])) / os.sysconf("SC_CLK_TCK")

    def measure(self, seconds: float) -> dict[str, Any]:
        before, cpu, at = self.counted(), self.cpu(), time.monotonic()
        self.waits.clear()
        time.sleep(seconds)
        return self.since(before, cpu, at)

    def since(self, before: tuple[int, ...], cpu: float, at: float) -> dict[str, Any]:
        passed = time.monotonic() - at
        waits = sorted(self.waits) or [0.0]
        now = self.counted()
        questions, sent, received, connections, _ = (a - b for a, b in zip(now, before, strict=True))
        return {
            "seconds": round(passed, 1),
            "questions_s": round(questions / passed),
            "new_connections_s": round(connections / passed),
            "open_in_store": len(os.listdir(f"/proc/{self.server.pid}/fd")),  # noqa: PTH208
            "to_store_kB_s": round(sent / passed / 1e3, 1),
            "from_store_kB_s": round(received / passed / 1e3, 1),
            "store_core_percent": round(100 * (self.cpu() - cpu) / passed, 2),
            "rank_waits_ms": [
                round(1e3 * waits[min(len(waits) - 1, int(len(waits) * q))], 2) for q in (0.5, 0.99, 1.0)
            ],
            "without_answer": now[-1],
        }

    def hang(self) -> dict[str, Any]:
        """All hang because of one node's rank: until the speaker has the verdict's evidence."""
        before, cpu = self.counted(), self.cpu()
        self.waits.clear()
        self.called.clear()
        began = time.monotonic()
        for line in self.lines:
            line.send("hang")
        self.called.wait(30)
        heard = self._ask(())
        asked = time.monotonic()
        judged = council.judge([Heard(0, state(0, hung=True), ours=True), *heard])
        self._ask(council.wanted(heard))
        proof = sum(len(data) for data in self.speaker.proof.values())
        told = self.since(before, cpu, began)
        return {
            **told, "named": judged.stall.ranks if judged.stall else None, "right": (self.stuck * RANKS,),
            "answered": len(heard), "judged_after_s": round(asked - began, 1),
            "evidence": len(self.speaker.proof), "evidence_kB": round(proof / 1e3), "at_most_kB": EVIDENCE // 1000,
        }  # fmt: skip

    def _ask(self, evidence: tuple[int, ...]) -> list[Heard]:
        turn = self.speaker.turn()
        heard = self.speaker.ask((PROOF if evidence else ANSWERS) + turn, evidence)
        return [one for one in heard if self.speaker.answered(one.number)]

    def end(self) -> None:
        self.probing = False
        for line in self.lines:
            line.send("end")
        for child in self.children:
            child.join(5)
        self.server.kill()
        self.server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=30.0, help="of the time in which all is well")
    parser.add_argument("--ramp", type=float, default=60.0, help="seconds in which they come")
    asked = parser.parse_args()
    job = Job(asked.python, asked.nodes, asked.ramp)
    try:
        until = time.monotonic() + 2 * asked.ramp
        while job.speaker.nodes < asked.nodes and time.monotonic() < until:
            time.sleep(1)
        time.sleep(10)
        for name, found in (("all is well", job.measure(asked.seconds)), ("a hang", job.hang())):
            print(name)
            for key, value in found.items():
                print(f"  {key:20} {json.dumps(value)}")
    finally:
        job.end()


if __name__ == "__main__":
    main()
