"""Hosts whose GPUs are joined otherwise than those of their like: NVLink or an adapter that is gone.

What a host should have is known only from the others: hosts with as many GPUs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from whichrank.facts import Fact
from whichrank.job.model import Job


@dataclass(frozen=True, slots=True)
class Unlike:
    """One host that has less than its like."""

    fact: Fact
    usual: Fact  # another host's
    lost: str  # nvlink, adapter
    sure: bool  # most hosts agree on what is usual, or only a part of the GPUs is cut off

    @property
    def says(self) -> str:
        here, there = self.fact.who.host, self.usual.who.host
        if self.lost == "adapter":
            return f"{here} shows {self.fact['adapters']} network adapters, {there} {self.usual['adapters']}"
        alone = self.fact["alone"]
        if alone:
            which = ", ".join(map(str, alone))
            return f"GPU {which} of {here} has no NVLink to the others, on {there} all have"
        if not self.fact["nvlink_pairs"]:
            return f"the GPUs of {here} are joined without NVLink, those of {there} with it"
        if self.fact["nvlink_pairs"] < self.usual["nvlink_pairs"]:
            return f"{self.fact['nvlink_pairs']} pairs of GPUs of {here} have NVLink, {self.usual['nvlink_pairs']} on {there}"
        return f"pairs of GPUs of {here} have as few as {self.fact['links']} NVLinks, on {there} {self.usual['links']}"


def unlike(job: Job) -> tuple[Unlike, ...]:
    sizes: dict[int, dict[str, Fact]] = defaultdict(dict)
    for fact in sorted(job.of("gpu_topology"), key=lambda fact: fact.order):
        if fact.who.host:
            sizes[fact["gpus"]][fact.who.host] = fact
    found = []
    for hosts in sizes.values():
        found += _less(list(hosts.values()), "nvlink", ("nvlink_pairs", "links"))
        found += _less(list(hosts.values()), "adapter", ("adapters",))
    return tuple(found)


def _less(facts: list[Fact], lost: str, names: tuple[str, ...]) -> list[Unlike]:
    def has(fact: Fact) -> tuple[int, ...]:
        return tuple(fact[name] for name in names)

    if len(facts) < 2:
        return []
    counts = Counter(map(has, facts))
    most = max(counts, key=lambda value: (counts[value], value))
    usual = next(fact for fact in facts if has(fact) == most)
    agreed = counts[most] > len(facts) / 2 and counts[most] > 1
    return [
        Unlike(fact, usual, lost, agreed or bool(fact["alone"] and lost == "nvlink"))
        for fact in facts
        if has(fact) < most and (agreed or len(facts) == 2)
    ]
