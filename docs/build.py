#!/usr/bin/env python3
"""Build the pages that are made from code and measurements.

    python docs/build.py                 all: causes, evidence, settle.md, accuracy.md, lint.md, plan/, the picture, two tables
    python docs/build.py --robustness    also the table of lost evidence in accuracy.md (minutes)
    python docs/build.py --check         write nothing, exit 1 where a page is out of date
    python docs/build.py --quick         leave out what has to diagnose every case, or to fit anew (with --check too)

The accuracy of every case below tests/cases is measured anew each time. The picture is compared by its text: other
versions of rich draw the same text with other coordinates.
"""

from __future__ import annotations

import argparse
import html
import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
CASES = ROOT / "tests" / "cases"
EXAMPLE = "oom-two-nodes"
WIDTH = 92  # columns of the picture
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"
sys.path[:0] = [str(ROOT / "bench"), str(DOCS)]

import lint_pages  # noqa: E402
import pages as made  # noqa: E402
import plan_pages  # noqa: E402
import robustness  # noqa: E402 (bench/ and docs/ are no packages)

from whichrank.diagnosis import diagnose  # noqa: E402
from whichrank.model import FAMILIES, FAMILY  # noqa: E402

# What a set scored the first time, before any rule was changed for it: cases, commit, then the shares in percent of
# cause right, ranks right, false certainty. To see it again: check the commit out, keep tests/cases, run bench/score.py.
FIRST = {
    "round1": (22, "not recorded", 73, 82, None),
    "round2": (22, "4a57ef2", 77.3, 72.7, 4.5),
    "round3": (18, "4d93b8d", 77.8, 88.9, 5.6),
    "round4": (20, "45c39e6", 85.0, 90.0, 5.0),
    "round5": (16, "b2582bf", 93.8, 93.8, 0.0),
    "round6": (18, "3b1f10a", 66.7, 94.4, 5.6),
    "round7": (26, "cdcf393", 57.7, 65.4, 7.7),
}
# What a reader has to know of a set of cases before trusting its numbers.
SETS = {
    "public": "mostly rewritten from public bug reports, some composed. The rules were developed on these labels: "
    "these figures show that what was meant to work works, not how an unseen job fares.",
    "extra": "composed and rewritten for causes and launchers that `public` has few of. Their labels were known while "
    "the rules were written, too.",
    **dict.fromkeys(
        FIRST,
        "written by people who did not know the rules, judged once as it came (next table), and developed on "
        "afterwards.",
    ),
}


# --- accuracy


@dataclass(frozen=True, slots=True)
class Measure:
    """A column: its name, which rows count, and which of those are hits."""

    name: str
    counts: Callable[[dict[str, Any]], bool]
    hit: Callable[[dict[str, Any]], bool]

    def of(self, rows: Iterable[dict[str, Any]]) -> str:
        some = [row for row in rows if self.counts(row)]
        return f"{robustness.interval(sum(map(self.hit, some)), len(some))} of {len(some)}" if some else "-"


def _any(row: dict[str, Any]) -> bool:
    return True


def _settled(row: dict[str, Any]) -> bool:
    """Right, on a case that is no riddle: such an answer should be given firmly."""
    right = row["cause_right"] and row["culprit_right"] and row["truth"] != "undecided"
    return bool(right and row["difficulty"] in ("easy", "medium"))


MEASURES = {
    "cause": Measure("cause right", _any, lambda row: row["cause_right"]),
    "ranks": Measure("ranks right", _any, lambda row: row["culprit_right"]),
    "located": Measure(
        "ranks named", lambda row: bool(row["guilty"]), lambda row: bool(row["culprit_right"] and row["named"])
    ),
    "host": Measure("host named", lambda row: bool(row["host"]), lambda row: row["host_right"]),
    "mechanism": Measure("mechanism right", lambda row: row["mechanism"], lambda row: row["mechanism_right"]),
    "cited": Measure("proof cited", lambda row: row["truth"] not in ("none", "undecided"), lambda row: row["cited"]),
    "decisive": Measure("decisive", _settled, lambda row: row["grade"] in ("proven", "likely")),
    "false": Measure("false certainty", _any, lambda row: row["false_certainty"]),
}


def cases() -> list[Path]:
    return sorted(truth.parent for truth in CASES.rglob("truth.json"))


def measured() -> dict[str, list[dict[str, Any]]]:
    """Every case below tests/cases, diagnosed in this process and judged as bench/score.py does, by set."""
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        rows = list(pool.map(_judged, cases(), chunksize=4))
    sets: dict[str, list[dict[str, Any]]] = {name: [] for name in SETS}
    for case, row in zip(cases(), rows, strict=True):
        sets.setdefault(case.relative_to(CASES).parts[0], []).append(row)
    return {name: rows for name, rows in sets.items() if rows}


def _judged(case: Path) -> dict[str, Any]:
    truth = json.loads((case / "truth.json").read_text(encoding="utf-8"))
    row = robustness.judge(case, "intact", 0) or {}
    return {
        **row,
        "guilty": truth.get("culprit_ranks"),
        "host": truth.get("culprit_host"),
        "mechanism": bool(truth.get("mechanism")),
        "difficulty": truth.get("difficulty"),
    }


def _first_runs() -> str:
    rows = [
        "| round | cases | at commit | cause right | ranks right | false certainty |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, (cases, commit, *shares) in FIRST.items():
        cells = [
            robustness.interval(round(share * cases / 100), cases) if share is not None else "not recorded"
            for share in shares
        ]
        rows.append(f"| `{name}` | {cases} | {commit} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def accuracy_page(sets: dict[str, list[dict[str, Any]]], lost: str) -> str:
    everything = [row for rows in sets.values() for row in rows]
    described = "".join(
        f"- `{name}`, {len(rows)} cases: {SETS.get(name, 'no description yet.')}\n" for name, rows in sets.items()
    )
    return "\n".join(
        [
            "# Accuracy\n",
            made.GENERATED,
            f"{len(everything)} cases below `tests/cases`, each with the evidence that a user had and a `truth.json` "
            "that says what the answer has to be:\n",
            described,
            "So read the tables below as an upper bound. Each share stands with its 95 % interval (Wilson) and the number "
            "of cases that it is a share of.\n",
            "## On cases that nobody had seen\n",
            "What to expect of a new incident: each round as it scored the first time, before any rule was changed for it. "
            "Later rounds meet the rules that the earlier ones led to.\n",
            _first_runs(),
            "## By set\n",
            _by_set(sets),
            _LEGEND,
            "## By family of the true cause\n",
            _by_family(everything),
            "## By grade\n",
            "How often an answer was right, by how sure it said it was.\n",
            _by_grade(everything),
            "## Where it falls short\n",
            _short(sets),
            "## When evidence is missing\n",
            "`python docs/build.py --robustness` runs `bench/robustness.py`: every case again with lines dropped at "
            "random, a rank's file removed, a host's files removed, each with several seeds. Right answers may fall; "
            "false certainty must stay at or below 3 %. Seeds of one case resemble each other: the intervals are "
            "narrower than they should be.\n",
            f"{LOST[0]}\n{lost}\n{LOST[1]}\n",
            "## Measure it yourself\n",
            "```console\n$ python bench/score.py tests/cases/public     # each case; add --json OUT for all rows\n"
            "$ python bench/robustness.py\n```\n",
        ]
    )


FULL = ("cause", "ranks", "located", "host", "mechanism", "cited", "decisive")

_LEGEND = """- **cause right**: the cause is the true one, or one that the case accepts as well.
- **ranks right**: exactly the true ranks are named, and none where none is to be named. Naming fewer counts where the
  answer is "undecided" and the case accepts that.
- **ranks named**: the same, over the cases in which the evidence does tell the rank.
- **host named**: the true host is among those named.
- **mechanism right**: how the collective stopped.
- **proof cited**: all cited lines exist and hold what is quoted, and those that a careful person would cite are there.
- **decisive**: right answers on easy and medium cases that are graded likely or proven.
- **false certainty**: a wrong cause graded likely or proven, or an innocent rank named so. The number to keep low.
- **Brier**: mean squared error of the stated confidence of the cause. 0 is perfect, always saying 50 % gives 0.25.
"""


def _by_set(sets: dict[str, list[dict[str, Any]]]) -> str:
    names = [*sets, "all"] if len(sets) > 1 else list(sets)
    groups = {**sets, "all": [row for rows in sets.values() for row in rows]}
    table = [[f"`{name}`" if name in sets else name for name in names]]
    rows = [[measure.name, *(measure.of(groups[name]) for name in names)] for measure in MEASURES.values()]
    rows.append(["Brier", *(f"{_brier(groups[name]):.3f}" for name in names)])
    return _table(["", *table[0]], rows)


def _by_family(rows: Sequence[dict[str, Any]]) -> str:
    columns = [MEASURES[name] for name in ("cause", "ranks", "false")]
    body = []
    for family in FAMILIES:
        some = [row for row in rows if FAMILY[str(row["truth"])] == family]
        if some:
            body.append([f"`{family}`", *(measure.of(some) for measure in columns)])
    return _table(["family", *(measure.name for measure in columns)], body)


def _by_grade(rows: Sequence[dict[str, Any]]) -> str:
    body = []
    for grade in ("proven", "likely", "possible"):
        cause = [row for row in rows if row["grade"] == grade]
        ranks = [row for row in rows if row["rank_grade"] == grade and row["named"]]
        body.append([grade, _share(cause, "cause_right"), _share(ranks, "culprit_right")])
    return _table(["grade", "cause right", "ranks right"], body)


def _share(rows: Sequence[dict[str, Any]], key: str) -> str:
    return f"{robustness.interval(sum(bool(row[key]) for row in rows), len(rows))} of {len(rows)}" if rows else "-"


def _short(sets: dict[str, list[dict[str, Any]]]) -> str:
    """Every case that is no full hit, and in what."""
    body = []
    for name, rows in sets.items():
        for row in rows:
            missed = [MEASURES[key].name for key in FULL if MEASURES[key].counts(row) and not MEASURES[key].hit(row)]
            if missed:
                truth, answer = _answer(row["truth"], row["guilty"]), _answer(row["cause"], row["named"])
                sure = f"cause {row['grade']}, ranks {row['rank_grade']}"
                body.append([f"`{name}/{row['case']}`", truth, answer, sure, ", ".join(missed)])
    return _table(["case", "truth", "answer", "graded", "not"], body) if body else "Nowhere in these sets.\n"


def _answer(cause: str, ranks: Sequence[int] | None) -> str:
    named = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else "no rank"
    return f"`{cause}`, {named}"


def _brier(rows: Sequence[dict[str, Any]]) -> float:
    told = [row for row in rows if row["confidence"] is not None]
    return sum((row["confidence"] - bool(row["cause_right"])) ** 2 for row in told) / max(1, len(told))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def readme_table(sets: dict[str, list[dict[str, Any]]]) -> str:
    """What to expect of a new case first, then what the cases in the repository score now."""
    columns = [MEASURES[name] for name in ("cause", "ranks", "false")]
    fresh = [(cases, shares) for cases, _, *shares in FIRST.values() if None not in shares]
    total = sum(cases for cases, _ in fresh)
    hits = [round(sum(shares[column] * cases / 100 for cases, shares in fresh)) for column in range(3)]
    first = [f"{robustness.interval(hit, total)} of {total}" for hit in hits]
    everything = [row for some in sets.values() for row in some]
    rows = [
        ["never seen before (rounds of new cases, judged once as they came)", *first],
        ["all in `tests/cases`, on which the rules were developed", *(measure.of(everything) for measure in columns)],
    ]
    return _table(["cases", *(measure.name for measure in columns)], rows).rstrip("\n")


# --- parts of pages that are kept or replaced


LOST = ("<!-- robustness -->", "<!-- /robustness -->")
TABLE = ("<!-- accuracy -->", "<!-- /accuracy -->")
FORMATS = ("<!-- formats -->", "<!-- /formats -->")
NOT_YET = "Not measured yet."


def between(text: str, marks: tuple[str, str], default: str = "") -> str:
    found = re.search(f"{re.escape(marks[0])}\n(.*?)\n{re.escape(marks[1])}", text, re.S)
    return found[1] if found else default


def replaced(text: str, marks: tuple[str, str], new: str) -> str:
    before, _, rest = text.partition(marks[0])
    return f"{before}{marks[0]}\n{new}\n{marks[1]}{rest.partition(marks[1])[2]}" if rest else text


def lost_evidence() -> str:
    """The table that bench/robustness.py prints."""
    command = [sys.executable, str(ROOT / "bench" / "robustness.py"), "--jobs", str(os.cpu_count() or 1)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if "| intact |" not in run.stdout:
        sys.exit(f"docs/build.py: bench/robustness.py failed\n{run.stderr}")
    return run.stdout.strip()


# --- the picture


def picture() -> str:
    """A real report, as a terminal of `WIDTH` columns shows it, up to its table of ranks."""
    from rich.console import Console

    from whichrank.report import terminal
    from whichrank.report.columns import show

    os.environ.pop("NO_COLOR", None)
    report = diagnose([str(ROOT / "examples" / EXAMPLE)])
    console = Console(
        record=True,
        width=WIDTH,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    console.print(f"[bold]$ whichrank {EXAMPLE}/[/]", highlight=False)
    show(_until(terminal.lines(report, WIDTH), "timeline"), console)
    console.print()
    svg = console.export_svg(title="whichrank", unique_id="whichrank")
    # No fonts from the net: whoever opens the file alone must not fetch anything.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.S)
    return svg.replace(
        "Fira Code, monospace", "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace"
    )


def _until(lines: Iterable[Any], heading: str) -> Iterator[Any]:
    held: list[Any] = []
    for line in lines:
        if line.plain.split("  ")[0].strip() == heading and not line.plain.startswith(" "):
            return
        if not line.plain.strip():  # the empty line before the heading goes with it
            held.append(line)
            continue
        yield from held
        held.clear()
        yield line


def text_of(svg: str) -> str:
    """What a picture says, without how it is drawn."""
    return "\n".join(
        html.unescape(text).replace("\xa0", " ").rstrip() for text in re.findall(r"<text[^>]*>([^<]*)<", svg)
    )


# --- all of them


def pages(quick: bool, robust: bool) -> Iterator[tuple[Path, str]]:
    yield from made.pages()
    evidence = DOCS / "evidence.md"
    yield evidence, replaced(_read(evidence), FORMATS, made.evidence_table(made.proofs(cases())))
    yield DOCS / "img" / "verdict.svg", picture()
    yield from plan_pages.pages(measure=not quick)
    yield from lint_pages.pages()
    if quick:
        return
    sets = measured()
    accuracy = DOCS / "accuracy.md"
    lost = lost_evidence() if robust else between(_read(accuracy), LOST, NOT_YET)
    yield accuracy, accuracy_page(sets, lost)
    readme = ROOT / "README.md"
    yield readme, replaced(_read(readme), TABLE, readme_table(sets))


def stray(known: Collection[Path]) -> list[Path]:
    """Pages of causes and evidence that nothing makes any more."""
    return [
        path for folder in ("causes", "evidence") for path in sorted((DOCS / folder).glob("*.md")) if path not in known
    ]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def same(path: Path, new: str) -> bool:
    old = _read(path)
    return text_of(old) == text_of(new) if path.suffix == ".svg" else old == new


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 where a page is out of date")
    parser.add_argument("--quick", action="store_true", help="leave out what has to diagnose every case")
    parser.add_argument("--robustness", action="store_true", help="also measure with evidence missing (minutes)")
    args = parser.parse_args()
    done = Counter[str]()
    known = set()
    for path, text in pages(args.quick, args.robustness):
        known.add(path)
        if same(path, text):
            done["up to date"] += 1
            continue
        done["out of date" if args.check else "written"] += 1
        print(f"{'out of date' if args.check else 'written'}: {path.relative_to(ROOT)}")
        if not args.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
    for path in stray(known):
        done["out of date" if args.check else "removed"] += 1
        print(f"{'nothing makes it any more' if args.check else 'removed'}: {path.relative_to(ROOT)}")
        if not args.check:
            path.unlink()
    if args.quick:
        print("left out: docs/accuracy.md, the table in README.md, measured points in docs/plan (--quick)")
    print(", ".join(f"{count} {what}" for what, count in done.items()))
    if done["out of date"]:
        sys.exit("run: python docs/build.py")


if __name__ == "__main__":
    main()
