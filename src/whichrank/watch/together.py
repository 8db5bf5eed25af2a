"""Several nodes, one answer: what this node tells the others, and where it is the one that speaks, what it hears.

A node whose ranks are not the whole job joins the others as soon as it knows where: the job's own store, or a folder that
all share (`--share`). What it notices goes to the node that speaks, which asks all, has the evidence of those that matter
sent, and answers once. Where nobody can be heard, the node answers for itself; where the speaker is gone, another takes its
place.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from whichrank.watch import evidence, processes
from whichrank.watch.collect import Collector
from whichrank.watch.detector import Seen, Stall
from whichrank.watch.exchange import FEW, Exchange
from whichrank.watch.folder import Folder
from whichrank.watch.follow import Rank, Ranks
from whichrank.watch.live import Voice
from whichrank.watch.rundir import RunDir
from whichrank.watch.speaker import LAST, Speaker
from whichrank.watch.states import NodeState, of_node
from whichrank.watch.store import Place, Store, address, room

if TYPE_CHECKING:
    from whichrank.watch.front import Options

PREFIX = "/whichrank/1/"
SETTLED = 2.0  # seconds without a new rank, in which all of the node are there
FRESH = 12.0  # seconds for which what was collected need not be collected again
TOLD = 1.5  # seconds at the end for one's own
VOICES = 3  # of many nodes, that speak at the end where it is not known whether the speaker lives


class Together:
    """over, terminated: set when the job has ended, or is told to. alone: answers for this node by itself."""

    def __init__(
        self,
        options: Options,
        run: RunDir,
        collector: Collector,
        voice: Voice,
        over: threading.Event,
        terminated: threading.Event,
        alone: Callable[[Stall], None],
    ) -> None:
        self.options, self.run, self.collector, self.voice = options, run, collector, voice
        self.over, self.terminated, self.alone = over, terminated, alone
        self.exchange: Exchange | None = None
        self.session: tuple[object, ...] = ()
        self.stall: Stall | None = None  # what this node sees by itself
        self.pids: dict[int, int] = {}
        self.busy: tuple[int, ...] = ()  # ranks of this node that do not wait
        self.trouble = threading.Event()
        self._met: tuple[int, float] = (0, 0.0)
        self._collecting = threading.Lock()
        self._collected = 0.0
        self.speaker: Speaker | None = None
        self._at_death: tuple[int, int] | None = None  # the speaker's sign of life when a rank of this node died
        self._answered = False  # by another node, for the stall that this one sees
        self._led = False  # there was one to answer when the job was told to end
        self._knew = False  # the speaker knew of a death before a rank of this node died
        self._told_to_end: float | None = None  # wall clock
        self._build: Callable[[Stall | None], NodeState] | None = None
        self.attempt = 0

    # What the watcher sees

    def look(self, ranks: Ranks, seen: Sequence[Seen], out: Callable[[Seen], bool], now: float) -> None:
        live = ranks.live()
        attempt = max((rank.attempt for rank in live), default=None)
        if attempt is not None:
            self._join([rank for rank in live if rank.attempt == attempt], attempt, now)
        if self.exchange is None:
            return
        self.pids = {rank.rank: rank.pid for rank in live}
        self.busy = tuple(one.rank for one in seen if not one.waits)
        here = {one.pid: one for one in seen}
        known = list(ranks.known.values())
        self._build = lambda stall: of_node(self.label, self.attempt, known, here, out, stall)
        self.exchange.tell(self.state())

    def state(self) -> NodeState:
        assert self._build is not None
        state = self._build(self.stall)
        if (since := self._told_to_end) is not None:  # who ends then was told to
            state = replace(state, ended=tuple(one for one in state.ended if one.at < since))
        return state

    @property
    def label(self) -> str:
        return str(os.environ.get("SLURMD_NODENAME") or self.run.run.get("node") or self.collector.host)

    def _join(self, ranks: Sequence[Rank], attempt: int, now: float) -> None:
        if len(ranks) != self._met[0]:
            self._met = (len(ranks), now)
        world = max((rank.world or 0 for rank in ranks), default=0)
        if world <= len(ranks) or now - self._met[1] < SETTLED:
            return
        share = self.options.share
        store = address(rank.ring.identity.get("store") for rank in ranks if rank.ring)
        where: object = share or store
        if where is None or (where, attempt) == self.session:
            return
        self.leave()
        self.session, self.attempt = (where, attempt), attempt
        if share:
            folder = f"{share}/{job_of(self.run.run.get('ids'))}-a{attempt}"
            connect: Callable[[], Place] = partial(Folder, folder)
            free = None
        else:
            assert store is not None
            connect = partial(Store, *store, f"{PREFIX}a{attempt}/")
            tree = processes.below({self.collector.launcher}, processes.everyone()) if self.collector.launcher else []
            free = room(store[1], [self.collector.launcher, *tree], world)
        first = any(rank.rank == 0 for rank in ranks)
        self.exchange = Exchange(self.label, connect, first, self._wanted, self.trouble.set, free)
        self.exchange.start()
        self._at_death, self._answered, self._led, self._knew = None, False, False, False
        self.run.event(
            "nodes", by="folder" if share else "store", room=free, ranks=len(ranks), world=world, first=first
        )
        self.speaker = Speaker(self, self.exchange)
        threading.Thread(target=self.speaker.listen, daemon=True).start()

    def leave(self) -> None:
        if self.exchange is not None:
            self.exchange.close()

    def stalled(self, stall: Stall) -> None:
        self.stall, self._answered = stall, False
        if self.exchange is not None:
            self.exchange.news(self.state(), hurry=not stall.all_wait)
            if self.exchange.speaking:
                self.trouble.set()

    def passed(self) -> None:
        self.stall, self._answered = None, False
        if self.exchange is not None:
            self.exchange.news(self.state())
            if self.exchange.speaking:
                self.trouble.set()

    def died(self) -> None:
        """At once: the ranks of this node, and the store with the first of them, may be gone in a moment."""
        if self.exchange is not None:
            if self._at_death is None:
                self._at_death, head = self._sign(), self.exchange.head
                self._knew = not self.exchange.speaking and head is not None and head.deaths > 0
            self.exchange.news(self.state())
            if self.exchange.speaking:
                self.trouble.set()

    def told_to_end(self) -> None:
        self._led = self.exchange is not None and self.exchange.led()
        self._told_to_end = time.time()

    def _sign(self) -> tuple[int, int]:
        head = self.exchange.head if self.exchange is not None else None
        return (head.epoch, head.pulse) if head is not None else (-1, -1)

    @property
    def first(self) -> bool:
        """Is this node the only one, or the one that speaks?"""
        return self.exchange is None or self.exchange.speaking or self.exchange.head is None

    def answers(self) -> bool:
        """Is there one who answers for the whole job, this node or another that is heard?"""
        return (
            self.exchange is not None and self.exchange.reachable() and (self.exchange.speaking or self.exchange.led())
        )

    # Collecting, at most once for whoever wants it

    def collect(self, ranks: Mapping[int, int], held: Sequence[int], again: bool = True) -> None:
        with self._collecting:
            if again or time.monotonic() - self._collected > FRESH:
                self.collector.stall(dict(ranks), held)
                self._collected = time.monotonic()

    def _wanted(self, question: int) -> None:
        threading.Thread(target=self._give, args=(question,), daemon=True).start()

    def _give(self, question: int) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        self.collect(self.pids, self.busy, again=False)
        data = evidence.of(self.run, self.label)
        self.run.event("evidence_told", ask=question, bytes=len(data))
        exchange.give(data, question)

    # Where another node speaks

    def wait(self, stall: Stall) -> None:
        """Until the speaker has answered, or the stall passes. Nobody to be heard: this node answers for itself."""
        exchange = self.exchange
        assert exchange is not None
        said = exchange.head.said if exchange.head is not None else 0
        while not self.over.wait(0.5) and not self.terminated.is_set():
            if self.stall is not stall or exchange is not self.exchange:
                return
            if exchange.speaking:
                self.trouble.set()
                return
            if exchange.head is not None and exchange.head.said > said:
                self._answered = True
                self.run.event("told_by", host=exchange.head.host)
                return
            if not exchange.reachable():
                if time.monotonic() - (exchange.last or exchange.joined) > exchange.deaf():
                    self.run.event("nobody_heard")
                    self.alone(stall)
                    return
            elif exchange.lost():
                exchange.take_over()

    # The end

    def ended(self, code: int | None) -> bool:
        """The job has ended on this node. True: another node speaks for it, and knows what this one has to tell."""
        exchange = self.exchange
        if exchange is None or self._build is None:
            return False
        state = self.state()
        well = not code and not state.ended
        if exchange.speaking:
            assert self.speaker is not None
            self.speaker.last_words(well)
            return False
        told = not exchange.untold
        if self.options.share and exchange.led() and (state.ended or code):
            exchange.give(evidence.of(self.run, self.label), 1 << 60)
        exchange.news(_over(state, code))
        until = time.monotonic() + (0.0 if well else LAST if self.options.share else TOLD)
        while time.monotonic() < until and exchange.untold and not exchange.failed:
            time.sleep(0.05)
        told = told or not exchange.untold or self._knew
        return told and self._answered_for(exchange)

    def _answered_for(self, exchange: Exchange) -> bool:
        """Was the speaker heard since what there is to be told? It may be gone: with the first node, the store is."""
        head = exchange.head
        if head is None:
            return False
        if self._answered or self._led or self._knew or head.over or head.deaths:
            return True
        if self._at_death is None:
            return exchange.led()
        crowd = exchange.nodes > FEW and (exchange.number or 0) >= VOICES  # looks too seldom to know
        return self._sign() > self._at_death or crowd


def _over(state: NodeState, code: int | None) -> NodeState:
    return replace(state, over=True, code=code)


def job_of(ids: object) -> str:
    """A folder's name that all nodes of a job know alike: of what their command and scheduler say."""
    told = ids if isinstance(ids, dict) else {}
    names = [f"{key}={told[key]}" for key in sorted(told) if told[key]]
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16] if names else "job"
