"""Each rank's calls as a row of letters, so that rows of peers can be laid side by side.

Equal letters are calls that must be equal among peers: group by its role, operation, shapes and types; with the line
that calls or without. Rings begin at different places: rows are aligned by their first common collective.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whichrank.dump import BATCH, COLLECTIVE, Dump, transfer
from whichrank.findings.dumps.calls import key_for
from whichrank.job.collectives import Collectives, Ring

FEW = 16  # calls among which the first common one is looked for before all others
MATCH = 3  # calls in a row that must agree for two rings to be aligned
AHEAD = 12  # calls after a place that are compared


@dataclass(slots=True)
class Track:
    """One rank's calls in order. letters: what must be equal among peers."""

    ring: Ring
    index: np.ndarray
    letters: np.ndarray
    where: dict[int, int] | None = None  # place of each mark, once it was asked for


class _Letters(dict[int, int]):
    """Letters of dumps whose tables are the same, by one number for role, name, shapes, stack and sort of call."""

    def __init__(self, like: Dump, known: dict[tuple[object, ...], int]) -> None:
        """known: the letters of all dumps, so that those with other tables can be compared too."""
        self.like, self.known = like, known

    def of(self, dump: Dump, role: np.ndarray, index: np.ndarray, sites: bool) -> np.ndarray:
        code = role * len(dump.names) + dump.name[index]
        code = code * len(dump.signatures) + dump.signature[index]
        code = code * len(dump.sites) + (dump.site[index] if sites else 0)
        code = code * 2 + (dump.kind[index] == COLLECTIVE)
        return np.array([*map(self.__getitem__, code.tolist())], np.int32)

    def __missing__(self, code: int) -> int:
        dump = self.like
        code_, collective = divmod(code, 2)
        code_, site = divmod(code_, len(dump.sites))
        code_, signature = divmod(code_, len(dump.signatures))
        role, name = divmod(code_, len(dump.names))
        passed = dump.signatures[signature]
        called: object = key_for(dump.names[name], passed) if collective else (*_distance(dump.names[name]), passed)
        letter = (role, called, dump.sites[site])
        self[code] = self.known.setdefault(letter, len(self.known))
        return self[code]


class Tracks:
    """The rows of a job's ranks, made when asked for."""

    def __init__(self, table: Collectives) -> None:
        self.table = table
        self._letters: dict[tuple[object, ...], int] = {}
        self._books: dict[tuple[int, ...], _Letters] = {}
        roles: dict[object, int] = {}
        self._roles = np.array([roles.setdefault(group.role, len(roles)) for group in table.groups], np.int64)
        self._tracks: dict[tuple[int, bool], Track] = {}

    def of(self, rank: int, sites: bool) -> Track:
        if (rank, sites) not in self._tracks:
            self._tracks[rank, sites] = self._made(self.table.rings[rank], sites)
        return self._tracks[rank, sites]

    def _made(self, ring: Ring, sites: bool) -> Track:
        dump = ring.dump
        index = np.flatnonzero(dump.kind != BATCH).astype(np.int32)
        tables = (id(dump.names), id(dump.signatures), id(dump.sites))
        book = self._books.get(tables)
        if book is None:
            book = self._books[tables] = _Letters(dump, self._letters)
        return Track(ring, index, book.of(dump, self._roles[ring.group[index]], index, sites))

    def _marks(self, track: Track, upto: int | None = None) -> list[int]:
        """Role and number of each collective in one number, -1 for other calls."""
        index, dump = track.index[:upto], track.ring.dump
        marks = self._roles[track.ring.group[index]] * (1 << 40) + dump.seq[index]
        return np.where(dump.kind[index] == COLLECTIVE, marks, -1).tolist()  # type: ignore[no-any-return]

    def aligned(self, base: Track, track: Track) -> int | None:
        """How far `track` has to be moved to stand beside `base`: by the first common collective."""
        if base.where is None:
            base.where = {mark: at for at, mark in enumerate(self._marks(base)) if mark >= 0}
        for upto in (FEW, None):  # it is nearly always one of the first
            for at, mark in enumerate(self._marks(track, upto)):
                there = base.where.get(mark)
                if there is None:
                    continue
                run = min(MATCH, len(base.letters) - there, len(track.letters) - at)
                if (base.letters[there : there + run] == track.letters[at : at + run]).all():
                    return there - at
        return None


def _distance(text: str) -> tuple[str, int]:
    """
    >>> _distance("send 3->4"), _distance("recv 3<-2")
    (('send', 1), ('recv', -1))
    """
    ends = transfer(text)
    return (text, 0) if ends is None else ("send" if ends.sends else "recv", ends.peer - ends.me)


def first_difference(base: np.ndarray, letters: np.ndarray, shift: int) -> int | None:
    start, end = max(0, shift), min(len(base), len(letters) + shift)
    different = np.flatnonzero(base[start:end] != letters[start - shift : end - shift])
    return int(different[0]) + start if len(different) else None


def other_program(base: Track, track: Track, at: int, shift: int) -> bool:
    """Does one of them make a call again and again that the other never makes? Then it is no slip.

    Looked at is what both rings hold.
    """
    start, end = max(0, shift), min(len(base.letters), len(track.letters) + shift)
    one, other = base.letters[start:end], track.letters[start - shift : end - shift]
    return any(
        np.count_nonzero(mine == mine[at - start]) >= 2 and not (theirs == mine[at - start]).any()
        for mine, theirs in ((one, other), (other, one))
    )


def followers(letters: np.ndarray, end: int, context: int) -> list[int]:
    """What came, in earlier turns, after the calls that stand right before `end`."""
    if end < context:
        return []
    wanted = letters[end - context : end]
    if end - 1 < context:
        return []
    places = np.lib.stride_tricks.sliding_window_view(letters[: end - 1], context)
    return [int(letters[at + context]) for at in np.flatnonzero((places == wanted).all(axis=1))]


def shifted(mine: np.ndarray, theirs: np.ndarray, least: int = 1) -> bool:
    """Does one side make one call more, and then at least so many of those that the other makes?"""
    mine, theirs = mine[:AHEAD], theirs[:AHEAD]
    return any(
        min(len(one), len(more) - 1) >= least and _prefix(one, more[1:])
        for one, more in ((mine, theirs), (theirs, mine))
    )


def begins_alike(one: np.ndarray, other: np.ndarray, least: int) -> bool:
    """Do both go on with the same calls, at least so many?"""
    return min(len(one), len(other)) >= least and _prefix(one[:AHEAD], other[:AHEAD])


def _prefix(one: np.ndarray, other: np.ndarray) -> bool:
    size = min(len(one), len(other))
    return size > 0 and bool((one[:size] == other[:size]).all())
