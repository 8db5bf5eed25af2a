"""Storage, from every rank at once: how long opening, writing, fsync, reading and metadata of a path take.

What is asked runs in a process of its own (storage_probe.py): a file system that hangs takes that one along, not us.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from whichrank.preflight import limits
from whichrank.preflight.answer import Finding, names_text
from whichrank.preflight.roster import Roster

OPERATIONS = {
    "look": "asking for the folder's attributes",
    "create": "creating a file",
    "write": "writing",
    "fsync": "fsync",
    "read": "reading",
    "metadata": "asking for a file's attributes",
    "remove": "removing a file",
}
# Seconds that an operation must take before it counts as an outlier, and before it is slow by itself, for `SIZE`
FLOOR = {"look": 0.05, "create": 0.1, "write": 0.4, "fsync": 0.5, "read": 0.4, "metadata": 0.02, "remove": 0.1}
SLOW = {"look": 2.0, "create": 2.0, "write": 8.0, "fsync": 8.0, "read": 8.0, "metadata": 0.5, "remove": 2.0}
SIZE = 8 << 20  # bytes written and read by each rank
OUTLIER = 5.0  # times the middle of the others
NEARLY_FULL = 0.03
Told = Mapping[int, Mapping[str, Mapping[str, Any]]]  # rank -> path -> what was found


def probe(paths: Sequence[str], seconds: float, env: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """path -> {"took": operation -> seconds}, with "hung", "error" or "readonly" where something went wrong."""
    found = {}
    for path in paths:
        words = [path, str(SIZE)]
        said, code = limits.told("whichrank.preflight.storage_probe", words, seconds / len(paths), env or os.environ)
        told: dict[str, Any] = {"took": {row["did"]: _whole(row) for row in said if "did" in row}}
        for row in said:
            told.update(
                {
                    name: row[name]
                    for name in ("error", "operation", "readonly", "free", "total", "kind", "source")
                    if name in row
                }
            )
        begun = [row["begin"] for row in said if "begin" in row]
        if code is None:
            told["hung"] = begun[-1] if begun else "look"
        elif code and "error" not in told:
            told["error"] = f"the probe ended with {code}"
        found[path] = told
    return found


def _whole(row: Mapping[str, Any]) -> float:
    """Seconds; of writing and reading for all of `SIZE`, where the probe stopped before."""
    return float(row["seconds"]) * (SIZE / row["bytes"] if row.get("bytes") else 1.0)


def suspicious(told: Told, roster: Roster) -> bool:
    """Slow, but not hung: worth a second look before anybody is blamed."""
    return any(finding.id in ("storage_outlier", "storage_slow") for finding in judge(told, roster, 0))


def better(told: Told, again: Told) -> dict[int, dict[str, dict[str, Any]]]:
    """Of two looks the second, with the shorter time of each operation: what is slow must be slow twice."""
    found: dict[int, dict[str, dict[str, Any]]] = {}
    for rank, paths in again.items():
        for path, one in paths.items():
            before = told.get(rank, {}).get(path, {"took": {}})["took"]
            took = {name: min(seconds, before.get(name, seconds)) for name, seconds in one["took"].items()}
            found.setdefault(rank, {})[path] = {**one, "took": took}
    return found


def judge(told: Told, roster: Roster, seconds: float) -> list[Finding]:
    """seconds: that each rank was given."""
    paths = list(dict.fromkeys(path for found in told.values() for path in found))
    missing = [rank for rank in roster.ranks if rank not in told]
    found = [finding for path in paths for finding in _of_path(path, told, roster, seconds)]
    if missing:
        found.append(
            Finding(
                "storage", "stop", "storage_no_result", f"{roster.where(missing)} did not say how storage is.",
                "look at the output of these ranks", roster.nodes_of(missing), tuple(missing),
            )
        )  # fmt: skip
    return found


def _of_path(path: str, told: Told, roster: Roster, seconds: float) -> Iterator[Finding]:
    here = {rank: found[path] for rank, found in told.items() if path in found}
    hung = [rank for rank, one in here.items() if "hung" in one]
    if hung:
        operation = OPERATIONS[here[hung[0]]["hung"]]
        yield _finding(
            "stop", "storage_hangs", f"{path} hangs on {roster.where(hung)}: {operation} has not come back{f' in {seconds:.0f} s' if seconds else ''}.",
            f"on {names_text(roster.nodes_of(hung))}: {_look(path, here[hung[0]])}; leave these nodes out until it answers", roster, hung,
        )  # fmt: skip
    by_error: dict[str, list[int]] = {}
    for rank, one in here.items():
        if "error" in one:
            by_error.setdefault(f"{OPERATIONS.get(one.get('operation', ''), 'asking')}: {one['error']}", []).append(
                rank
            )
    for error, ranks in by_error.items():
        yield _finding(
            "stop", "storage_error", f"{path} fails on {roster.where(ranks)}: {error}.",
            f"mount it there, or give the right --path; {_look(path, here[ranks[0]])}", roster, ranks,
        )  # fmt: skip
    yield from _mounts(path, here, roster)
    slow = dict(_slow(here))
    for rank in hung:
        slow.pop(rank, None)
    if slow:
        yield _slow_ones(path, slow, here, roster)


def _mounts(path: str, here: Mapping[int, Mapping[str, Any]], roster: Roster) -> Iterator[Finding]:
    kinds: dict[tuple[str, str], list[int]] = {}
    for rank, one in here.items():
        if "kind" in one:
            kinds.setdefault((one["kind"], one["source"] if _shared(one["kind"]) else ""), []).append(rank)
    if len(kinds) > 1 and any(_shared(kind) for kind, _ in kinds):
        groups = sorted(kinds.items(), key=lambda item: -len(item[1]))
        odd = [rank for _, ranks in groups[1:] for rank in ranks]
        shown = ", ".join(
            f"{kind}{f' {source}' if source else ''} on {roster.where(ranks)}"
            for (kind, source), ranks in groups[::-1][:4]
        )
        yield _finding(
            "warn", "storage_differs", f"{path} is not the same file system everywhere: {shown}.",
            f"mount the shared one on {names_text(roster.nodes_of(odd))} too, if {path} is meant to be shared", roster, odd,
        )  # fmt: skip
    full = [rank for rank, one in here.items() if one.get("total") and one["free"] < NEARLY_FULL * one["total"]]
    if full:
        one = here[full[0]]
        yield _finding(
            "warn", "storage_full", f"{path} is nearly full on {roster.where(full)}: {one['free'] / 1e9:.1f} of {one['total'] / 1e9:.0f} GB free.",
            "make room before a checkpoint fails half-way", roster, full,
        )  # fmt: skip


def _shared(kind: str) -> bool:
    return kind.startswith(("nfs", "fuse", "cifs", "smb", "ceph", "9p", "virtiofs")) or kind in (
        "lustre",
        "beegfs",
        "gpfs",
        "wekafs",
    )


def _slow(here: Mapping[int, Mapping[str, Any]]) -> Iterator[tuple[int, tuple[str, float, float | None]]]:
    """rank, and its worst operation: name, seconds, and what the others take (None: too slow whatever they take)."""
    for rank, one in here.items():
        worst: tuple[float, str, float, float | None] | None = None
        for operation, took in one["took"].items():
            others = [
                other["took"][operation] for who, other in here.items() if who != rank and operation in other["took"]
            ]
            usual = statistics.quantiles(others, n=4)[0] if len(others) > 1 else min(others, default=None)
            apart = usual is not None and took > FLOOR[operation] and took > OUTLIER * usual
            if apart or took > SLOW[operation]:
                excess = took / FLOOR[operation]
                worst = max(
                    worst or (0.0, "", 0.0, None),
                    (excess, operation, took, usual if apart else None),
                    key=lambda each: each[0],
                )
        if worst:
            yield rank, worst[1:]


def _slow_ones(
    path: str,
    slow: Mapping[int, tuple[str, float, float | None]],
    here: Mapping[int, Mapping[str, Any]],
    roster: Roster,
) -> Finding:
    ranks = sorted(slow)
    operation, took, usual = max(slow.values(), key=lambda each: each[1] / FLOOR[each[0]])
    apart = usual is not None and len(slow) < len(here)
    rate = operation in ("write", "read")
    write = _rate if rate else _seconds
    where = roster.where(ranks) if apart or len(slow) < len(here) else "all ranks"
    than = f", against {write(usual or 0.0)} on the others" if apart else ""
    return _finding(
        "stop", "storage_outlier" if apart else "storage_slow",
        f"{path} is slow on {where}: {OPERATIONS[operation]} {'goes at' if rate else 'takes'} {write(took)}{than}.",
        f"on {names_text(roster.nodes_of(ranks))}: {_look(path, here[ranks[0]])}; "
        + ("its mount or its way to the storage differs from the others'" if apart else "keep data and checkpoints elsewhere, or find who loads it"),
        roster, ranks,
    )  # fmt: skip


def _rate(seconds: float) -> str:
    """Of writing or reading `SIZE`."""
    return f"{SIZE / seconds / 1e6:.2g} MB/s" if seconds > SIZE / 1e9 else f"{SIZE / max(seconds, 1e-6) / 1e9:.1f} GB/s"


def _seconds(seconds: float) -> str:
    """
    >>> _seconds(2.34), _seconds(0.0123), _seconds(0.00002)
    ('2.3 s', '12 ms', '0.02 ms')
    """
    return (
        f"{seconds:.1f} s"
        if seconds >= 1
        else f"{seconds * 1000:.0f} ms"
        if seconds >= 0.001
        else f"{seconds * 1000:.2g} ms"
    )


def _look(path: str, one: Mapping[str, Any]) -> str:
    if str(one.get("kind", "")).startswith("nfs"):
        return "nfsstat -m, dmesg | grep -i nfs"
    return f"findmnt -T {path}, dmesg | tail, iostat -x 5 2"


def _finding(grade: Any, id: str, says: str, do: str, roster: Roster, ranks: Sequence[int]) -> Finding:
    return Finding("storage", grade, id, says, do, roster.nodes_of(ranks), tuple(sorted(ranks)))
