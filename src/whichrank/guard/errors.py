"""What a guard raises. Each message says which ranks, where they are, and what to do next."""

from __future__ import annotations


class GuardError(RuntimeError):
    """The ranks could not come together, or did and were not alike."""


class RanksMissing(GuardError):
    """Some ranks did not come to where the others are. `ranks`: who, as global ranks."""

    def __init__(self, text: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.ranks = ranks


class RanksDiffer(GuardError):
    """All ranks came, with things that had to be the same and are not. `ranks`: who differs from most."""

    def __init__(self, text: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.ranks = ranks


class PeerFailed(GuardError):
    """Another rank failed first. `rank`: which; `traceback`: what it would have printed."""

    def __init__(self, text: str, rank: int | None = None, traceback: str = "") -> None:
        super().__init__(text)
        self.rank = rank
        self.traceback = traceback


def named(ranks: list[int] | tuple[int, ...]) -> str:
    """`rank 3`, `ranks 0-2, 7`.

    >>> named([3]), named([7, 0, 1, 2])
    ('rank 3', 'ranks 0-2, 7')
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    words = [f"{first}" if first == last else f"{first}-{last}" for first, last in runs]
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(words)
