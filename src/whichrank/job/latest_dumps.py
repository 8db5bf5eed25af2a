"""Several dumps of a rank, and dumps that an earlier attempt left: of each rank the one that belongs to this incident.

Two dumps of one process have their calls in common, at the same times; of two processes one after the other the later
counts. A dump of an earlier attempt shows by its times: it ends before the others begin, or calls that all of them
have made ended in it before the others made them, at another pace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from whichrank.dump import COLLECTIVE, Dump
from whichrank.facts import Gap, slashed

STALE = 120e9  # ns between the end of one dump and the beginning of all others that makes it one of an earlier run
APART = 10e9  # ns: clocks of hosts differ by less
PACE = 1e9  # ns by which the distance of two runs varies from call to call; that of two clocks does not
LEAST = 5  # calls in common that tell a pace
MANY = 3  # dumps of a folder that are told of one by one
Relation = Literal["copy", "earlier", "beside", "before"]
_SAYS: dict[Relation, str] = {
    "copy": "a copy",
    "earlier": "taken earlier of the same process",
    "before": "of an earlier attempt",
    "beside": "of another process that ran at the same time",
}


def one_a_rank(dumps: Sequence[Dump], gaps: list[Gap]) -> dict[int, Dump]:
    """Each rank's latest dump of the last run; of the others a Gap says what they are."""
    by_rank: dict[int, list[Dump]] = defaultdict(list)
    for dump in dumps:
        if dump.rank is not None:
            by_rank[dump.rank].append(dump)
    chosen: dict[int, Dump] = {}
    left: dict[tuple[str, str, Relation], list[tuple[Dump, Dump]]] = defaultdict(list)
    for rank, some in by_rank.items():
        # Of one moment, the one with more calls: another may have been asked for active ones only. Of copies the first.
        some.sort(key=lambda dump: (dump.last_ns, len(dump), -dump.source.path.count("/")))
        chosen[rank] = some[-1]
        for older in some[:-1]:
            left[_folder(older), _folder(some[-1]), relation(older, some[-1])].append((older, some[-1]))
    for (folder, used, how), pairs in left.items():
        gaps.extend(_told(folder, used, how, pairs))
    for rank, why in {**_too_early(chosen), **_other_pace(chosen)}.items():
        gaps.append(Gap(chosen[rank].source.path, f"{why}: left over from an earlier run, so rank {rank} has no dump",
                        f"the dump of rank {rank} of this run, if it wrote one"))  # fmt: skip
        del chosen[rank]
    return chosen


def _folder(dump: Dump) -> str:
    return slashed(dump.source.path).rpartition("/")[0]


def _told(folder: str, used: str, how: Relation, pairs: list[tuple[Dump, Dump]]) -> Iterable[Gap]:
    help = (
        "each run's folder by itself, or --placement FILE if the numbers are ranks on a node" if how == "beside" else ""
    )
    if len(pairs) > MANY and folder != used:
        yield Gap(folder, f"{len(pairs)} dumps in it are {_SAYS[how]}: those in {used} are used", help)
        return
    for older, newer in pairs:
        yield Gap(
            older.source.path, f"an older dump of rank {older.rank}, {_SAYS[how]}: {newer.source.path} is used", help
        )


def relation(older: Dump, newer: Dump) -> Relation:
    """What the one with the earlier end is to the other, where both are said to be of one rank."""
    if not len(older) or not len(newer):
        return "earlier"
    _, one, other = np.intersect1d(older.record, newer.record, return_indices=True)
    if len(one) and (older.created[one] == newer.created[other]).mean() > 0.9:
        same = len(older) == len(newer) == len(one) and bool((older.open == newer.open).all())
        return "copy" if same else "earlier"
    begin, end = _span(newer)
    first, last = _span(older)
    overlap = min(end, last) - max(begin, first)
    return "beside" if first > 0 and begin > 0 and 2 * overlap > min(end - begin, last - first) else "before"


def _span(dump: Dump) -> tuple[int, int]:
    return int(dump.created.min()), dump.last_ns


def _too_early(chosen: dict[int, Dump]) -> dict[int, str]:
    """Dumps that end long before the others begin."""
    begins = {rank: int(dump.created.min()) for rank, dump in chosen.items() if len(dump) and dump.created.min() > 0}
    if len(begins) < 3:
        return {}
    usual = sorted(begins.values())[len(begins) // 2]
    return {
        rank: f"its last call is {(usual - chosen[rank].last_ns) / 1e9:.0f} s before the first of the others"
        for rank in begins
        if chosen[rank].last_ns < usual - STALE
    }


def _other_pace(chosen: dict[int, Dump]) -> dict[int, str]:
    """Dumps in which calls ended before the others made them, by a time that varies from call to call.

    Two clocks that differ are as far apart at each call; two runs of one program are not.
    """
    with_times = {rank: dump for rank, dump in chosen.items() if len(dump) and (dump.completed > 0).any()}
    if len(with_times) < 3:
        return {}
    lasts = sorted((dump.last_ns, rank) for rank, dump in with_times.items())
    usual = with_times[lasts[len(lasts) // 2][1]]
    made = _ends(usual)
    found = {}
    for rank, dump in with_times.items():
        if dump is usual or dump.last_ns > usual.last_ns - APART:
            continue
        distances = np.array([made[call][1] - at[1] for call, at in _ends(dump).items() if call in made], np.int64)
        lead = [made[call][0] - at[1] for call, at in _ends(dump).items() if call in made]
        if len(distances) >= LEAST and min(lead) > APART and int(np.ptp(distances)) > PACE:
            found[rank] = (
                f"the calls that it has in common with the others ended in it {min(lead) / 1e9:.0f} s before they made them"
            )
    return found


def _ends(dump: Dump) -> dict[tuple[str, int], tuple[int, int]]:
    """When each finished collective of the default group was made and ended."""
    wide = {at for at, group in enumerate(dump.groups) if group.name in ("0", "") or group.desc == "default_pg"}
    at = np.flatnonzero((dump.kind == COLLECTIVE) & ~dump.open & (dump.completed > 0) & np.isin(dump.group, [*wide]))
    return {
        ("0", int(seq)): (int(made), int(ended))
        for seq, made, ended in zip(dump.seq[at], dump.created[at], dump.completed[at], strict=True)
    }
