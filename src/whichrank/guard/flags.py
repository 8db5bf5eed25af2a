"""agree(flag): one answer for all ranks, where each has its own opinion."""

from __future__ import annotations

from typing import Any

from . import find
from .meeting import meet
from .place import place

PATIENCE = 600.0  # seconds for which the others are waited for


def agree(flag: object, how: str = "any", *, name: str = "", group: Any = None, timeout: float = PATIENCE) -> bool:
    """Whether any (or `how="all"`: all) ranks of the group said true. All must call it, and get the same answer.

    flag: anything with a truth value, a tensor of one element too. name: ranks that meet under different names are told
    so instead of mixing up their answers. timeout: seconds; after them RanksMissing names who did not come. A process
    that has ended is noticed at once.

    Outside of a distributed job: bool(flag).
    """
    (answer,) = agree_all([flag], how, name=name, group=group, timeout=timeout)
    return answer


def agree_all(
    flags: list[Any], how: str = "any", *, name: str = "", group: Any = None, timeout: float = PATIENCE
) -> list[bool]:
    """Several at once, for the price of one."""
    if how not in ("any", "all"):
        raise ValueError(f"agree(how={how!r}): 'any' or 'all'")
    mine = bytes(bool(flag) for flag in flags)
    call = f"agree({name!r}) at {place()}" if name else f"agree() at {place()}"
    around = find.find(group, call, timeout)
    if around is None:
        return [bool(flag) for flag in mine]
    decide = _any if how == "any" else _all
    answer = meet(around, f"agree {how} {name} {len(flags)}", call, mine, decide, timeout)
    return [bool(flag) for flag in answer]


def _any(said: list[bytes]) -> bytes:
    return bytes(max(votes) for votes in zip(*said, strict=True))


def _all(said: list[bytes]) -> bytes:
    return bytes(min(votes) for votes in zip(*said, strict=True))
