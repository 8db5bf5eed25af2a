"""The node that speaks: it asks the others when there is trouble, judges, has their evidence sent, and answers once."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from whichrank.watch import council, evidence
from whichrank.watch.detector import Stall
from whichrank.watch.exchange import FEW, Exchange
from whichrank.watch.heads import Heard
from whichrank.watch.states import NodeStall

if TYPE_CHECKING:
    from whichrank.watch.together import Together

ANSWERS = 2.0  # seconds for the others to say how they are, beside the time in which each looks
PROOF = 12.0  # seconds for their evidence
DEATH = 6.0  # seconds after a rank's death in which the launcher ends the others
AGAIN = 5.0  # seconds after which is asked once more, where somebody waits and somebody is at work
LATER = (20.0, 60.0)  # seconds after the first answer: what happens until then may tell more
LAST = 8.0  # seconds at the end for the others' last words


class Speaker:
    """Of one exchange; idle until that node is the one to speak."""

    def __init__(self, node: Together, exchange: Exchange) -> None:
        self.node, self.exchange = node, exchange
        self._told: tuple[Stall, float] | None = None  # what was said for the job, since when it stands (wall clock)
        self._later: list[float] = []
        self._dead: set[tuple[int, int]] = set()  # (rank, pid) of deaths that were spoken of

    def _now(self) -> bool:
        """Is this still the exchange of the ranks that run?"""
        return self.exchange is self.node.exchange

    def listen(self) -> None:
        due: float | None = None
        while not self.node.over.is_set() and self._now():
            called = self.node.trouble.wait(0.5)
            if not self.exchange.speaking or not (called or (due is not None and time.monotonic() > due)):
                continue
            self.node.trouble.clear()
            try:
                due = self._hear()
            except Exception as error:
                self.node.run.event("trouble", error=f"{type(error).__name__}: {error}")
                due = time.monotonic() + AGAIN

    def _hear(self) -> float | None:
        """Asks all, and answers if there is something to be answered; when to ask once more."""
        if self.node.terminated.is_set():
            return None
        heard = self._all(self.exchange.ask(ANSWERS + self.exchange.turn()))
        if dead := self._deaths(heard):
            return self._death(dead)
        judged = council.judge(heard, self._silent(heard))
        if judged.stall is None:
            self._over()
            return time.monotonic() + AGAIN if any(one.state.stall for one in heard) else None
        there = self._told[0] if self._told is not None else None
        now = time.monotonic()
        if there is not None and there.ranks == judged.stall.ranks and self._later and now < self._later[0]:
            return self._later[0]
        if there is None:
            self._later = [now + pause for pause in LATER]
        else:
            self._later = [at for at in self._later if at > now]
        heard = self._proof(heard, judged.stall)
        judged = council.judge(heard, self._silent(heard))
        if judged.stall is None:
            return time.monotonic() + AGAIN
        self._answer(judged)
        return self._later[0] if self._later else None

    def _answer(self, judged: council.Judged) -> None:
        assert judged.stall is not None
        stall, same = self._as_stall(judged.stall), False
        if self._told is not None and (self._told[0].ranks, self._told[0].all_wait) == (stall.ranks, stall.all_wait):
            stall, same = self._told[0], True
        if self.node.over.is_set() or self.node.terminated.is_set() or not self.exchange.speaking:
            return
        if not same:
            self.node.run.event(
                "stall", ranks=stall.ranks, waiting=stall.waiting, all_wait=stall.all_wait, phase=stall.phase,
                step=stall.step, seconds=round(stall.noticed - stall.since, 1), hosts=judged.hosts, silent=judged.silent,
                nodes=self.exchange.nodes,
            )  # fmt: skip
        nodes, others = self.exchange.nodes, list(self.exchange.heard.values())
        missing = nodes - 1 - sum(self.exchange.answered(one.number) or one.state.over for one in others)
        self.node.voice.besides = f"{missing} of {nodes} nodes gave no answer" if missing > 0 else ""
        where = ", ".join(judged.hosts[:4]) + (" …" if len(judged.hosts) > 4 else "")
        again = self._told is not None
        self._told = (stall, judged.stall.since)
        self.node.voice.stalled(stall, time.time() - judged.stall.since, where, again)
        self.exchange.said()

    def _as_stall(self, told: NodeStall) -> Stall:
        now = time.monotonic()
        since = now - max(0.0, time.time() - told.since)
        return Stall(told.ranks, told.phase, since, now, told.step, told.waiting, told.all_wait)

    def _over(self) -> None:
        """The job goes on: what was said is taken back."""
        if self._told is not None:
            stall, since = self._told
            self._told, self._later = None, []
            self.exchange.proof.clear()
            evidence.clear(self.node.run)
            self.node.run.event("passed", ranks=stall.ranks, phase=stall.phase, seconds=round(time.time() - since, 1))
            self.node.voice.passed(stall, time.time() - since)
            self.exchange.said()

    def _all(self, heard: Sequence[Heard]) -> list[Heard]:
        """With our own, and of this attempt."""
        own = Heard(self.exchange.number if self.exchange.number is not None else -1, self.node.state(), ours=True)
        return [own, *(one for one in heard if one.state.attempt == own.state.attempt)]

    def _silent(self, heard: Sequence[Heard]) -> list[int]:
        """Heard once, but not when all were asked."""
        return [
            one.number
            for one in heard
            if not one.ours and not one.state.over and not self.exchange.answered(one.number)
        ]

    def _proof(self, heard: Sequence[Heard], stall: NodeStall | None) -> list[Heard]:
        """The evidence of the nodes that matter, and our own, at the same time."""
        held = [rank for rank in self.node.pids if stall is not None and rank in stall.ranks]
        own = threading.Thread(target=self.node.collect, args=(self.node.pids, held, False), daemon=True)
        own.start()
        answered = [one for one in heard if one.ours or self.exchange.answered(one.number)]
        numbers = [one.number for one in answered if not one.ours]
        later = self._all(self.exchange.ask(PROOF + self.exchange.turn(), council.wanted(answered), numbers))
        own.join(PROOF)
        self._keep(later)
        return later

    def _keep(self, heard: Sequence[Heard]) -> None:
        """Into the run directory: evidence that came, and of all other nodes what they said."""
        for one in heard:
            data = self.exchange.proof.get(one.number)
            if one.ours:
                continue
            if data:
                self.node.run.write(evidence.name(one.state.host, one.number), data)
            if one.state.ended or (not data and self.exchange.answered(one.number)):
                evidence.told(self.node.run, one)

    def _deaths(self, heard: Sequence[Heard]) -> list[tuple[int, int]]:
        dead = [(end.rank, end.pid) for one in heard for end in one.state.ended]
        return [] if set(dead) <= self._dead else dead

    def _death(self, dead: Sequence[tuple[int, int]]) -> float | None:
        """Where ranks still live some seconds after another died, the launcher has not ended them: that is told."""
        new = bool(set(dead) - self._dead) and not self._dead
        self._dead |= set(dead)
        heard = self._proof(list(self.exchange.heard.values()), None)
        if self.node.over.wait(DEATH) or self.node.terminated.is_set() or not (self.exchange.speaking and self._now()):
            return None
        heard = self._all(self.exchange.ask(ANSWERS + self.exchange.turn()))
        if new and any(one.state.ranks for one in heard if not one.state.over):
            self.node.voice.died(sorted({rank for rank, _ in dead}))
            self.exchange.said()
        return time.monotonic() + AGAIN

    def last_words(self, well: bool) -> None:
        """The speaker hears the others out, as long as there is somebody to be heard. well: there is nothing to answer."""
        exchange = self.exchange
        until = time.monotonic() + LAST
        while not (well and self._told is None) and time.monotonic() < until:
            few = exchange.nodes <= FEW
            dead = [one.number for one in exchange.heard.values() if one.state.ended]
            heard = exchange.ask(1.0 if few else LAST, dead)
            if exchange.failed or not few or all(one.state.over for one in heard):
                break
            time.sleep(0.2)
        self._keep(self._all(list(exchange.heard.values())))
        exchange.said(over=True)
