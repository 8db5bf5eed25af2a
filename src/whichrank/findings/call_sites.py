"""Where in the user's own code each side of a desync made its call.

Ranks that wait in operations of another size or kind at one sequence number either took another branch (other call
sites) or passed other arguments at the same place (one call site). The stacks that PyTorch prints of the failed
collective tell which; a main thread's stack, or the traceback of a blocking wait, tells it too.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import takewhile

from whichrank.evidence.exception_part import is_library
from whichrank.facts import Fact
from whichrank.findings.desync import Sides
from whichrank.findings.stacks import WAITING, Stacks
from whichrank.job.model import Job

Path = tuple[str, ...]  # "file:line" of the user's own frames, outermost first

_WHERE = re.compile(r"[^\s()]+:\d+")


@dataclass(frozen=True, slots=True)
class CallSites:
    """The call sites of the smallest and the largest side.

    same  all ranks called from one place in the user's code
    odd, usual  "stack.py:96": the innermost frame of each side in which they differ (or the innermost, where same)
    """

    same: bool
    odd: str
    usual: str
    odd_fact: Fact
    fact: Fact


def call_sites(job: Job, sides: Sides | None, found: Stacks) -> CallSites | None:
    """None where the sides are at other sequence numbers, or where a side's stacks are missing or differ in themselves."""
    if sides is None or sides.what not in ("op", "size"):
        return None
    paths = _paths(job, found)
    parties = [[paths[rank] for rank in ranks if rank in paths] for ranks, _ in sides.parties]
    if len(parties) < 2 or not all(parties):
        return None
    if any(len({path for path, _ in party}) > 1 for party in parties):
        return None
    (odd, odd_fact), (usual, fact) = parties[0][0], parties[-1][0]
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(odd, usual, strict=False)))
    if odd == usual:
        return CallSites(
            len({party[0][0] for party in parties}) == 1, _short(odd[-1]), _short(usual[-1]), odd_fact, fact
        )
    at = (min(common, len(odd) - 1), min(common, len(usual) - 1))
    return CallSites(False, _short(odd[at[0]]), _short(usual[at[1]]), odd_fact, fact)


def at_one_line(job: Job, ranks: Collection[int], found: Stacks) -> tuple[Fact, ...]:
    """The stacks of these ranks, if each has one, all in the same call of the user's code."""
    paths = _paths(job, found)
    shown = [paths[rank] for rank in ranks if rank in paths]
    alike = len({path for path, _ in shown}) == 1 and len(shown) == len(ranks)
    return tuple(fact for _, fact in shown) if alike else ()


def _paths(job: Job, found: Stacks) -> dict[int, tuple[Path, Fact]]:
    """Each rank's own frames of the call it waits in; those that name the failed collective before all others."""
    paths: dict[int, tuple[Path, Fact]] = {}
    raised = [
        fact for fact in job.of("exception") if not fact["launcher"] and "DistBackendError" in str(fact["type"] or "")
    ]
    for fact, inner_last in (
        *((fact, False) for fact in job.of("failed_collective_site")),
        *((stack.fact, False) for stack in found.mains if stack.kind in WAITING),
        *((fact, True) for fact in raised),
    ):
        frames = [str(frame) for frame in fact["frames"] or ()]
        if not inner_last:
            frames.reverse()
        own = tuple(match[0] for frame in frames if not _library(frame) and (match := _WHERE.search(frame)))
        if fact.rank is not None and own and fact.rank not in paths:
            paths[fact.rank] = own, fact
    return paths


def _library(frame: str) -> bool:
    match = _WHERE.search(frame)
    return is_library(match[0]) if match else True


def _short(where: str) -> str:
    """ "/home/u/model/stack.py:96" -> "stack.py:96"."""
    return re.split(r"[/\\]", where)[-1]
