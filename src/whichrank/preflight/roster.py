"""Who came, on which node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from whichrank.preflight.answer import names_text, ranks_text


@dataclass(frozen=True, slots=True)
class Roster:
    """places: rank -> name of its node, by rank."""

    places: Mapping[int, str]

    @property
    def ranks(self) -> list[int]:
        return list(self.places)

    @property
    def names(self) -> list[str]:
        """Nodes in the order of their first rank."""
        return list(dict.fromkeys(self.places.values()))

    def node_of(self, rank: int) -> str:
        return self.places.get(rank, "?")

    def ranks_of(self, node: str) -> list[int]:
        return [rank for rank, name in self.places.items() if name == node]

    def leader(self, node: str) -> int:
        return self.ranks_of(node)[0]

    def nodes_of(self, ranks: Iterable[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.places[rank] for rank in sorted(ranks) if rank in self.places))

    def where(self, ranks: Iterable[int]) -> str:
        """
        >>> roster = Roster({0: "a", 1: "a", 2: "b", 3: "b"})
        >>> roster.where([2, 3]), roster.where([0]), roster.where([0, 1, 2, 3])
        ('b (ranks 2, 3)', 'a (rank 0)', 'all nodes')
        """
        ranks = sorted(ranks)
        if len(ranks) == len(self.places) and len(self.names) > 1:
            return "all nodes"
        return f"{names_text(self.nodes_of(ranks))} ({ranks_text(ranks)})"


def roster(came: Mapping[int, Mapping[str, Any]]) -> Roster:
    """came: what each rank said of its node. Different nodes of one name get a number behind it."""
    names: dict[str, str] = {}
    same: Counter[str] = Counter()
    for rank in sorted(came):
        key, host = came[rank]["key"], came[rank]["host"]
        if key not in names:
            same[host] += 1
            names[key] = host if same[host] == 1 else f"{host}({same[host]})"
    return Roster({rank: names[came[rank]["key"]] for rank in sorted(came)})
