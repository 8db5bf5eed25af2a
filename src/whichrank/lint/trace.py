"""What one rank does that others take part in: collectives in order, with the branches and loops around them.

A trace is a tuple of steps. Where a branch leaves early, what follows stands in the arm that goes on, so that comparing
two arms compares all that comes after, too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

Place: TypeAlias = tuple[int, int]  # line, column (from 1)
WEAK = frozenset({"forward of a DDP model"})  # blocks only where the module has buffers: not told from these alone
WAITS_ARE_NONE = frozenset({"forward of a DDP model", "forward of a sharded model", "backward", "step of the engine"})
LEAVES_LOOP = frozenset({"break", "return", "raise", "exit"})


@dataclass(frozen=True, slots=True)
class Call:
    """A collective. `places`: where, in each frame from the analysed function down to the one with the call."""

    op: str
    group: str  # "world", a known kind of group ("dp", "tp"), or "sub": some group of which nothing is known
    places: tuple[Place, ...]
    guard: int | None = None  # the frame in which a condition on the rank encloses it
    name: str = ""  # as written
    detail: Hashable = None  # must be the same on all ranks: the ranks of new_group


@dataclass(frozen=True, slots=True)
class Exit:
    """return, break, continue, raise; "returned" is the return of a function that was called on the way."""

    kind: str
    places: tuple[Place, ...]
    guard: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """send or recv. peer: the other rank's number, None where it can't be told."""

    sends: bool
    peer: int | None
    blocks: bool
    place: Place
    tag: int | None = 0


@dataclass(frozen=True, slots=True)
class Save:
    """A file that is written (or read): `path` is the key of the path's value."""

    writes: bool
    path: Hashable
    places: tuple[Place, ...]
    guard: int | None = None
    torch: bool = False


@dataclass(frozen=True, slots=True)
class Swallow:
    """An except that goes on after an error in a part with collectives."""

    places: tuple[Place, ...]
    op: str
    name: str


@dataclass(frozen=True, slots=True)
class Stop:
    """A framework's loop is told to end, by something that is this rank's own."""

    places: tuple[Place, ...]
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Yield:
    """Where a context manager's body stands."""


@dataclass(frozen=True, slots=True)
class Branch:
    """why: a rank's own state decides ("its clock"), or None where all ranks decide alike."""

    then: Trace
    orelse: Trace
    place: Place
    frame: int
    why: str | None = None
    handler: bool = False  # `then` is what an except does


@dataclass(frozen=True, slots=True)
class Loop:
    body: Trace
    place: Place
    frame: int
    why: str | None = None  # a rank's own state decides how often
    uneven: bool = False


Step: TypeAlias = Call | Exit | Peer | Save | Stop | Swallow | Yield | Branch | Loop
Trace: TypeAlias = tuple[Step, ...]


def leaves(trace: Trace) -> bool:
    """No way through: each ends in an exit."""
    if not trace:
        return False
    last = trace[-1]
    if isinstance(last, Exit):
        return last.kind != "returned"
    return isinstance(last, Branch) and leaves(last.then) and leaves(last.orelse)


def may_leave(trace: Trace) -> bool:
    if not trace:
        return False
    last = trace[-1]
    if isinstance(last, Exit):
        return last.kind != "returned"
    return isinstance(last, Branch) and (may_leave(last.then) or may_leave(last.orelse))


def followed(trace: Trace, rest: Trace) -> Trace:
    """A trace and what comes after it, on each way that gets there."""
    if not rest or leaves(trace):
        return trace
    if trace and isinstance(trace[-1], Branch) and may_leave(trace):
        last = trace[-1]
        return (*trace[:-1], replace(last, then=followed(last.then, rest), orelse=followed(last.orelse, rest)))
    return trace + rest


def returned(trace: Trace, seen: dict[int, Step] | None = None, *, looped: bool = False) -> Trace:
    """A called function's trace for its caller: its returns end nothing of the caller's, only loops of its own."""
    seen = {} if seen is None else seen
    return tuple(_returned(step, seen, looped) for step in trace)


def _returned(step: Step, seen: dict[int, Step], looped: bool) -> Step:
    if id(step) in seen:
        return seen[id(step)]
    new = step
    if isinstance(step, Exit) and step.kind == "return":
        new = replace(step, kind="break" if looped else "returned")
    elif isinstance(step, Branch):
        new = replace(
            step, then=returned(step.then, seen, looped=looped), orelse=returned(step.orelse, seen, looped=looped)
        )
    elif isinstance(step, Loop):
        new = replace(step, body=returned(step.body, seen, looped=True))
    seen[id(step)] = new
    return new


def before_exits(trace: Trace, post: Trace) -> Trace:
    """A with's body, with what its context manager does at the end put before each way out."""
    if not post:
        return trace
    steps: list[Step] = []
    for step in trace:
        if isinstance(step, Exit) and step.kind != "returned":
            steps += post
        elif isinstance(step, Branch) and may_leave((step,)):
            step = replace(step, then=before_exits(step.then, post), orelse=before_exits(step.orelse, post))
        steps.append(step)
    return tuple(steps)


def matters(trace: Trace) -> bool:
    """Whether there is anything but plain returns in it."""
    return any(not (isinstance(step, Exit) and step.kind == "returned") for step in trace)


def walk(trace: Trace) -> Iterator[Step]:
    """Every step, each shared continuation once."""
    seen: set[int] = set()
    todo = [trace]
    while todo:
        for step in todo.pop():
            if id(step) in seen:
                continue
            seen.add(id(step))
            yield step
            if isinstance(step, Branch):
                todo += [step.then, step.orelse]
            elif isinstance(step, Loop):
                todo.append(step.body)


def calls(trace: Trace, *, weak: bool = False) -> Iterator[Call]:
    for step in walk(trace):
        if isinstance(step, Call) and (weak or step.op not in WEAK):
            yield step
