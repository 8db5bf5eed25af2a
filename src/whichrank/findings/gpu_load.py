"""Idle GPUs among busy ones during the hang.

A rank that waits in an NCCL kernel spins: its GPU shows near 100 %. One that never launched the collective shows about
0 %. That names the late one only where most of the others are busy; all idle together says nothing of any one of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from whichrank.facts import Fact
from whichrank.job.model import Job

IDLE, BUSY = 5, 90  # percent
HOLDS = 0.2  # of the busy GPUs' memory
AFTER = 60e9  # ns after the first timeout in which the hang may still be seen


@dataclass(frozen=True, slots=True)
class Idle:
    """One GPU that was idle in all its samples, the rank on it if that is known, and a busy one beside it."""

    fact: Fact
    rank: int | None
    busy: Fact


def idle_gpus(job: Job, began_ns: int | None, first: Fact | None, waiting: Collection[int]) -> tuple[Idle, ...]:
    """The idle few among the busy many, sampled while the others waited. A rank that waited itself is none of them."""
    rows: dict[tuple[str | None, object], list[Fact]] = defaultdict(list)
    for fact in job.of("gpu_sample"):
        if isinstance(fact["util"], int) and isinstance(fact["index"], int) and _during(fact, began_ns, first):
            rows[fact.who.host, fact["index"]].append(fact)
    low = [facts for facts in rows.values() if all(fact["util"] <= IDLE for fact in facts)]
    high = [facts for facts in rows.values() if all(fact["util"] >= BUSY for fact in facts)]
    if not low or len(high) < 3 or len(high) < 3 * len(low):
        return ()
    # A GPU that holds next to nothing of what the busy ones hold belongs to nobody here, or its process is gone.
    held = sorted(facts[-1]["mem_mib"] for facts in high if isinstance(facts[-1]["mem_mib"], int))
    least = held[0] * HOLDS if held else 0
    low = [facts for facts in low if not isinstance(facts[-1]["mem_mib"], int) or facts[-1]["mem_mib"] >= least]
    found = [Idle(facts[-1], rank_on(job, facts[-1]), high[0][-1]) for facts in low]
    used = [idle for idle in found if idle.rank is not None or not job.ranks]
    return tuple(idle for idle in used if idle.rank not in waiting)


def _during(fact: Fact, began_ns: int | None, first: Fact | None) -> bool:
    if fact.at_ns is None or fact.clock not in ("wall", "near"):
        return True
    if began_ns is not None and fact.at_ns < began_ns:
        return False
    return first is None or first.at_ns is None or fact.at_ns <= first.at_ns + AFTER


def rank_on(job: Job, fact: Fact, gpu: int | None = None) -> int | None:
    """The rank on a GPU of a host: by its local rank, else where ranks are placed in order of the GPUs.

    `gpu`: its index, where the fact is about several.
    """
    index, ranks = fact["index"] if gpu is None else gpu, job.ranks_on(fact.who.host)
    if not isinstance(index, int):
        return None
    seen = next((f["devices"] for f in job.of("visible_devices") if f.who.host in (None, fact.who.host)), None)
    if seen:  # the process numbers them anew
        if str(index) not in map(str, seen):
            return None
        index = [str(device) for device in seen].index(str(index))
    local = job.local(fact.who.host, index)
    return local if local is not None else ranks[index] if index < len(ranks) > 1 else None
