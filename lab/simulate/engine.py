"""Runs the programs: hosts issue, streams run in order, kernels rendezvous.

Every time is a maximum of sums of earlier ones, so the order of evaluation does not matter: a worklist of ranks is
advanced until nothing moves. What is still open then is open for ever. Who looks at it, and when, is watchdog.py.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from lab.simulate.layout import Layout
from lab.simulate.ops import COLLECTIVE, INF, P2P, SYNC, WAIT, Op, Part

LAUNCH = 25e-6
EAGER_BYTES = 64 * 1024  # what a broadcasting root may send away without waiting for a reader
Cut = Callable[[tuple[int, ...], float, Op], bool]


@dataclass(slots=True)
class Stream:
    """Kernels of one communicator on one rank, in order."""

    queue: deque[Op] = field(default_factory=deque)
    free_at: float = 0.0
    count: int = 0


@dataclass(slots=True)
class Rank:
    """A process: the host has issued ops[:issued], the current stream has passed ops[:passed]."""

    number: int
    ops: list[Op]
    issued: int = 0
    host_time: float = 0.0
    passed: int = 0
    stream_time: float = 0.0
    streams: dict[object, Stream] = field(default_factory=dict)
    stuck_at: float | None = None
    died_at: float | None = None
    hung_at: float | None = None


class Engine:
    """`depth`: operations the host may be ahead of its GPU. `cut`: says whether ranks can't exchange at a time."""

    def __init__(self, layout: Layout, programs: list[list[Op]], depth: int = 32, cut: Cut | None = None) -> None:
        self.layout = layout
        self.depth = depth
        self.cut = cut
        self.ranks = [Rank(number, ops) for number, ops in enumerate(programs)]
        self._arrived: dict[tuple[int, int], dict[int, Op]] = {}
        self._broken: set[tuple[int, int]] = set()  # collectives whose members called different things
        self._halves: dict[tuple[object, int, int, int], tuple[Op, Part]] = {}
        self._counts: dict[tuple[object, int, int, int], int] = {}
        self._todo = deque(self.ranks)
        self._waiting = set(range(len(self.ranks)))

    def run(self) -> list[Rank]:
        while self._todo:
            rank = self._todo.popleft()
            self._waiting.discard(rank.number)
            while self._issue(rank) | self._compute(rank) | self._launch(rank):
                pass
        return self.ranks

    def _wake(self, number: int) -> None:
        if number not in self._waiting:
            self._waiting.add(number)
            self._todo.append(self.ranks[number])

    def _issue(self, rank: Rank) -> bool:
        """The host thread goes on until it is too far ahead, waits for its GPU, or is stuck."""
        ops, first = rank.ops, rank.issued
        while rank.issued < len(ops) and rank.stuck_at is None:
            at = rank.issued
            op = ops[at]
            if at >= self.depth:
                before = ops[at - self.depth].passed
                if before is None:
                    break
                rank.host_time = max(rank.host_time, before)
            if op.kind == SYNC:
                if rank.passed < at:
                    break
                rank.host_time = max(rank.host_time, rank.stream_time)
            if op.host == INF:
                rank.stuck_at = rank.host_time
                if op.dies:
                    rank.died_at = rank.host_time
                break
            rank.host_time += op.host + LAUNCH
            op.created = rank.host_time
            rank.issued += 1
        return rank.issued > first

    def _compute(self, rank: Rank) -> bool:
        """The current stream runs what was issued."""
        first = rank.passed
        while rank.passed < rank.issued:
            op = rank.ops[rank.passed]
            if not op.queued:
                rank.stream_time = max(rank.stream_time, op.created or 0.0)
                if op.before == INF:
                    rank.hung_at = rank.stream_time
                    break
                rank.stream_time += op.before
                op.queued = True
                if op.kind in (COLLECTIVE, P2P):
                    op.ready = rank.stream_time
                    self._stream(rank, op).queue.append(op)
                    self._launch(rank)
            if op.kind in (COLLECTIVE, P2P) and op.blocking:
                if op.end is None:
                    break
                rank.stream_time = max(rank.stream_time, op.end)
            elif op.kind == WAIT:
                if any(other.end is None for other in op.waits):
                    break
                rank.stream_time = max([rank.stream_time, *(other.end or 0.0 for other in op.waits)])
            op.passed = rank.stream_time
            rank.passed += 1
        return rank.passed > first

    def _stream(self, rank: Rank, op: Op) -> Stream:
        """Unbatched sends and receives have a communicator and stream of their own for each pair."""
        assert op.group is not None
        key: object = op.group.index
        if op.kind == P2P and not op.batched:
            key = (op.group.index, *sorted((rank.number, op.parts[0].peer)))
        return rank.streams.setdefault(key, Stream())

    def _launch(self, rank: Rank) -> bool:
        """Starts the kernel at the head of each stream."""
        moved = False
        for key, stream in rank.streams.items():
            while stream.queue:
                head = stream.queue[0]
                if head.start is None:
                    head.start = max(head.ready, stream.free_at)
                    if head.kind == COLLECTIVE:
                        self._join(rank.number, stream, head)
                    else:
                        self._exchange(rank.number, key, head)
                    moved = True
                if head.end is None:
                    break
                stream.free_at = head.end
                stream.queue.popleft()
                moved = True
        return moved

    def _finish(self, number: int, op: Op, end: float) -> None:
        dead = self.ranks[number].died_at
        if op.end is None and (dead is None or end <= dead):
            op.end = end
            self._wake(number)

    def _join(self, number: int, stream: Stream, op: Op) -> None:
        """A member's kernel is on its GPU; those that have all they need end."""
        assert op.group is not None
        members = op.group.ranks
        key = (op.group.index, stream.count)
        stream.count += 1
        inside = self._arrived.setdefault(key, {})
        first = next(iter(inside.values()), op)
        inside[number] = op
        if first.signature() != op.signature():
            self._broken.add(key)
        if key in self._broken:
            return
        rooted = op.name in ("broadcast", "gather")
        if not rooted and len(inside) < len(members):
            return
        latest = max(other.start or 0.0 for other in inside.values())
        if self.cut and self.cut(members, latest, op):
            return
        if any(self.ranks[member].died_at is not None for member in members):
            return
        if rooted:
            self._rooted(members, inside)
            return
        end = latest + max(other.takes for other in inside.values())
        for member, other in inside.items():
            if not other.bad_peers & set(members):
                self._finish(member, other, end)
        del self._arrived[key]

    def _rooted(self, members: tuple[int, ...], inside: dict[int, Op]) -> None:
        """A broadcast goes down a chain from the root; a gather is one send to the root from everyone."""
        root = next(iter(inside.values())).root
        chain = [*members[members.index(root) :], *members[: members.index(root)]]
        model = inside.get(root)
        if model is None:
            return
        until = model.start or 0.0
        if model.name == "gather":
            for member, other in inside.items():
                if member != root:
                    self._finish(member, other, max(until, other.start or 0.0) + other.takes)
            if len(inside) == len(members):
                self._finish(root, model, max(other.start or 0.0 for other in inside.values()) + model.takes)
            return
        small = numel(model.inputs) * 2 <= EAGER_BYTES
        for at, member in enumerate(chain):
            if member not in inside:
                return
            until = max(until, inside[member].start or 0.0)
            follows = inside.get(chain[at + 1]) if at + 1 < len(chain) else model
            if small or follows is not None:
                after = until if small or follows is None else max(until, follows.start or 0.0)
                self._finish(member, inside[member], after + model.takes)

    def _exchange(self, number: int, key: object, op: Op) -> None:
        """Each send meets the recv of the same rank in the same direction of the pair; both kernels need all theirs."""
        op.open_parts = len(op.parts)
        for part in op.parts:
            pair = (number, part.peer) if part.sends else (part.peer, number)
            counter = (key, *pair, number)
            at = self._counts.get(counter, 0)
            self._counts[counter] = at + 1
            half = (key, *pair, at)
            other = self._halves.pop(half, None)
            if other is None:
                self._halves[half] = (op, part)
                continue
            met = max(op.start or 0.0, other[0].start or 0.0)
            if other[1].shape != part.shape or other[1].dtype != part.dtype:
                continue
            if self.cut and self.cut(tuple(sorted(pair)), met, op):
                continue
            if any(self.ranks[end].died_at is not None for end in pair):
                continue
            for mine, owner in ((op, number), (other[0], part.peer)):
                mine.ready = max(mine.ready, met)  # of a batch: when its last part has met
                mine.open_parts -= 1
                if not mine.open_parts:
                    self._finish(owner, mine, max(mine.ready, met) + max(op.takes, other[0].takes))


def numel(shapes: list[list[int]]) -> int:
    """Elements of all tensors together."""
    return sum(map(math.prod, shapes))
