"""Dumps that list no members of groups: the conclusion in every layout that fits them, where they all come to the same.

A layout that leaves fewer ends of waiting explains more: one fault is likelier than several at once. Of those that
explain most, each is reasoned through like a job whose groups are known; an answer counts only if none contradicts it.
"""

from __future__ import annotations

from dataclasses import replace

from whichrank.findings.dumps.roots import roots
from whichrank.findings.dumps.trace import WEAK, Traced, trace
from whichrank.findings.dumps.waits import waits
from whichrank.job.collectives import Collectives
from whichrank.job.layouts import layouts

MOST = 12  # layouts that are reasoned through; of more of them a sample
RANKS = 6000  # of all these together
AGREED = 0.8  # what such a conclusion is worth at most
_FIRM = ("gpu_hang", "desync", "mismatch", "deadlock")  # told by calls within a group, whichever layout is true


def concluded(table: Collectives, hung: bool = False) -> tuple[Traced, Collectives]:
    """The conclusion, and the table whose groups it speaks of. hung: as for `trace`."""
    plain = trace(table, hung)
    settled = bool(plain.culprits) and plain.mechanism != "gpu_hang"
    if settled or plain.fresh or not any(group.own for group in table.groups):
        return plain, table
    best = _explaining(layouts(table))
    few = max(1, min(MOST, RANKS // table.world))
    sampled = best[:: -(-len(best) // few)] if best else []
    traced = [(trace(layout, hung), layout) for layout in sampled]
    hangs = [(found, layout) for found, layout in traced if found.mechanism != "no_hang"]
    if len({(found.mechanism, found.culprits) for found, _ in hangs}) != 1 or not _says_more(*hangs[0], plain):
        return _doubted(plain, hangs), table
    found, layout = hangs[0]
    firm = len(hangs) == len(best) and found.mechanism in _FIRM and plain.mechanism != "no_hang"
    if table.missing or (found.departure is not None and found.departure.by_history):
        firm = False  # who left no dump would explain as much
    most = AGREED if firm else WEAK
    return replace(found, sure=min(found.sure, most), mechanism_sure=min(found.mechanism_sure, most)), layout


def _says_more(found: Traced, layout: Collectives, plain: Traced) -> bool:
    if plain.mechanism == "no_hang":
        return found.mechanism == "desync" and bool(found.culprits)
    if found.mechanism == "gpu_hang" and len(found.culprits) > 1:
        return False  # a call that ended on some members and not on others: a wrong layout looks so
    return bool(found.culprits) or found.mechanism in ("mismatch", "deadlock")


def _doubted(plain: Traced, hangs: list[tuple[Traced, Collectives]]) -> Traced:
    """What every layout contradicts is not likely any more; nor are several GPUs at once, whose groups are not known."""
    several = plain.mechanism == "gpu_hang" and len(plain.culprits) > 1
    if not several and (not hangs or any(found.mechanism == plain.mechanism for found, _ in hangs)):
        return plain
    if plain.mechanism not in ("mismatch", "desync", "gpu_hang"):
        return plain
    return replace(plain, sure=min(plain.sure, WEAK), mechanism_sure=min(plain.mechanism_sure, WEAK))


def _explaining(tables: list[Collectives]) -> list[Collectives]:
    """Those in which all waiting has the fewest ends."""
    ends = []
    for table in tables:
        found = waits(table)
        ends.append(len(roots(found)) if found.held else 0)
    return [table for table, count in zip(tables, ends, strict=True) if count == min(ends)]
