"""Judges the answers to incidents, and prints the table. The judge is bench/score.py's."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.score import BROKEN, judge

from lab.faults.watched import watched

SOURCE = Path(__file__).parents[2] / "src"
PATIENCE = 120.0  # seconds for one answer
Row = dict[str, Any]


def wilson(hits: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a share."""
    if not of:
        return 0.0, 1.0
    share, spread = hits / of, z * z / of
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / of + spread / (4 * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def diagnosed(folder: Path) -> dict[str, Any]:
    """`whichrank --json evidence`, asked from within the incident's folder: the evidence's path says nothing."""
    ran = subprocess.run(
        [sys.executable, "-m", "whichrank", "diagnose", "--json", "evidence"],
        cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])},
    )  # fmt: skip
    made: dict[str, Any] = json.loads(ran.stdout)
    (folder / "report.json").write_text(ran.stdout, encoding="utf-8")
    return made


def scored(folder: Path) -> Row:
    """One incident on disk. Under a watcher its last report counts, else what `diagnose` says of what it left."""
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    drawn, evidence = truth["drawn"], folder / "evidence"
    row: Row = {
        "id": truth["id"], "fault": drawn["fault"], "variant": drawn["variant"], "world": drawn["world"],
        "healthy": not truth["began_ns"], "truth": truth["cause"], "guilty": truth["culprit_ranks"],
        "watched": drawn["watched"], "noticed_s": None, "answered_s": None, "early": 0,
    }  # fmt: skip
    report = None
    if drawn["watched"]:
        seen = watched(evidence, truth["began_ns"])
        row |= {"noticed_s": seen.noticed_s, "answered_s": seen.answered_s, "early": seen.early}
        report = seen.report
    try:
        report = report or diagnosed(folder)
        row |= judge(truth, report, evidence) | {"mechanism": report["verdicts"][0].get("mechanism")}
    except (subprocess.TimeoutExpired, KeyError, IndexError, TypeError, ValueError, AttributeError) as problem:
        row |= {**BROKEN, "mechanism": "-", "error": f"{type(problem).__name__}: {problem}"}
    return row


def share(rows: Sequence[Row], key: str) -> str:
    hits = sum(bool(row[key]) for row in rows)
    low, high = wilson(hits, len(rows))
    return f"{hits}/{len(rows)} ({low:.0%}-{high:.0%})"


def seconds(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.1f}, {max(known):.1f}" if known else ""


def line(name: str, rows: Sequence[Row], live: bool) -> str:
    sound = all(row["healthy"] for row in rows)
    undecided = sum(row["cause"] == "undecided" for row in rows)
    cells = [
        name, share(rows, "culprit_right"), share(rows, "cause_right"), str(undecided or ""),
        share(rows, "mechanism_right"), str(sum(bool(row["false_certainty"]) for row in rows) or ""),
    ]  # fmt: skip
    if live:
        missed = "" if sound else str(sum(row["noticed_s"] is None for row in rows) or "")
        cells += [seconds(r["noticed_s"] for r in rows), seconds(r["answered_s"] for r in rows), missed]
        cells += [str(sum(row["early"] for row in rows) or "")]
    return f"| {' | '.join(cells)} |"


def table(rows: Sequence[Row]) -> str:
    """Markdown: a line for each fault and world, then for the faults, the healthy jobs, and each world over all faults."""
    live = any(row["watched"] for row in rows)
    head = ["fault, ranks", "right ranks", "right cause", 'said "undecided"', "right mechanism", "false certainty"]
    if live:
        head += ["noticed after s: median, most", "answered after s", "never noticed", "false alarms"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]

    def group(name: str, wanted: Callable[[Row], bool]) -> None:
        if chosen := [row for row in rows if wanted(row)]:
            lines.append(line(name, chosen, live))

    for fault, world in dict.fromkeys((row["fault"], row["world"]) for row in rows):
        group(f"`{fault}`, {world}", lambda row, f=fault, w=world: (row["fault"], row["world"]) == (f, w))  # type: ignore[misc]
    for world in sorted({row["world"] for row in rows}):
        group(f"all faults, {world}", lambda row, w=world: not row["healthy"] and row["world"] == w)  # type: ignore[misc]
    group("**all faults**", lambda row: not row["healthy"])
    group("**healthy**", lambda row: row["healthy"])
    return "\n".join(lines)


def misses(rows: Iterable[Row]) -> Iterable[str]:
    """What went wrong, one line each."""
    for row in rows:
        wrong = [key for key in ("culprit_right", "cause_right", "mechanism_right") if not row[key]]
        wrong += [key for key in ("false_certainty", "early") if row[key]]
        if wrong:
            said = row.get("error") or (
                f"{row['cause']} ({row['grade']}) {row['named']} ({row['rank_grade']}) {row['mechanism']}"
            )
            what = f"{row['id']} {row['variant']}".strip()
            yield f"{what}: {row['truth']} {row['guilty']}, answered {said}: {', '.join(wrong)}"
