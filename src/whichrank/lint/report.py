"""Findings as text, one line and what to change below it, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from whichrank.lint.check import Finding
from whichrank.lint.files import Text, Unread
from whichrank.lint.rules import BY_CODE, Rule

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Found:
    text: Text
    finding: Finding


def lines(found: Sequence[Found], files: int) -> str:
    """ruff's order: place, code, message; then what to change."""
    rows = []
    for each in found:
        finding = each.finding
        rows.append(f"{each.text.where(finding.line)}:{finding.column}: {finding.code} {finding.message}")
        rows.append(f"    fix: {BY_CODE[finding.code].fix}")
    count = len(found)
    what = "finding" if count == 1 else "findings"
    told = (
        f"{count} {what} in {files} file{'s' * (files != 1)}"
        if count
        else f"nothing found in {files} file{'s' * (files != 1)}"
    )
    rows.append(told + (f"; more: whichrank lint --explain {found[0].finding.code}" if count else ""))
    return "\n".join(rows) + "\n"


def as_json(found: Sequence[Found], unread: Sequence[Unread], files: int) -> str:
    rows = [
        {
            "path": each.text.path, "line": each.finding.line, "column": each.finding.column, "where": each.text.where(each.finding.line),
            "code": each.finding.code, "name": BY_CODE[each.finding.code].name, "message": each.finding.message,
            "fix": BY_CODE[each.finding.code].fix,
        }
        for each in found
    ]  # fmt: skip
    told = {
        "schema_version": SCHEMA_VERSION,
        "files": files,
        "findings": rows,
        "unreadable": [{"path": each.path, "why": each.why} for each in unread],
    }
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n"


def explained(rule: Rule) -> str:
    """`--explain`: a rule in full."""
    parts = [
        f"{rule.code} {rule.name}: {rule.title}", "", rule.why, "",
        "Found:", *_indented(rule.sample), "", f"Instead ({rule.fix}):", *_indented(rule.instead), "",
        f"Silent where {rule.quiet}.", f"To silence one line: # noqa: {rule.code}",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _indented(code: str) -> list[str]:
    return [f"    {line}" for line in code.split("\n")]
