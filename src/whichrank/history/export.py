"""A history as a table for other tools: CSV, or Parquet where pyarrow is installed. One row for each incident."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from whichrank.errors import UsageProblem
from whichrank.history.incident import Incident, Run

INCIDENT = tuple(field.name for field in fields(Incident))
COLUMNS = ("key", *INCIDENT, "run_label", "run_began", "run_ended", "world_size", "hosts")
TIMES = ("at", "run_began", "run_ended")
_WHOLE = ("attempt", "rank", "local_rank", "step", "from_step", "shards", "world_size")


def export(path: Path, incidents: Sequence[Incident], runs: Sequence[Run]) -> int:
    """Write all incidents, and for each run without one a row with its placement; how many rows that are.

    `.parquet` writes Parquet, anything else CSV (UTF-8; `-` is for the caller). Raises UsageProblem.
    """
    rows = list(_rows(incidents, runs))
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            _parquet(path, rows)
        else:
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(COLUMNS)
                writer.writerows([_cell(row[name]) for name in COLUMNS] for row in rows)
    except OSError as error:
        raise UsageProblem(f"cannot write {path}: {error.strerror or error}") from error
    return len(rows)


def _rows(incidents: Sequence[Incident], runs: Sequence[Run]) -> list[dict[str, Any]]:
    known = {run.id: run for run in runs}
    rows = []
    for one in sorted(incidents, key=lambda one: (one.at or 0.0, one.key)):
        own = {name: getattr(one, name) for name in INCIDENT} | {"key": one.key}
        rows.append(_with_run(own, known.get(one.run)))
    failed = {one.run for one in incidents}
    rows += [_with_run({"run": run.id, "cause": "none"}, run) for run in runs if run.id not in failed]
    return rows


def _with_run(row: dict[str, Any], run: Run | None) -> dict[str, Any]:
    row = {name: row.get(name) for name in COLUMNS}
    if run is not None:
        row |= {"run_label": run.label, "run_began": run.began, "run_ended": run.ended, "world_size": run.world_size}
        row["hosts"] = " ".join(f"{host}*{count}" for host, count in run.placement if host)
    for name in TIMES:
        row[name] = None if row[name] is None else datetime.fromtimestamp(row[name], timezone.utc)
    return row


def _cell(value: Any) -> str:
    """As text. A spreadsheet takes what begins so for a formula: log text must not become one."""
    if isinstance(value, datetime):
        return value.isoformat()
    text = "" if value is None else str(value)
    return f"'{text}" if isinstance(value, str) and text[:1] in ("=", "+", "-", "@", "\t") else text


def _parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise UsageProblem("Parquet needs pyarrow: pip install 'whichrank[history]'; or write FILE.csv") from error
    kinds = {
        name: pa.timestamp("us", tz="UTC") if name in TIMES else pa.int64() if name in _WHOLE else pa.string()
        for name in COLUMNS
    }
    kinds["confidence"] = pa.float64()
    table = pa.table({name: pa.array([row[name] for row in rows], type=kind) for name, kind in kinds.items()})
    pq.write_table(table, path)
