"""What a node tells the others: its ranks, since when they are where, what ended, and whether it sees a stall.

Small: about 60 bytes a rank before compression, at most `MOST` in all. Times are of the node's wall clock, with the time at
which it was told, so that whoever hears it can see how far that clock is off. What comes from another node is read with
its types checked and its size limited.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from whichrank.watch.detector import Seen, Stall
from whichrank.watch.follow import Rank

RANKS = 256  # of a node that are told
TEXT = 1500  # characters of an exception
MOST = 32 << 10  # bytes of a node's word
LARGEST = 1 << 20  # bytes of one, once it is unpacked


@dataclass(frozen=True, slots=True)
class RankState:
    """since: wall clock, seconds. over: it has outlived what its past allows. waits: for others."""

    rank: int
    pid: int
    local_rank: int | None
    step: int
    phase: str
    since: float
    op: str | None = None
    group: str | None = None
    seq: int | None = None
    waits: bool = False
    over: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """A rank's process that did not end in order. at: wall clock, seconds; raised: its last exception as Python prints it."""

    rank: int
    pid: int
    at: float
    local_rank: int | None = None
    raised: str | None = None
    raised_at: float | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class NodeStall:
    """As detector.Stall, on the wall clock."""

    ranks: tuple[int, ...]
    phase: str
    since: float
    step: int
    waiting: tuple[int, ...]
    all_wait: bool


@dataclass(frozen=True, slots=True)
class NodeState:
    """at: wall clock when it was told. ask: the last question that it answers; evidence: the last one for which it gave its
    evidence. over: what was started there has ended, with this exit code."""

    host: str
    at: float
    ask: int = 0
    evidence: int = 0
    attempt: int = 0
    world: int | None = None
    ranks: tuple[RankState, ...] = ()
    ended: tuple[Ended, ...] = ()
    stall: NodeStall | None = None
    over: bool = False
    code: int | None = None

    def moved(self, seconds: float) -> NodeState:
        """With all its times so much earlier: on the clock of who hears it."""
        if not seconds:
            return self
        stall = self.stall
        return replace(
            self,
            at=self.at - seconds,
            ranks=tuple(replace(one, since=one.since - seconds) for one in self.ranks),
            ended=tuple(
                replace(
                    one, at=one.at - seconds, raised_at=one.raised_at - seconds if one.raised_at is not None else None
                )
                for one in self.ended
            ),
            stall=replace(stall, since=stall.since - seconds) if stall is not None else None,
        )


def packed(state: NodeState) -> bytes:
    """At most `MOST` bytes: where it is more, texts go first, then ranks that wait."""
    for made in (
        state,
        replace(state, ended=tuple(replace(one, raised=None) for one in state.ended[:RANKS])),
        replace(state, ended=(), ranks=tuple(one for one in state.ranks if not one.waits)[:RANKS]),
    ):
        plain = msgspec.msgpack.encode(made)
        data = zlib.compress(plain, 6)
        if len(data) <= MOST and len(plain) <= LARGEST:
            return data
    return zlib.compress(msgspec.msgpack.encode(replace(state, ended=(), ranks=(), stall=None)))


def unpacked(data: bytes) -> NodeState | None:
    """None where it is nothing that a node tells."""
    try:
        reader = zlib.decompressobj()
        plain = reader.decompress(data, LARGEST)
        if reader.unconsumed_tail:
            return None
        state = msgspec.msgpack.decode(plain, type=NodeState)
    except (zlib.error, msgspec.MsgspecError, RecursionError, ValueError):
        return None
    return replace(state, host=state.host[:200])


def of_node(
    host: str,
    attempt: int,
    known: Iterable[Rank],
    seen: Mapping[int, Seen],
    out: Callable[[Seen], bool],
    stall: Stall | None,
) -> NodeState:
    """What this node has to tell now. seen: by pid, those that live; out: whether one outlives what its past allows."""
    wall, mono = time.time(), time.monotonic()
    ranks, ended, world = [], [], None
    for rank in known:
        who = rank.ring.identity if rank.ring else {}
        if who.get("attempt", 0) != attempt:
            continue
        world = rank.world or world
        if (one := seen.get(rank.pid)) is not None and not rank.gone:
            ranks.append(_state(rank, one, wall - mono, out(one)))
        elif rank.gone and not rank.in_order:
            ended.append(_end(rank, wall))
    told = None
    if stall is not None:
        told = NodeStall(stall.ranks, stall.phase, stall.since + wall - mono, stall.step, stall.waiting, stall.all_wait)
    return NodeState(
        host, wall, attempt=attempt, world=world, ranks=tuple(ranks[:RANKS]), ended=tuple(ended[:RANKS]), stall=told
    )


def _local(rank: Rank) -> int | None:
    value = rank.ring.identity.get("local_rank") if rank.ring else None
    return value if isinstance(value, int) else None


def _state(rank: Rank, one: Seen, offset: float, over: bool) -> RankState:
    state = rank.ring.state if rank.ring else None
    return RankState(
        one.rank,
        one.pid,
        _local(rank),
        one.step,
        one.phase[:100],
        round(one.since + offset, 3),
        state.op if state else None,
        (state.group_desc or state.group) if state else None,
        state.seq if state else None,
        one.waits,
        over,
        one.state == "T",
    )


def _end(rank: Rank, wall: float) -> Ended:
    raised = rank.ring.exception if rank.ring else None
    text = raised.text[-TEXT:] if raised else None
    at = rank.ended_at if rank.ended_at is not None else wall
    return Ended(
        rank.rank, rank.pid, round(at, 3), _local(rank), text, raised.wall_ns / 1e9 if raised else None, rank.signal
    )
