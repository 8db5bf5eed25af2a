"""What goes between the speaker and the others: the speaker's word, its questions, and what it heard."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import msgspec

from whichrank.watch.states import NodeState


@dataclass(frozen=True, slots=True)
class Head:
    """The speaker's word to all. said: how often it has spoken; epoch: the how manyth speaker it is; over: what it had to
    watch has ended, and it answers for that; deaths: how many ranks it knows to have died; room: for how many nodes
    the store has room, where that is known."""

    speaker: int
    host: str
    epoch: int = 0
    pulse: int = 0
    nodes: int = 1
    ask: int = 0
    want: tuple[int, ...] = ()
    said: int = 0
    over: bool = False
    deaths: int = 0
    room: int | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """A node's word, with its times on our clock. off: how far its clock was found to be off, if so."""

    number: int
    state: NodeState
    off: float = 0.0
    ours: bool = False


@dataclass(slots=True)
class Question:
    """evidence: of these nodes it is wanted too. of: the nodes whose answer is waited for; None: of all."""

    number: int
    asked_at: float  # wall clock
    evidence: frozenset[int] = frozenset()
    of: frozenset[int] | None = None
    done: threading.Event = field(default_factory=threading.Event)


def clock_off(told_at: float, asked_at: float, heard_at: float) -> float:
    """How far another node's clock is off: it told something after it was asked and before it was heard. Within that, it is
    taken as right: nodes' clocks are mostly kept together far better than that.

    >>> clock_off(100.9, 100.0, 101.0), clock_off(160.5, 100.0, 101.0), clock_off(98.5, 100.0, 101.0)
    (0.0, 60.0, -2.0)
    """
    if asked_at - 0.6 <= told_at <= heard_at + 0.1:  # what is told may be as old as the watcher's last look
        return 0.0
    return told_at - (asked_at + heard_at) / 2


def unpacked_head(data: bytes) -> Head | None:
    try:
        return msgspec.msgpack.decode(data, type=Head)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
