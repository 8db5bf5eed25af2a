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
from functools import partial
from typing import TYPE_CHECKING

from whichrank.watch import council, evidence, processes
from whichrank.watch.collect import Collector
from whichrank.watch.detector import Seen, Stall
from whichrank.watch.exchange import FEW, Exchange, Heard
from whichrank.watch.folder import Folder
from whichrank.watch.follow import Rank, Ranks
from whichrank.watch.live import Voice
from whichrank.watch.rundir import RunDir
from whichrank.watch.states import NodeState, NodeStall, of_node
from whichrank.watch.store import Place, Store, address, room

if TYPE_CHECKING:
    from whichrank.watch.front import Options

PREFIX = "/whichrank/1/"
SETTLED = 2.0  # seconds without a new rank, in which all of the node are there
ANSWERS = 2.0  # seconds for the others to say how they are
PROOF = 12.0  # seconds for their evidence
DEATH = 6.0  # seconds after a rank's death in which the launcher ends the others
AGAIN = 5.0  # seconds after which is asked once more, where somebody waits and somebody is at work
LATER = (20.0, 60.0)  # seconds after the first answer: what happens until then may tell more
FRESH = 12.0  # seconds for which what was collected need not be collected again
LAST = 8.0  # seconds at the end for the others' last words
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
        self._told: tuple[Stall, float] | None = None  # what was said for the job, and since when it stands (wall clock)
        self._later: list[float] = []
        self._dead: set[tuple[int, int]] = set()  # (rank, pid) of deaths that were spoken of
        self._at_death: tuple[int, int] | None = None  # the speaker's sign of life when a rank of this node died
        self._answered = False  # by another node, for the stall that this one sees
        self._led = False  # there was one to answer when the job was told to end
        self._build: Callable[[], NodeState] | None = None

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
        attempt = int(str(self.session[-1]))
        self._build = partial(of_node, self.label, attempt, list(ranks.known.values()), here, out)
        self.exchange.tell(self._state())

    def _state(self) -> NodeState:
        assert self._build is not None
        return self._build(self.stall)

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
        self.session = (where, attempt)
        if share:
            connect: Callable[[], Place] = partial(Folder, os.path.join(share, f"{job_of(self.run.run.get('ids'))}-a{attempt}"))  # noqa: PTH118
            free = None
        else:
            assert store is not None
            connect = partial(Store, *store, f"{PREFIX}a{attempt}/")
            tree = processes.below({self.collector.launcher}, processes.everyone()) if self.collector.launcher else []
            free = room(store[1], [self.collector.launcher, *tree], world)
        first = any(rank.rank == 0 for rank in ranks)
        self.exchange = Exchange(self.label, connect, first, self._wanted, self.trouble.set, free)
        self.exchange.start()
        self._told, self._later = None, []
        self.run.event("nodes", by="folder" if share else "store", room=free, ranks=len(ranks), world=world, first=first)
        threading.Thread(target=self._lead, args=(self.exchange,), daemon=True).start()

    def leave(self) -> None:
        if self.exchange is not None:
            self.exchange.close()

    def stalled(self, stall: Stall) -> None:
        self.stall, self._answered = stall, False
        if self.exchange is not None:
            self.exchange.news(self._state(), hurry=not stall.all_wait)
            if self.exchange.speaking:
                self.trouble.set()

    def passed(self) -> None:
        self.stall, self._answered = None, False
        if self.exchange is not None:
            self.exchange.news(self._state())
            if self.exchange.speaking:
                self.trouble.set()

    def died(self) -> None:
        """At once: the ranks of this node, and the store with the first of them, may be gone in a moment."""
        if self.exchange is not None:
            self._at_death = self._at_death or self._sign()
            self.exchange.news(self._state())
            if self.exchange.speaking:
                self.trouble.set()

    def told_to_end(self) -> None:
        self._led = self.exchange is not None and self.exchange.led()

    def _sign(self) -> tuple[int, int]:
        head = self.exchange.head if self.exchange is not None else None
        return (head.epoch, head.pulse) if head is not None else (-1, -1)

    @property
    def first(self) -> bool:
        """Is this node the only one, or the one that speaks?"""
        return self.exchange is None or self.exchange.speaking or self.exchange.head is None

    def answers(self) -> bool:
        """Is there one who answers for the whole job, this node or another that is heard?"""
        return self.exchange is not None and self.exchange.reachable() and (self.exchange.speaking or self.exchange.led())

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

    # Where this node speaks

    def _lead(self, exchange: Exchange) -> None:
        due: float | None = None
        while not self.over.is_set() and exchange is self.exchange:
            called = self.trouble.wait(0.5)
            if not exchange.speaking or not (called or (due is not None and time.monotonic() > due)):
                continue
            self.trouble.clear()
            try:
                due = self._hear(exchange)
            except Exception as error:
                self.run.event("trouble", error=f"{type(error).__name__}: {error}")
                due = time.monotonic() + AGAIN

    def _hear(self, exchange: Exchange) -> float | None:
        """Asks all, and answers if there is something to be answered; when to ask once more."""
        if self.terminated.is_set():
            return None
        heard = self._all(exchange, exchange.ask(ANSWERS + exchange.turn()))
        if dead := self._deaths(heard):
            return self._death(exchange, dead)
        judged = council.judge(heard, self._silent(exchange, heard))
        if judged.stall is None:
            self._over(exchange)
            return time.monotonic() + AGAIN if any(one.state.stall for one in heard) else None
        there = self._told[0] if self._told is not None else None
        now = time.monotonic()
        if there is not None and there.ranks == judged.stall.ranks and self._later and now < self._later[0]:
            return self._later[0]
        if there is None:
            self._later = [now + pause for pause in LATER]
        else:
            self._later = [at for at in self._later if at > now]
        heard = self._proof(exchange, heard, judged.stall)
        judged = council.judge(heard, self._silent(exchange, heard))
        if judged.stall is None:
            return time.monotonic() + AGAIN
        self._answer(exchange, judged)
        return self._later[0] if self._later else None

    def _answer(self, exchange: Exchange, judged: council.Judged) -> None:
        assert judged.stall is not None
        stall, same = self._as_stall(judged.stall), False
        if self._told is not None and (self._told[0].ranks, self._told[0].all_wait) == (stall.ranks, stall.all_wait):
            stall, same = self._told[0], True
        if self.over.is_set() or self.terminated.is_set() or not exchange.speaking:
            return
        if not same:
            self.run.event(
                "stall", ranks=stall.ranks, waiting=stall.waiting, all_wait=stall.all_wait, phase=stall.phase,
                step=stall.step, seconds=round(stall.noticed - stall.since, 1), hosts=judged.hosts, silent=judged.silent,
                nodes=exchange.nodes,
            )  # fmt: skip
        missing = exchange.nodes - 1 - sum(exchange.answered(one.number) or one.state.over for one in exchange.heard.values())
        self.voice.besides = f"{missing} of {exchange.nodes} nodes gave no answer" if missing > 0 else ""
        where = ", ".join(judged.hosts[:4]) + (" …" if len(judged.hosts) > 4 else "")
        again = self._told is not None
        self._told = (stall, judged.stall.since)
        self.voice.stalled(stall, time.time() - judged.stall.since, where, again)
        exchange.said()

    def _as_stall(self, told: NodeStall) -> Stall:
        now = time.monotonic()
        since = now - max(0.0, time.time() - told.since)
        return Stall(told.ranks, told.phase, since, now, told.step, told.waiting, told.all_wait)

    def _over(self, exchange: Exchange) -> None:
        """The job goes on: what was said is taken back."""
        if self._told is not None:
            stall, since = self._told
            self._told, self._later = None, []
            exchange.proof.clear()
            evidence.clear(self.run)
            self.run.event("passed", ranks=stall.ranks, phase=stall.phase, seconds=round(time.time() - since, 1))
            self.voice.passed(stall, time.time() - since)
            exchange.said()

    def _all(self, exchange: Exchange, heard: Sequence[Heard]) -> list[Heard]:
        """With our own, and of this attempt."""
        own = Heard(exchange.number if exchange.number is not None else -1, self._state(), ours=True)
        return [own, *(one for one in heard if one.state.attempt == own.state.attempt)]

    def _silent(self, exchange: Exchange, heard: Sequence[Heard]) -> list[int]:
        """Heard once, but not when all were asked."""
        return [one.number for one in heard if not one.ours and not one.state.over and not exchange.answered(one.number)]

    def _proof(self, exchange: Exchange, heard: Sequence[Heard], stall: NodeStall | None) -> list[Heard]:
        """The evidence of the nodes that matter, and our own, at the same time."""
        held = [rank for rank in self.pids if stall is not None and rank in stall.ranks]
        own = threading.Thread(target=self.collect, args=(self.pids, held, False), daemon=True)
        own.start()
        answered = [one for one in heard if one.ours or exchange.answered(one.number)]
        numbers = [one.number for one in answered if not one.ours]
        later = self._all(exchange, exchange.ask(PROOF + exchange.turn(), council.wanted(answered), numbers))
        own.join(PROOF)
        self._keep(exchange, later)
        return later

    def _keep(self, exchange: Exchange, heard: Sequence[Heard]) -> None:
        """Into the run directory: evidence that came, and of all other nodes what they said."""
        for one in heard:
            data = exchange.proof.get(one.number)
            if one.ours:
                continue
            if data:
                self.run.write(evidence.name(one.state.host, one.number), data)
            if one.state.ended or (not data and exchange.answered(one.number)):
                evidence.told(self.run, one)

    def _deaths(self, heard: Sequence[Heard]) -> list[tuple[int, int]]:
        dead = [(end.rank, end.pid) for one in heard for end in one.state.ended]
        return [] if set(dead) <= self._dead else dead

    def _death(self, exchange: Exchange, dead: Sequence[tuple[int, int]]) -> float | None:
        """Where ranks still live some seconds after another died, the launcher has not ended them: that is told."""
        new = bool(set(dead) - self._dead) and not self._dead
        self._dead |= set(dead)
        heard = self._proof(exchange, list(exchange.heard.values()), None)
        if self.over.wait(DEATH) or self.terminated.is_set() or not exchange.speaking:
            return None
        heard = self._all(exchange, exchange.ask(ANSWERS + exchange.turn()))
        if new and any(one.state.ranks for one in heard if not one.state.over):
            self.voice.died(sorted({rank for rank, _ in dead}))
            exchange.said()
        return time.monotonic() + AGAIN

    # The end

    def ended(self, code: int | None) -> bool:
        """The job has ended on this node. True: another node speaks for it, and knows what this one has to tell."""
        exchange = self.exchange
        if exchange is None or self._build is None:
            return False
        if exchange.speaking:
            self._last_words(exchange)
            return False
        told = not exchange.untold
        state = self._state()
        if self.options.share and exchange.led() and (state.ended or code):
            exchange.give(evidence.of(self.run, self.label), 1 << 60)
        exchange.news(_over(state, code))
        until = time.monotonic() + (LAST if self.options.share else TOLD)
        while time.monotonic() < until and exchange.untold and not exchange.failed:
            time.sleep(0.05)
        return (told or not exchange.untold) and self._answered_for(exchange)

    def _answered_for(self, exchange: Exchange) -> bool:
        """Was the speaker heard since what there is to be told? It may be gone: with the first node, the store is."""
        head = exchange.head
        if head is None:
            return False
        if self._answered or self._led or head.over or head.deaths:
            return True
        if self._at_death is None:
            return exchange.led()
        crowd = exchange.nodes > FEW and (exchange.number or 0) >= VOICES  # looks too seldom to know
        return self._sign() > self._at_death or crowd

    def _last_words(self, exchange: Exchange) -> None:
        """The speaker hears the others out, as long as there is somebody to be heard."""
        until = time.monotonic() + LAST
        while time.monotonic() < until:
            heard = exchange.ask(1.0, [one.number for one in exchange.heard.values() if one.state.ended])
            if exchange.failed or all(one.state.over for one in heard):
                break
            time.sleep(0.2)
        self._keep(exchange, self._all(exchange, list(exchange.heard.values())))
        exchange.said(over=True)


def _over(state: NodeState, code: int | None) -> NodeState:
    from dataclasses import replace

    return replace(state, over=True, code=code)


def job_of(ids: object) -> str:
    """A folder's name that all nodes of a job know alike: of what their command and scheduler say."""
    told = ids if isinstance(ids, dict) else {}
    names = [f"{key}={told[key]}" for key in sorted(told) if told[key]]
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16] if names else "job"
