"""Whose dump a file is, by its name and by the groups that it used: a dump itself carries no rank.

>>> named("node-3/nccl_trace_rank_12"), named("run7_fr_5.json"), named("rank_4/dump.pickle"), named("a/dump")
(Named(rank=12, explicit=True), Named(rank=5, explicit=False), Named(rank=4, explicit=True), None)
>>> named("cn-01/local_rank3.pkl"), local_in("cn-01/local_rank3.pkl"), local_in("fr_cn-01_gpu2.json")
(None, 3, 2)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from whichrank.facts import MOST_RANKS, slashed

if TYPE_CHECKING:
    from whichrank.dump import Dump

FEW = 8  # ranks: looked for one by one
NAMELESS = "a Flight Recorder dump, but "  # how a Gap begins of a dump whose rank is not known
_RANK = re.compile(r"(?<!local)(?<!local[_.-])rank[_.-]?(\d{1,6})(?!\d)", re.I)
_LOCAL = re.compile(r"(?:local[_.-]?(?:rank)?|(?<![a-z])(?:gpu|cuda|dev(?:ice)?))[_.-]?(\d{1,3})(?!\d)", re.I)
_END = r"(?:\.(?:json|pickle|pkl|p|bin|pt|dump|trace|fr|out|data))*$"
_LAST = re.compile(rf"(\d{{1,6}}){_END}")


class Named(NamedTuple):
    """explicit: after the word "rank"; else it is the number at the end, which may be another one."""

    rank: int
    explicit: bool


def named(path: str) -> Named | None:
    """The rank that a file's name says, or its folder's."""
    *folders, name = slashed(path).split("/")
    folder = folders[-1] if folders else ""
    last = name if not _LOCAL.search(name) else ""
    for pattern, text in ((_RANK, name), (_LAST, last), (_RANK, folder)):
        found = pattern.findall(text)
        if found and int(found[-1]) < MOST_RANKS:
            return Named(int(found[-1]), pattern is _RANK)
    return None


def local_in(path: str) -> int | None:
    """The rank on its node that a file's name says by that word, or by its GPU."""
    found = _LOCAL.findall(slashed(path).rpartition("/")[2])
    return int(found[-1]) if found else None


def rank_in(path: str) -> int | None:
    found = named(path)
    return found.rank if found is not None else None


def in_groups(dump: Dump, rank: int) -> bool:
    """May it be this rank's? Not if a group that it used does not have it."""
    return all(rank in members for members in _members(dump))


def only_rank(dump: Dump) -> int | None:
    """The only rank that is in every group which this process used; None where there are several, or no members."""
    lists = _members(dump)
    if not lists:
        return None
    common = [*dict.fromkeys(lists[0])]  # the shortest: a few ranks, which are looked for in lists of thousands
    for members in lists[1:]:
        has = members if isinstance(members, range) or len(common) < FEW else frozenset(members)
        common = [rank for rank in common if rank in has]
    return common[0] if len(common) == 1 else None


def lists_members(dump: Dump) -> bool:
    return any(group.members for group in dump.groups)


def _members(dump: Dump) -> list[Sequence[int]]:
    """Each list of ranks once, the shortest first."""
    different = {id(group.members): group.members for group in dump.groups if group.members}
    return sorted(different.values(), key=len)
