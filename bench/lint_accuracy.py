#!/usr/bin/env python3
"""How often `whichrank lint` is right on tests/lint/corpus: precision and recall, open and held-back files apart, by kind.

    python bench/lint_accuracy.py              both parts and all, with 95 % intervals (Wilson)
    python bench/lint_accuracy.py --misses     also what was missed or wrong in the open files
    python bench/lint_accuracy.py --markdown   as docs/lint.md shows it

The rules of scoring are those in the corpus's truth.toml: a finding is hit by one report or more on its line, or one of
its also_lines, under its kind or one of its also_kinds; reports on tolerated lines count neither way; any other report is
a false alarm. Nothing of the held-back files is ever printed but counts.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from whichrank.lint import lint
from whichrank.lint.rules import BY_CODE

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "lint" / "corpus"
PARTS = ("open", "held back")
LEAST = {"precision": 0.95, "recall": 0.90}


@dataclass(slots=True)
class Score:
    """Counts of one part of the corpus, by kind."""

    hit: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)

    def __add__(self, other: Score) -> Score:
        return Score(self.hit + other.hit, self.missed + other.missed, self.wrong + other.wrong, self.told + other.told)

    def precision(self, kind: str | None = None) -> tuple[int, int]:
        hit, wrong = _count(self.hit, kind), _count(self.wrong, kind)
        return hit, hit + wrong

    def recall(self, kind: str | None = None) -> tuple[int, int]:
        hit, missed = _count(self.hit, kind), _count(self.missed, kind)
        return hit, hit + missed


def _count(counts: Counter[str], kind: str | None) -> int:
    return counts[kind] if kind else sum(counts.values())


def measured() -> dict[str, Score]:
    truth = tomllib.loads((CORPUS / "truth.toml").read_text(encoding="utf-8"))
    scores = {part: Score() for part in PARTS}
    for entry in truth["file"]:
        judge(entry, scores[PARTS[entry["held_back"]]])
    return scores


def judge(entry: dict[str, Any], score: Score) -> None:
    """One file's reports against its truth."""
    reports = [each.finding for each in lint([str(CORPUS / entry["path"])]).found]
    used: set[Any] = set()
    for finding in entry.get("finding", []):
        lines = {finding["line"], *finding.get("also_lines", [])}
        kinds = {finding["kind"], *finding.get("also_kinds", [])}
        hits = {each for each in reports if each.line in lines and BY_CODE[each.code].name in kinds}
        used |= hits
        (score.hit if hits else score.missed)[finding["kind"]] += 1
        if not hits:
            score.told.append(f"missed  {entry['path']}:{finding['line']} {finding['kind']}")
    for each in reports:
        if each not in used and each.line not in entry.get("tolerated_lines", []):
            score.wrong[BY_CODE[each.code].name] += 1
            score.told.append(f"wrong   {entry['path']}:{each.line} {BY_CODE[each.code].name}")


def share(hits: int, of: int) -> str:
    """`96.2 % (87.0 to 98.9) of 53`: Wilson's interval."""
    if not of:
        return "-"
    z, p = 1.959964, hits / of
    centre, spread = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    low, high = (max(0.0, min(1.0, (centre + sign * spread) / (1 + z * z / of))) for sign in (-1, 1))
    return f"{100 * p:.1f} % ({100 * low:.1f} to {100 * high:.1f}) of {of}"


def table(scores: dict[str, Score]) -> list[list[str]]:
    """The rows: each part, then each kind over all parts."""
    everything = scores["open"] + scores["held back"]
    rows = [
        [name, share(*score.precision()), share(*score.recall())]
        for name, score in [*scores.items(), ("all", everything)]
    ]
    kinds = sorted({*everything.hit, *everything.missed, *everything.wrong})
    rows += [[kind, share(*everything.precision(kind)), share(*everything.recall(kind))] for kind in kinds]
    return rows


def markdown(scores: dict[str, Score]) -> str:
    lines = ["| files | precision | recall |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in table(scores))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--misses", action="store_true", help="also what was missed or wrong in the open files")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    args = parser.parse_args()
    scores = measured()
    if args.markdown:
        print(markdown(scores))
    else:
        for row in table(scores):
            print(f"{row[0]:28} precision {row[1]:34} recall {row[2]}")
    if args.misses:
        print(*scores["open"].told, sep="\n")
    everything = scores["open"] + scores["held back"]
    shares = {"precision": everything.precision(), "recall": everything.recall()}
    low = [
        f"{name} {share(*found)}, asked for: {LEAST[name]:.0%}"
        for name, found in shares.items()
        if found[0] < LEAST[name] * found[1]
    ]
    for each in low:
        print(f"bar missed: {each}", file=sys.stderr)
    sys.exit(1 if low else 0)


if __name__ == "__main__":
    main()
