"""docs/faults.md: the table of the faults, and what was measured, between markers."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Sequence
from pathlib import Path

from lab.faults.draw import draw
from lab.faults.fault import Fault

MARKS = "(<!-- lab.faults: {} -->\n).*?(<!-- lab.faults: end -->)"


def faults(of: Sequence[Fault]) -> str:
    lines = ["| fault | made real by | needs | truth |", "| --- | --- | --- | --- |"]
    for fault in of:
        known = fault.truth(draw(fault, 4, 0, True))
        needs = ", ".join(need.replace("_", " ") for need in fault.needs)
        lines.append(f"| `{fault.name}` | {fault.made} | {needs} | {known.cause} |")
    return "\n".join(lines)


def measured(command: str, table: str, misses: Sequence[str]) -> str:
    """With its command, its day and its machine."""
    machine = f"{os.cpu_count()} CPUs, Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    listed = "".join(f"\n- {miss}" for miss in misses)
    wrong = f"\n\nWhat went wrong:\n{listed}" if listed else ""
    return f"`{command}`, {time.strftime('%Y-%m-%d', time.gmtime())}, {machine}:\n\n{table}{wrong}"


def write(path: Path, mark: str, text: str) -> None:
    """Between the marks. ValueError: the page has none of this name."""
    page = path.read_text(encoding="utf-8")
    changed, found = re.subn(MARKS.format(mark), lambda m: f"{m[1]}\n{text}\n\n{m[2]}", page, count=1, flags=re.S)
    if not found:
        raise ValueError(f"{path}: no marks for {mark}")
    path.write_text(changed, encoding="utf-8")
