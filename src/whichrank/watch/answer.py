"""The diagnosis of a run directory, in a process of its own: `python -m whichrank.watch.answer RUN`.

Writes report.json, report.md and incidents.json (what a history keeps of it) into it and prints what the watcher tells, one JSON object. Whatever is wrong with a file
in there can stop this process only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whichrank.watch import limited

SECONDS = 25.0
WIDEST = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verdict comes down to in five lines."""

    cause: str
    grade: str
    rank_grade: str
    culprits: tuple[int, ...]
    says: str
    proof: str = ""
    now: str = ""
    exit_code: int = 1

    @property
    def key(self) -> tuple[object, ...]:
        """What makes it another answer than the one before."""
        return self.cause, self.culprits, self.grade


def ask(run: Path, seconds: float = SECONDS) -> Answer | None:
    """None where no answer came in time."""
    package = str(Path(__file__).parents[2])
    known = os.environ.get("PYTHONPATH")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([package, *([known] if known else [])])}
    env.pop("WHICHRANK_RUN", None)
    ran = limited.run((sys.executable, "-m", "whichrank.watch.answer", str(run)), seconds, env)
    try:
        said: Mapping[str, Any] = json.loads(ran.out)
        return Answer(**{**said, "culprits": tuple(said["culprits"])})
    except (ValueError, TypeError, KeyError):
        return None


def main(run: Path) -> None:
    from whichrank.diagnosis import diagnose
    from whichrank.history import rundirs
    from whichrank.history.kept import kept
    from whichrank.history.sources import located
    from whichrank.report import json_report, markdown
    from whichrank.report.printable import printable

    report = diagnose([str(run)])
    for name, data in (
        ("report.json", json_report.render(report)),
        ("report.md", markdown.render(report).encode("utf-8", "replace")),
        (rundirs.INCIDENTS, rundirs.written(located(kept(report)[1], [str(run)]))),
    ):
        part = run / f"{name}.part"
        part.write_bytes(data)
        part.replace(run / name)
    first = report.verdicts[0]
    proof = next(iter(first.because), None)
    place = f"{proof.source}{f':{proof.line}' if proof.line is not None else ''}" if proof else ""
    said = {
        "cause": first.cause,
        "grade": first.grade,
        "rank_grade": first.rank_grade,
        "culprits": list(first.culprit_ranks),
        "says": printable(first.says)[:WIDEST],
        "proof": printable(f"{place}  {proof.excerpt.strip()}")[:WIDEST] if proof else "",
        "now": printable(first.action.says)[:WIDEST],
        "exit_code": report.exit_code,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
