"""How the nodes of a job hear of each other: one connection a node, a few words a minute, one node that asks and speaks.

Each node has a number and one value (`node/N`) that says what its ranks do. One node, that of the first rank, speaks for
the job: it writes `head`, which all others look at: its sign of life, the number of its last question, whose evidence
it wants, how often it has spoken. Who has news (a stall, a death, one that passed) writes its value, adds to `alarm` and
leaves its number there; the speaker looks at that one counter. Only when there was an alarm does the speaker ask
all. When the speaker gives no sign of life, the first who claims its place has it.

What it costs: all nodes together look `LOOKS` times a second at most, up to 4,000 of them, each at least once in
`SLOWEST` seconds; a value has at most 32 KiB and mostly some hundred bytes; evidence comes from `WANTED` nodes at most,
`EVIDENCE` bytes each. A node keeps its connection: whenever one is made, the store of PyTorch 2.13 asks DNS for the name of
whoever comes, and answers nobody meanwhile. Its process has a limit on open files, which the job's own connections need:
nodes beyond the room that the speaker sees there look once a minute only. bench/nodes.py shows it with 2,000 nodes.

Nothing here waits for the job, and the job waits for nothing here: one thread talks, with a time limit for each answer.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from whichrank.watch.heads import Head, Heard, Question, clock_off, unpacked_head
from whichrank.watch.states import NodeState, packed, unpacked
from whichrank.watch.store import OVER, Place

EVERY = 1.0  # seconds between two looks of a node
QUICK = 0.3  # the same while something is asked, in a job of few nodes
FEW = 100
SELDOM = 60.0  # seconds between two looks of a node for which the store has no room
LOOKS = 500.0  # a second, of all nodes together
SLOWEST = 8.0
SPREAD = 1000.0  # answers a second of all nodes to one question
PULSE = 5.0  # seconds between two signs of life of the speaker
LOST = 15.0  # seconds without one after which it is lost
DEAF = 8.0  # seconds without an answer of the store after which nobody can be heard
AGAIN = (1.0, 2.0, 5.0, 10.0, 30.0)  # seconds until the next try, where there is no answer
WANTED = 8
EVIDENCE = 512 << 10
RAISED = 64  # that the speaker looks at one by one; more: it asks all anyway


class Exchange:
    """connect: makes a new connection, may raise OSError. first: this node has the first rank, and speaks if it can.
    wanted: called with the number of the question by which this node's evidence is wanted; changed: where others have news.
    room: for how many nodes the store's process has room, if it is on this node and can be seen."""

    def __init__(
        self,
        host: str,
        connect: Callable[[], Place],
        first: bool,
        wanted: Callable[[int], None],
        changed: Callable[[], None],
        room: int | None = None,
    ) -> None:
        self.room = room
        self.host, self.connect, self.first, self.wanted, self.changed = host, connect, first, wanted, changed
        self.state = NodeState(host, time.time())
        self.number: int | None = None
        self.speaking = False
        self.head: Head | None = None
        self.heard: dict[int, Heard] = {}
        self.proof: dict[int, bytes] = {}
        self.joined = self.pulsed = time.monotonic()
        self.last: float | None = None  # when the store last answered
        self.untold = False  # there is news that was not delivered
        self.failed = 0  # how often in a row there was no answer
        self.lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._place: Place | None = None
        self._news_at: float | None = None
        self._alert = 0.0
        self._answered = 0
        self._evidence: tuple[int, bytes] | None = None
        self._evidence_of = 0
        self._claim = -1
        self._alarm = 0
        self._counted = self._beat = 0.0
        self._question: Question | None = None
        self._thread = threading.Thread(target=self._run, name="whichrank-nodes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # What the watcher tells and asks

    def tell(self, state: NodeState) -> None:
        """As it is now; sent when it is asked for."""
        with self.lock:
            self.state = state

    def news(self, state: NodeState, hurry: bool = True) -> None:
        """All are to hear of it. Not in a hurry: of a hang all nodes have the same to tell, and one asks them soon."""
        with self.lock:
            self.state = state
            self.untold = True
            if self.speaking:
                self._know()
            wait = 0.0 if hurry else random.random() * self.nodes / SPREAD
            self._news_at = time.monotonic() + wait
            self._alert = time.monotonic()
        self._wake.set()

    def give(self, evidence: bytes, ask: int) -> None:
        """This node's evidence, for that question."""
        with self.lock:
            self._evidence = (ask, evidence[:EVIDENCE])
        self._wake.set()

    def hurry(self) -> None:
        with self.lock:
            self._alert = time.monotonic()
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    @property
    def nodes(self) -> int:
        return max(self.head.nodes if self.head is not None else 1, (self.number or 0) + 1)

    def reachable(self) -> bool:
        """Has the store answered of late?"""
        return self.last is not None and time.monotonic() - self.last < self.deaf()

    def deaf(self) -> float:
        """Seconds without an answer after which nobody can be heard."""
        return max(DEAF, 2 * self._pause())

    def turn(self) -> float:
        """Seconds in which every node looks, and answers."""
        return 2 * min(SLOWEST, max(EVERY, self.nodes / LOOKS)) + (self.nodes / SPREAD if self.nodes > FEW else 0.0)

    def led(self) -> bool:
        """Is there one who speaks for all, other than this node?"""
        return not self.speaking and self.head is not None and self.reachable() and not self.lost()

    def lost(self) -> bool:
        """No sign of life from the speaker."""
        return time.monotonic() - self.pulsed > max(LOST, 3 * self._pause())

    def take_over(self) -> None:
        """Claims the speaker's place; whether this node has it shows in `speaking`."""
        with self.lock:
            self._claim = self.head.epoch + 1 if self.head is not None else 1
            self.pulsed = time.monotonic()  # time for whoever gets it
        self._wake.set()

    def ask(self, seconds: float, evidence: Iterable[int] = (), of: Iterable[int] | None = None) -> list[Heard]:
        """The speaker asks all nodes: what they have said until then, those that did not answer with their last word.

        evidence: whose evidence is wanted too; what came is in `proof`. of: whose answers are waited for, all by default.
        """
        with self.lock:
            if self.head is None or not self.speaking:
                return list(self.heard.values())
            wanted = tuple(evidence)[:WANTED]
            waited = None if of is None else frozenset(of)
            question = Question(self.head.ask + 1, time.time(), frozenset(wanted), waited)
            self.head = replace(self.head, ask=question.number, want=wanted)
            self._question, self._beat = question, 0.0
        self._wake.set()
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.failed < 2 and not question.done.wait(0.1):
            pass
        with self.lock:
            self._question = None
            return list(self.heard.values())

    def answered(self, number: int) -> bool:
        """Did this node answer the last question?"""
        heard = self.heard.get(number)
        return heard is not None and self.head is not None and heard.state.ask >= self.head.ask

    def said(self, over: bool = False) -> None:
        """The speaker has spoken, or is about to for the last time."""
        with self.lock:
            if self.head is not None:
                self.head, self._beat = replace(self.head, said=self.head.said + 1, over=over), 0.0
        self._wake.set()

    # The thread

    def _run(self) -> None:
        while not self._closed:
            try:
                if self._place is None:
                    self._place = self.connect()
                self._turn(self._place)
                self.last, self.failed = time.monotonic(), 0
                if self._beyond():
                    self._place.close()
                    self._place = None
                pause = self._pause()
            except Exception:  # whatever a store answers
                if self._place is not None:
                    self._place.close()
                    self._place = None
                pause = AGAIN[min(self.failed, len(AGAIN) - 1)] * max(1.0, self.nodes / LOOKS)
                self.failed += 1
            self._wake.wait(pause * random.uniform(0.8, 1.0))
            if self.failed:
                time.sleep(0.2)  # however often it is woken
            self._wake.clear()
        if self._place is not None:
            self._place.close()

    def _pause(self) -> float:
        if self._beyond():
            return SELDOM
        if self._alerted() and self.nodes <= FEW:
            return QUICK
        return EVERY if self.speaking else min(SLOWEST, max(EVERY, self.nodes / LOOKS))

    def _beyond(self) -> bool:
        room = self.head.room if self.head is not None else None
        return room is not None and not self.speaking and (self.number or 0) >= room

    def _know(self) -> None:
        """Deaths, so that whoever else loses ranks knows that they are known of: the store may end with the first node."""
        assert self.head is not None
        deaths = len(self.state.ended) + sum(len(heard.state.ended) for heard in self.heard.values())
        if deaths > self.head.deaths:
            self.head, self._beat = replace(self.head, deaths=deaths), 0.0

    def _alerted(self) -> bool:
        return self._question is not None or time.monotonic() - self._alert < 2 * LOST

    def _turn(self, place: Place) -> None:
        if self.number is None:
            self.number = place.add("count", 1) - 1
            place.set(f"node/{self.number}", packed(self.state))
            if self.first:
                self._take(place, 0)
        if self._claim >= 0:
            self._take(place, self._claim)
            self._claim = -1
        if not self.speaking:
            self._follow(place)
        if self.speaking:
            self._lead(place)
        else:
            self._post(place)

    def _take(self, place: Place, epoch: int) -> None:
        """Be the speaker, if nobody is."""
        assert self.number is not None
        own = str(self.number).encode()
        if place.claim(f"speaker/{epoch}", own) == own:
            with self.lock:
                before = self.head
                ask = before.ask if before is not None else 0
                self.head = Head(self.number, self.host, epoch, 0, max(1, self.nodes), ask, room=self.room)
                self.speaking, self._beat = True, 0.0
            if epoch:
                self.changed()

    def _follow(self, place: Place) -> None:
        data = place.get(["head"]).get("head")
        head = unpacked_head(data) if data else None
        if head is None:
            return
        before = self.head
        if before is None or (head.epoch, head.pulse, head.ask, head.said) != (
            before.epoch, before.pulse, before.ask, before.said,
        ):  # fmt: skip
            self.pulsed = time.monotonic()
        if before is None or head.ask != before.ask:
            self._alert = time.monotonic() if before is not None else self._alert
            if self.number in head.want:
                self.wanted(head.ask)
        with self.lock:
            self.head = head

    def _post(self, place: Place) -> None:
        """Answers, evidence and news. The news counts as told once the counter has answered."""
        assert self.number is not None
        now = time.monotonic()
        with self.lock:
            ask = self.head.ask if self.head is not None else 0
            evidence, self._evidence = self._evidence, None
            due = self._news_at is not None and now >= self._news_at
            state = self.state
        if evidence is not None:
            place.set(f"evidence/{self.number}", evidence[1])
            self._evidence_of = max(self._evidence_of, evidence[0])
        if ask == self._answered and not due and evidence is None:
            return
        if ask != self._answered and not due and evidence is None and self.nodes > FEW:
            time.sleep(random.random() * self.nodes / SPREAD)
            state = self.state
        place.set(f"node/{self.number}", packed(replace(state, ask=ask, evidence=self._evidence_of)))
        self._answered = ask
        if due or (evidence is not None and not evidence[0]):
            at = place.add("alarm", 1)
            place.set(f"raised/{at}", str(self.number).encode())
            with self.lock:
                if due and self.state is state:
                    self._news_at, self.untold = None, False
                elif due:
                    self.untold = False

    # The speaker's side

    def _lead(self, place: Place) -> None:
        assert self.head is not None
        now = time.monotonic()
        alarm = place.add("alarm", 0)
        if alarm != self._alarm:
            self._raised(place, alarm)
        if self._question is not None or now - self._counted > PULSE:
            count, self._counted = place.add("count", 0), now
            with self.lock:
                self.head = replace(self.head, nodes=count)
        if now - self._beat > (EVERY if self._alerted() else PULSE):
            self._publish(place, now)
        if self.speaking and self._question is not None:
            self._gather(place, self._question)

    def _publish(self, place: Place, now: float) -> None:
        assert self.head is not None
        data = place.get(["head"]).get("head")
        there = unpacked_head(data) if data else None
        if there is not None and there.epoch > self.head.epoch:  # another has taken over meanwhile
            with self.lock:
                self.speaking, self.head, self.pulsed = False, there, now
            return
        with self.lock:
            self._beat = now
            self.head = replace(self.head, pulse=self.head.pulse + 1)
            head = self.head
        place.set("head", msgspec.msgpack.encode(head))
        if head.over:
            place.set(OVER, b"1")

    def _raised(self, place: Place, alarm: int) -> None:
        """Who has news? Its number may come a moment after the alarm: then it is looked for once more."""
        first = max(self._alarm + 1, alarm - RAISED + 1)
        keys = [f"raised/{at}" for at in range(first, alarm + 1)]
        found = place.get(keys)
        numbers = {int(data) for data in found.values() if data.isdigit()}
        self._read(place, sorted(numbers), None)
        if len(found) == len(keys) or time.monotonic() - self._alert > 2 * EVERY:
            self._alarm = alarm
        with self.lock:
            self._alert = time.monotonic()
            self._know()
        self.changed()

    def _gather(self, place: Place, question: Question) -> None:
        """What has not come yet of the answers to a question."""
        all_ = range(self.nodes) if question.of is None else sorted(question.of)
        open_ = [number for number in all_ if number != self.number and not self._complete(question, number)]
        self._read(place, open_, question)
        for number in question.evidence:
            heard = self.heard.get(number)
            if heard is not None and number in open_ and (heard.state.evidence >= question.number or heard.state.over):
                for data in place.get([f"evidence/{number}"]).values():
                    self.proof[number] = data
        if all(self._complete(question, number) for number in open_):
            question.done.set()

    def _complete(self, question: Question, number: int) -> bool:
        heard = self.heard.get(number)
        if heard is None or heard.state.ask < question.number:
            return heard is not None and heard.state.over
        return number not in question.evidence or heard.state.evidence >= question.number

    def _read(self, place: Place, numbers: Sequence[int], question: Question | None) -> None:
        found = place.get([f"node/{number}" for number in numbers])
        now = time.time()
        for key, data in found.items():
            number, state = int(key.rpartition("/")[2]), unpacked(data)
            if state is None or number == self.number:
                continue
            before = self.heard.get(number)
            off = before.off if before is not None else 0.0
            if (
                question is not None
                and state.ask == question.number
                and (before is None or before.state.ask < state.ask)
            ):
                off = clock_off(state.at, question.asked_at, now)
            with self.lock:
                self.heard[number] = Heard(number, state.moved(off), off)
