"""Too many facts: of what one speaker says over and over, the first and the last are kept, and the rest is counted.

What decides is how something began and how it ended: the first failure of a rank, the first and the last timeout. A
training program that prints a line of one kind a million times must fill neither the memory nor the evening.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

from whichrank.facts import Fact

# What counts as the same thing said again: the finest of these by which few enough different things are left.
_SAME: tuple[Callable[[Fact], Hashable], ...] = (
    lambda fact: (fact.spot.source.path, fact.kind, fact.who.rank, fact.who.host, _name(fact)),
    lambda fact: (fact.spot.source.path, fact.kind, fact.who.rank, _name(fact)),
    lambda fact: (fact.spot.source.path, fact.kind, fact.who.rank),
    lambda fact: (fact.spot.source.path, fact.kind),
    lambda fact: fact.kind,
)


def _name(fact: Fact) -> str:
    """What a counter, a setting, a version is called."""
    return str(fact.values.get("name") or fact.values.get("what") or "")


def fold(facts: Sequence[Fact], most: int) -> tuple[list[Fact], Counter[str]]:
    """At most about `most` facts, in their order, and how many of each kind were left out.

    >>> from whichrank.facts import Source, Spot
    >>> train = Source("train.log")
    >>> said = [Fact("timeout", Spot(train, line, ""), seq=line) for line in range(100)] + [Fact("exit", Spot(train, 100, ""))]
    >>> kept, left_out = fold(said, 7)
    >>> [fact.spot.line for fact in kept], dict(left_out)
    ([0, 1, 2, 97, 98, 99, 100], {'timeout': 94})
    """
    if len(facts) <= most:
        return list(facts), Counter()
    keys: list[Hashable] = []
    sizes: Counter[Hashable] = Counter()
    for same in _SAME:
        keys = [same(fact) for fact in facts]
        sizes = Counter(keys)
        if 4 * len(sizes) <= most:
            break
    each = _each(sizes, most)
    kept: list[Fact] = []
    left_out: Counter[str] = Counter()
    met: dict[Hashable, int] = defaultdict(int)
    for key, fact in zip(keys, facts, strict=True):
        met[key] += 1
        if met[key] <= each or met[key] > sizes[key] - each:
            kept.append(fact)
        else:
            left_out[fact.kind] += 1
    return kept, left_out


def _each(sizes: Mapping[Hashable, int], most: int) -> int:
    """How many of each group's beginning, and as many of its end, may be kept: at least one."""
    low, high = 1, max(1, most)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(size, 2 * middle) for size in sizes.values()) <= most:
            low = middle
        else:
            high = middle - 1
    return low


def told(left_out: Mapping[str, int]) -> str:
    """
    >>> told({"timeout": 94, "exit": 2})
    'of very many facts of one sort only the first and the last of each speaker were used: 94 of timeout, 2 of exit left out'
    """
    counts = sorted(left_out.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = ", ".join(f"{count} of {kind}" for kind, count in counts[:4]) + (", …" if len(counts) > 4 else "")
    return f"of very many facts of one sort only the first and the last of each speaker were used: {shown} left out"
