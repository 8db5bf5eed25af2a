"""What the runs of one report have in common, beside what is wrong with each: said in the report of all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from whichrank.history.answer import SORTS, Why, why
from whichrank.history.kept import history_of
from whichrank.model import Report


def compared(report: Report) -> Report:
    """The report with `shared`: the answer over its incidents. Attempts of one run are compared like runs."""
    answer = why(history_of([report]))
    if answer.findings.incidents < 3:
        return report
    return replace(report, extra={**report.extra, "shared": told(answer)})


def told(answer: Why) -> dict[str, Any]:
    """The answer in a few keys; the whole of it is `whichrank history why --json`."""
    best = answer.patterns[0] if answer.patterns else None
    return {
        "answer": best.kind if best else "undecided",
        "sort": SORTS[best.kind] if best else "undecided",
        "name": best.name if best else None,
        "confidence": round(answer.confidence, 4),
        "confounded": list(best.confounded) if best else [],
        "says": answer.says,
        "action": answer.action,
        "incidents": answer.findings.incidents,
    }
