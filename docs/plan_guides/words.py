"""Tables and amounts in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.plan.quantities import money


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| :-- |{' --: |' * (len(head) - 1)}"]
    lines += [f"| {' | '.join(cell.replace('$', chr(92) + '$') for cell in row)} |" for row in rows]
    return "\n".join(lines)


def dollars(value: float) -> str:
    return money(value).replace("$", "\\$")
