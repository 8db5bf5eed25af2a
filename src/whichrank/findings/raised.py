"""Where in the user's code gloo's errors were raised: ranks that stand in two places are in two collectives.

A gloo call blocks, so that its traceback shows the call that waited. All ranks of a straggler's job are there in the
same call, the late one too once it comes. A rank whose error comes from another line had gone on to another collective.
NCCL's calls return at once: their errors surface anywhere, and tell nothing here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from whichrank.evidence.exception_part import is_library
from whichrank.facts import Fact
from whichrank.job.model import Job, moment

Path = tuple[str, ...]  # "file:line" of the user's own frames, outermost first

_WHERE = re.compile(r"[^\s()]+:\d+")


@dataclass(frozen=True, slots=True)
class Raised:
    """A few ranks in one call and most in another; facts of one of each."""

    few: tuple[int, ...]
    many: tuple[int, ...]
    few_at: str
    many_at: str
    few_fact: Fact
    fact: Fact

    @property
    def says(self) -> str:
        few = ", ".join(map(str, self.few))
        return f"rank{'s' if len(self.few) > 1 else ''} {few} stood in the call at {self.few_at}, the others in that at {self.many_at}"


def call_of_each(job: Job) -> dict[int, tuple[Path, Fact]]:
    """The call in which each rank's first gloo error was raised, by its own frames."""
    found: dict[int, tuple[Path, Fact]] = {}
    for fact in sorted(job.of("exception"), key=moment):
        if fact.rank is None or fact.rank in found or fact["caught"] or fact["launcher"] or fact["chained"]:
            continue
        if "gloo" not in str(fact["message"] or ""):
            continue
        frames = [match[0] for frame in fact["frames"] or () if (match := _WHERE.search(str(frame)))]
        if own := tuple(frame for frame in frames if not is_library(frame)):
            found[fact.rank] = own, fact
    return found


def together(job: Job, ranks: frozenset[int]) -> frozenset[int]:
    """These ranks, and those that waited in the same call: there their errors were raised, and they too had been silent.

    Who came to that call late, when the others had given up, had gone on speaking meanwhile.
    """
    calls = call_of_each(job)
    places = {calls[rank][0] for rank in ranks if rank in calls}
    silent_since = [at for rank in ranks if (at := _last_word(job, rank)) is not None]
    limits = [fact["timeout_ms"] for fact in job.of("timeout") if isinstance(fact["timeout_ms"], int)]
    latest = max(silent_since, default=None)
    if latest is not None:
        latest += min(limits, default=0) * 1_000_000 // 2
    more = {rank for rank, (path, _) in calls.items() if path in places}
    return ranks | {rank for rank in more if latest is None or (_last_word(job, rank) or 0) <= latest}


def _last_word(job: Job, rank: int) -> int | None:
    info = job.ranks.get(rank)
    return info.last.at_ns if info is not None and info.last is not None else None


def raised_apart(job: Job) -> Raised | None:
    """None unless the ranks stand in exactly two calls, few in one of them."""
    places: dict[Path, list[int]] = defaultdict(list)
    calls = call_of_each(job)
    for rank, (path, _) in calls.items():
        places[path].append(rank)
    if len(places) != 2:
        return None
    (few_at, few), (many_at, many) = sorted(places.items(), key=lambda entry: len(entry[1]))
    if len(few) == len(many):
        return None
    return Raised(
        tuple(sorted(few)), tuple(sorted(many)), _short(few_at), _short(many_at), calls[few[0]][1], calls[many[0]][1]
    )


def _short(path: Path) -> str:
    """The innermost frame: "/home/u/train.py:96" -> "train.py:96"."""
    return re.split(r"[/\\]", path[-1])[-1]
