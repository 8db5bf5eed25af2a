"""What is kept of a diagnosis: the run with its placement and hours, and the incident with whom and what it points to.

A run's placement is its exposure: which nodes took part, with how many ranks, for how long. Identity is physical: a
host under its short name, a GPU by its UUID or bus id on its host. Nothing is guessed: what a report does not say is None.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

Placement = tuple[tuple[str, int], ...]  # (host, how many ranks in a row), in the order of ranks


def digest(*parts: Any) -> str:
    """A key of 32 hexadecimal digits for content: the same parts, the same key."""
    return sha256(
        "\x1f".join("" if part is None else str(part) for part in parts).encode("utf-8", "replace")
    ).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a job, healthy or not. Times in seconds since 1970, UTC; `world_size` 0 where it is not known."""

    id: str
    label: str = ""
    began: float | None = None
    ended: float | None = None
    placement: Placement = ()
    world_size: int = 0

    @property
    def hours(self) -> float | None:
        return max(0.0, self.ended - self.began) / 3600 if self.began is not None and self.ended is not None else None

    def host_of(self, rank: int | None) -> str | None:
        """Where this rank ran.

        >>> Run("r", placement=(("a", 8), ("b", 8))).host_of(9)
        'b'
        """
        if rank is None or rank < 0:
            return None
        for host, count in self.placement:
            if rank < count:
                return host
            rank -= count
        return None


@dataclass(frozen=True, slots=True)
class Incident:
    """One failure or hang of one attempt of a run.

    at, step          when (seconds since 1970), and at which training step
    shard, sample     what the culprit was reading
    from_step         the step at which this attempt had begun or resumed; `shards`: how many there are, 0 if not known
    gpu               UUID, bus id or local index, on `host`; `role`: what its ranks are for (a pipeline stage, …)
    site              "file.py:line" of the culprit's own code; `service`: the shared server or mount that it waited for
    source            "path:line" of the evidence that tells of it first
    """

    run: str
    attempt: int | None = None
    at: float | None = None
    cause: str = "undecided"
    family: str = "undecided"
    grade: str = "undecided"
    confidence: float = 0.0
    rank: int | None = None
    host: str | None = None
    gpu: str | None = None
    local_rank: int | None = None
    role: str | None = None
    site: str | None = None
    step: int | None = None
    from_step: int | None = None
    shard: str | None = None
    shards: int = 0
    sample: str | None = None
    service: str | None = None
    says: str = ""
    source: str | None = None

    @property
    def order(self) -> tuple[float, str, int]:
        """By time; those of no time first."""
        return self.at or 0.0, self.run, self.attempt or 0

    @property
    def key(self) -> str:
        """One attempt of a run has one incident: kept again, it is replaced and not doubled."""
        return digest(self.run, self.attempt)


@dataclass(frozen=True, slots=True)
class Packed:
    """Many runs in few arrays, as a store keeps them: run i's placement is host[start[i]:start[i+1]], each host once.

    began, ended: seconds since 1970, NaN where not known. host: numbers in `names`; count: how many ranks there;
    size: ranks of the run.
    """

    ids: list[str]
    began: NDArray[np.float64]
    ended: NDArray[np.float64]
    size: NDArray[np.int64]
    start: NDArray[np.int64]
    host: NDArray[np.int64]
    count: NDArray[np.int64]
    names: list[str]

    def hosts_of(self, runs: Collection[str]) -> dict[str, set[str]]:
        """The hosts of these runs, as far as they are here."""
        return {
            run: {self.names[host] for host in self.host[self.start[at] : self.start[at + 1]] if self.names[host]}
            for at, run in enumerate(self.ids)
            if run in runs
        }


@dataclass(frozen=True, slots=True)
class History:
    """All that is known: runs (healthy ones too, they are exposure) and incidents, in any order."""

    runs: tuple[Run, ...] = ()
    incidents: tuple[Incident, ...] = ()
    packed: Packed | None = None  # more runs

    @classmethod
    def of(cls, runs: Sequence[Run], incidents: Sequence[Incident]) -> History:
        return cls(tuple(runs), tuple(incidents))


def squeezed(hosts: Sequence[str]) -> Placement:
    """Each rank's host, in the order of ranks, as (host, how many in a row).

    >>> squeezed(["a", "a", "b", "a"])
    (('a', 2), ('b', 1), ('a', 1))
    """
    rows: list[tuple[str, int]] = []
    for host in hosts:
        if rows and rows[-1][0] == host:
            rows[-1] = (host, rows[-1][1] + 1)
        else:
            rows.append((host, 1))
    return tuple(rows)
