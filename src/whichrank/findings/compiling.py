"""Who was still compiling when the others waited, or compiled again where the others did not."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from whichrank.facts import Fact
from whichrank.findings.arrivals import Arrivals
from whichrank.job.model import Job, before, moment

_OF_TORCH = re.compile(r"\btorch/(?:_\w+|fx)/|\bWarning:|\bwarn(?:_once)?\(|AUTOTUNE|\btriton_|\bms \d")


@dataclass(frozen=True, slots=True)
class Compiling:
    """A rank that did not wait: the last phase it began, and since when (seconds before the first timeout)."""

    rank: int
    fact: Fact
    begun: Fact
    open: bool  # its end was not printed before the first timeout
    since_s: float | None
    again: int  # recompilations, where the waiting ranks had none


def compiling(job: Job, arrived: Arrivals) -> tuple[Compiling, ...]:
    """Ranks that did not arrive and were compiling when the others began to wait."""
    if arrived.first is None:
        return ()
    again = Counter(fact.rank for fact in job.of("compile") if fact["phase"] == "recompile")
    waited = max((again[rank] for rank in arrived.waiting), default=0)
    found = []
    for rank in sorted(arrived.suspects):
        facts = sorted((fact for fact in job.of("compile") if fact.rank == rank), key=moment)
        early = [fact for fact in facts if before(arrived.first, fact) is not True]
        if not early:
            continue
        stack: list[Fact] = []
        for fact in early:
            if fact["state"] == "begun":
                stack.append(fact)
            elif fact["state"] == "done":
                stack = [f for f in stack if f["phase"] not in (fact["phase"], "recompile")]
        last = early[-1]
        if _went_on(job, rank, last, arrived.first):
            continue
        # What it finished after the others had begun to wait kept them waiting as well.
        during = arrived.began_ns is not None and last.at_ns is not None and last.at_ns > arrived.began_ns
        if stack or during:
            begun = stack[0] if stack else last
            found.append(Compiling(rank, last, begun, bool(stack), _since(begun, arrived.first), again[rank] - waited))
    return tuple(found)


def _went_on(job: Job, rank: int, last: Fact, first: Fact) -> bool:
    """Did it print something of its own after the compiler's last word? A graph break ends a phase without one."""
    return any(
        line.text.strip()
        and not _OF_TORCH.search(line.text)
        and before(last, line) is True
        and before(first, line) is not True
        for line in job.ranks[rank].said[-400:]
    )


def _since(fact: Fact, first: Fact) -> float | None:
    if fact.at_ns is None or first.at_ns is None or fact.clock == "boot":
        return None
    seconds = (first.at_ns - fact.at_ns) / 1e9
    return seconds if 0 < seconds < 86400 else None
