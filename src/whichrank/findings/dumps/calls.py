"""What a rank called: the same call compared over the members of a group.

Some arguments differ by right: only the root of a gather has an output, splits of an all-to-all follow the data. Those
are left out of what has to be equal.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from whichrank.dump import BATCH, COLLECTIVE, Dump, Frame, Signature, describe
from whichrank.job.collectives import Collectives, Ring

Key = tuple[str, tuple[tuple[int, ...], ...], tuple[str, ...]]  # operation, shapes, dtypes

GENERATED = (
    "<eval_with_key>",
    "<fx",
    "torchinductor",
    "<string>",
)  # how names of files begin that torch.compile makes up
OFTEN = 8  # times that a call was made in one way, for it to be the usual one
_BY_OUTPUT = ("scatter", "all_to_all_split_output")  # what a scatter is given only its root knows
UNEVEN = ("all_to_all", "alltoall", "all_to_allv", "alltoall_base", "all_to_all_single")


def key_of(dump: Dump, at: int) -> Key:
    """What must be equal on all members of the group."""
    return key_for(dump.names[int(dump.name[at])], dump.signatures[int(dump.signature[at])])


def key_for(name: str, passed: Signature) -> Key:
    if name in UNEVEN:
        return (name, (), passed.input_dtypes[:1] or passed.output_dtypes[:1])
    if name in _BY_OUTPUT:
        return (name, passed.outputs, passed.output_dtypes)
    return (name, passed.inputs, passed.input_dtypes)


@dataclass(frozen=True, slots=True)
class Sides:
    """One call of a group that members made differently: the ranks of each way, the most usual first."""

    group: int
    seq: int
    ways: tuple[tuple[Key, tuple[int, ...]], ...]

    @property
    def same_operation(self) -> bool:
        return len({key[0] for key, _ in self.ways}) == 1


def sides(table: Collectives, group: int, seq: int) -> Sides | None:
    """How the members that have it in their rings made this call, where not all made it alike."""
    ways: dict[Key, list[int]] = {}
    for member in table.groups[group].members:
        ring = table.rings.get(member)
        if ring is not None and (at := ring.find(group, seq)) is not None:
            ways.setdefault(key_of(ring.dump, at), []).append(member)
    if len(ways) < 2:
        return None
    return Sides(
        group, seq, tuple((key, tuple(ranks)) for key, ranks in sorted(ways.items(), key=lambda way: -len(way[1])))
    )


def never_else(table: Collectives, apart: Sides) -> tuple[int, ...]:
    """The ranks whose way of making this call is found nowhere else in groups of this role; empty where that says nothing."""
    role = table.groups[apart.group].role
    names = {key[0] for key, _ in apart.ways}
    made: Counter[Key] = Counter()
    for ring in table.rings.values():
        dump = ring.dump
        alike = np.isin(dump.name, [number for number, name in enumerate(dump.names) if name in names])
        found = np.flatnonzero(alike & (dump.kind == COLLECTIVE))
        ways = np.stack([ring.group[found], dump.name[found], dump.signature[found]])
        _, first, counts = np.unique(ways, axis=1, return_index=True, return_counts=True)  # few, of many calls
        for at, count in zip(found[first].tolist(), counts.tolist(), strict=True):
            if table.groups[int(ring.group[at])].role == role:
                made[key_of(dump, at)] += count
    once = [ranks for key, ranks in apart.ways if made[key] == len(ranks)]
    often = [ranks for key, ranks in apart.ways if made[key] >= OFTEN + len(ranks)]
    if len(often) != 1 or len(once) + 1 != len(apart.ways):
        return ()
    return tuple(sorted(rank for ranks in once for rank in ranks))


def operation(ring: Ring, at: int) -> str:
    """What a unit is called: a batch of one transfer by that, peers by their global ranks."""
    dump = ring.dump
    parts = ring.parts(at) if dump.kind[at] else range(at, at + 1)
    first = parts[0] if dump.kind[at] == BATCH and len(parts) else at
    text = describe(dump, first).partition(" p2p ")[0] if dump.kind[first] else dump.names[int(dump.name[first])]
    return f"{text} and {len(parts) - 1} more" if len(parts) > 1 else text


def site(ring: Ring, at: int) -> Frame | None:
    """The innermost line of the user's own code at a call; None where no frame is of it."""
    frames = ring.dump.sites[int(ring.dump.site[at])]
    return next((frame for frame in frames if not _library(frame.file)), None)


def written(ring: Ring, at: int) -> Frame | None:
    """The same, but no line that torch.compile wrote: for people to look at."""
    frames = ring.dump.sites[int(ring.dump.site[at])]
    return next((frame for frame in frames if not _library(frame.file) and not generated(frame.file)), None)


def generated(file: str) -> bool:
    return file.startswith(GENERATED) or "torchinductor" in file


def _library(file: str) -> bool:
    return "/site-packages/" in file or "/dist-packages/" in file or "/torch/" in file or "/lib/python3" in file
