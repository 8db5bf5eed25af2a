"""The grid of a report without dumps: each rank where its log last saw it. Logs name few calls, so most cells are empty."""

from __future__ import annotations

from whichrank.model import RankRow, Report
from whichrank.ranges import ranks as rank_ranges
from whichrank.report.condense import operation
from whichrank.report.html.grid import ABSENT, UNKNOWN, WAITING, Grid, Grids, ranges, runs
from whichrank.report.printable import many, printable

BEFORE = 8  # columns before the first number that a rank was seen at
WIDEST = 400
_STATES = {"waiting": WAITING, "culprit": ABSENT, "dead": ABSENT, "behind": ABSENT, "silent": ABSENT, "ahead": WAITING}


def grids_of_report(report: Report, culprits: frozenset[int]) -> Grids:
    """One grid for each group of which numbers are known."""
    found = Grids()
    rows: dict[str, dict[int, RankRow]] = {}
    for row in report.ranks:
        if row.seq is not None:
            rows.setdefault(row.group or "", {})[row.rank] = row
    main = report.verdicts[0].group or "" if report.verdicts else ""
    numbers: dict[str, int] = {}
    for name in sorted(rows, key=lambda name: (name != main, name)):
        found.grids.append(_grid(len(found.grids), name, rows[name], report, culprits, numbers))
    found.calls = [(op, "", "") for op in numbers]
    return found


def _grid(
    number: int, name: str, rows: dict[int, RankRow], report: Report, culprits: frozenset[int], numbers: dict[str, int]
) -> Grid:
    verdict = report.verdicts[0] if report.verdicts else None
    members = set(rows)
    if verdict is not None and name == (verdict.group or ""):
        members |= {*verdict.group_ranks, *culprits}
    ordered = sorted(members)
    seqs = [row.seq for row in rows.values() if row.seq is not None]
    hi, lo = max(seqs), max(0, min(seqs) - BEFORE, max(seqs) - WIDEST)
    ops: dict[int, int] = {}
    for row in rows.values():
        if row.seq is not None and row.op:
            ops.setdefault(row.seq - lo, numbers.setdefault(printable(row.op), len(numbers)))
    patterns: dict[tuple[str, str, bool], int] = {}
    of = []
    for rank in ordered:
        row_of = rows.get(rank)
        key = (_pattern(row_of, lo, hi, rank in culprits), _says(row_of), rank in culprits)
        of.append(patterns.setdefault(key, len(patterns)))
    return Grid(
        number,
        printable(name) or "group not named",
        many(len(ordered), "rank"),
        rank_ranges(ordered, 30),
        tuple(ranges(ordered)),
        lo,
        tuple(runs([ops.get(column, -1) for column in range(hi - lo + 1)])),
        tuple(pattern for pattern, _, _ in patterns),
        tuple(runs(of)),
        tuple(says for _, says, _ in patterns),
        any(row.state == "waiting" for row in rows.values()),
    )


def _pattern(row: RankRow | None, lo: int, hi: int, culprit: bool) -> str:
    """Unknown up to where the rank was seen; what it did not reach as far as its state tells that."""
    if row is None or row.seq is None:
        return f"{hi - lo}{UNKNOWN}1{ABSENT}" if culprit and hi > lo else f"{hi - lo + 1}{UNKNOWN}"
    state = _STATES.get(row.state, UNKNOWN)
    at = max(0, row.seq - lo)
    if state == WAITING:
        parts = [(at, UNKNOWN), (1, WAITING), (hi - lo - at, ABSENT)]
    else:  # the number is that of its last call, or of the one that it did not make
        reached = at if row.op else at + 1
        parts = [(min(reached, hi - lo + 1), UNKNOWN), (hi - lo + 1 - reached, state)]
    return "".join(f"{count}{letter}" for count, letter in parts if count > 0)


def _says(row: RankRow | None) -> str:
    if row is None:
        return "nothing here tells where it stands"
    place = operation(row.op, row.seq, None)
    return ", ".join(filter(None, (f"{row.state}: {place}" if place else row.state, printable(row.says))))
