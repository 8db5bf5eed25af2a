"""What a watcher's own files say: when it noticed, how often it spoke, what it answered in the end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Watched:
    """Seconds since the fault began; None: never. early: stalls that were called before there was a fault."""

    noticed_s: float | None
    answered_s: float | None
    early: int
    report: dict[str, Any] | None


def watched(evidence: Path, began_ns: int) -> Watched:
    """Over all nodes of an incident. In a healthy one (began_ns 0) all stalls are early."""
    events = sorted(
        (event for path in evidence.rglob("events.jsonl") for event in _events(path)),
        key=lambda event: event["wall_ns"],
    )
    stalls = [e for e in events if e["kind"] == "stall"]
    early = [e for e in stalls if not began_ns or e["wall_ns"] < began_ns]
    later = [e for e in events if began_ns and e["wall_ns"] >= began_ns]
    noticed = [e for e in later if e["kind"] == "stall" or (e["kind"] == "rank_ended" and not e.get("in_order"))]
    answers = [e for e in later if e["kind"] == "verdict" and noticed and e["wall_ns"] >= noticed[0]["wall_ns"]]
    reports = [report for path in sorted(evidence.rglob("report.json")) if (report := _report(path))]
    return Watched(_since(noticed, began_ns), _since(answers, began_ns), len(early), reports[0] if reports else None)


def _since(events: list[dict[str, Any]], began_ns: int) -> float | None:
    return (events[0]["wall_ns"] - began_ns) / 1e9 if events else None


def _events(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # cut off
        if isinstance(event, dict) and "kind" in event and "wall_ns" in event:
            found.append(event)
    return found


def _report(path: Path) -> dict[str, Any] | None:
    try:
        made = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return made if isinstance(made, dict) and made.get("verdicts") else None
