"""What the stacks say: who is inside a collective, who is somewhere else, and where.

A rank whose main thread is outside every collective while the others are in one is the one they wait for.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass

from whichrank.evidence.stack_class import classify
from whichrank.facts import Fact
from whichrank.job.model import Job

WAITING = {"collective", "backward", "gpu_sync"}
_FETCH = re.compile(r"torch/utils/data/_utils/(?:fetch|collate)\.py")


@dataclass(frozen=True, slots=True)
class Stack:
    rank: int | None
    pid: int | None
    kind: str
    fact: Fact
    child: bool


@dataclass(frozen=True, slots=True)
class Stacks:
    mains: tuple[Stack, ...]  # one for each rank: its main thread
    children: tuple[Stack, ...]  # busy threads and worker processes of ranks
    odd: tuple[Stack, ...]  # ranks outside a collective while others are in one
    all_same: str | None  # the one class that all ranks share

    def of(self, rank: int | None) -> Stack | None:
        return next((stack for stack in self.mains if stack.rank == rank), None)


def stacks(job: Job) -> Stacks:
    mains: dict[object, Stack] = {}
    children: list[Stack] = []
    for fact in job.of("stack"):
        frames = [str(frame) for frame in fact["frames"] or ()]
        kind = classify(frames)
        child = (
            fact.who.pid in job.children
            and fact.who.rank is not None
            and (job.ranks[fact.who.rank].pid != fact.who.pid if fact.who.rank in job.ranks else True)
        )
        stack = Stack(fact.rank, fact.who.pid, kind, fact, child)
        if fact["main"] and not child:
            key = fact.rank if fact.rank is not None else (fact.who.host, fact.who.pid)
            mains[key] = stack  # a later dump of the same process replaces the first
        else:
            children.append(stack)
    found = tuple(mains.values())
    return Stacks(found, tuple(children), _odd(found), _same(found, children))


def _odd(mains: tuple[Stack, ...]) -> tuple[Stack, ...]:
    """Outside while others wait inside. Application frames alone count as waiting if most ranks show the same."""
    if len(mains) < 2:
        return ()
    inside = [stack for stack in mains if stack.kind in WAITING]
    plain = [stack for stack in mains if stack.kind in ("compute", "unknown")]
    outside = [stack for stack in mains if stack.kind not in WAITING and stack not in plain]
    if not inside and all(stack.fact["tool"] == "recorder" for stack in mains):
        return ()  # the last looks at a job in which nobody waited: each rank was somewhere
    if inside and outside and len(outside) <= max(1, len(mains) // 2):
        return tuple(outside)
    if outside and len(plain) + len(inside) > len(outside):
        return tuple(outside)
    if not outside and len(inside) >= 2 and len(plain) <= max(1, len(mains) // 4):
        return tuple(stack for stack in plain if stack.kind == "compute")
    return ()


def _same(mains: tuple[Stack, ...], children: list[Stack]) -> str | None:
    """All ranks alike: look through a pool's main thread at what its threads do."""
    if len(mains) < 2:
        return None
    busy: dict[int | None, Counter[str]] = defaultdict(Counter)
    for stack in children:
        busy[stack.rank if stack.rank is not None else stack.pid][stack.kind] += 1
    kinds = set()
    for stack in mains:
        kind = stack.kind
        inner = busy.get(stack.rank if stack.rank is not None else stack.pid)
        if kind in ("sleep_lock", "unknown", "compute") and inner:
            kind = inner.most_common(1)[0][0]
        kinds.add(kind)
    return kinds.pop() if len(kinds) == 1 else None


def fetching(stack: Stack) -> str | None:
    """Where a DataLoader's worker is that fetches: "__getitem__ (clips.py:88)", and what that is in; None: it is idle."""
    frames = [str(frame) for frame in stack.fact["frames"] or ()]
    loader = next((at for at, frame in enumerate(frames) if _FETCH.search(frame)), 0)
    if not loader:
        return None
    outer, inner = frames[loader - 1], frames[0]
    return outer if outer == inner else f"{outer}, there in {inner}"


def parted_by_stack(found: Stacks) -> tuple[tuple[Stack, ...], tuple[Stack, ...]] | None:
    """Two parties that wait in *different* collectives: (smaller, larger), by what called the collective."""
    parties: dict[str, list[Stack]] = defaultdict(list)
    for stack in found.mains:
        if stack.kind in WAITING:
            frames = [str(frame) for frame in stack.fact["frames"] or ()]
            parties[frames[0].split(" ")[0] if frames else ""].append(stack)
    if len(parties) != 2:
        return None
    small, large = sorted(parties.values(), key=len)
    return tuple(small), tuple(large)
