#!/usr/bin/env python3
"""The same evidence as collectors deliver it: is the verdict the same?

    python bench/envelopes.py [CASES…] [--only CASE] [--envelope NAME] [--merged] [--jobs 2]

Every log of every case (what ranks, launchers and the kernel print) is put into each wrapping that could have carried
it (wrapping.py) and diagnosed. Tables, notes and stacks that a person collected stay as they are; so does a kernel log
that only counts from boot. File names are kept, as collectors keep them. Compared with the bare case: cause,
mechanism, culprits, and whether cause and ranks are graded likely or better.

Each line is written when its own stamp says; one without a stamp a millisecond after the line before it, a watchdog's
as long after as it says that it waited.

--merged: all logs of a case in one file, told apart by the collector's labels. For cases with several logs. What only
their names told is lost then where no label says it: which attempt, which host. Verdicts may fall there, not change.

Prints a markdown table and what differs; exits 1 if anything does.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from robustness import files_of, laid_out, text_of
from wrapping import MERGED, PER_FILE, Log

from whichrank.diagnosis import report_on
from whichrank.evidence import Evidence, decode, envelope, read, stamps
from whichrank.job.places import with_hosts
from whichrank.model import Report

DEFAULT = [Path(__file__).parent.parent / "tests" / "cases" / "public"]
BASE = 1785402000_000_000_000  # where no line tells a date: 2026-07-30T09:00:00Z
DAY = 86_400_000_000_000
_RAN = re.compile(r" ran for (\d+) milliseconds before timing out")


@dataclass
class Case:
    name: str
    logs: list[Log] = field(default_factory=list)
    rest: dict[str, bytes] = field(default_factory=dict)


def case_of(folder: Path) -> tuple[Case, dict[str, Any]]:
    """A case taken apart into logs and the rest, and its bare verdict."""
    files = {path.relative_to(folder).as_posix().removesuffix(".gz"): text_of(path) for path in files_of(folder)}
    evidence = diagnosed(files)
    case = Case(folder.name)
    kinds = {source.path.removeprefix("job/"): source.kind for source in evidence.sources}
    facts, said, _ = with_hosts(evidence.facts, evidence.said, evidence.sources)
    hosts: dict[str, set[str]] = {}
    for item in (*facts, *said):
        if item.who.host:
            hosts.setdefault(item.spot.source.path.removeprefix("job/"), set()).add(item.who.host)
    years = [int(year) for data in files.values() for year in re.findall(rb"\b(20[12]\d)-\d\d-\d\d", data)[:1]]
    for name, data in files.items():
        text = decode(data)
        kind = kinds.get(name)
        if text is None or kind not in ("training", "unknown", "kernel"):
            case.rest[name] = data
            continue
        (part,) = envelope.peel(text, None)
        lines = [line.rstrip("\r") for line in part.lines]
        if kind == "kernel" and not any((found := stamps.find(line)) and found[1] == "wall" for line in lines):
            case.rest[name] = data
            continue
        times = [at or 0 for at in part.times] if part.times else written(lines, max(years, default=2026))
        own = hosts.get(name, set())
        log = Log(name, lines, times, next(iter(own)) if len(own) == 1 else "", kind == "kernel", text.endswith("\n"))
        case.logs.append(log)
    return case, answer(report_on(evidence))


def written(lines: list[str], year: int) -> list[int]:
    """When each line was written."""
    own = [stamps.find(line, year) for line in lines]
    dated = next((found[0] for found in own if found and found[1] == "wall"), None)
    day = dated // DAY * DAY if dated is not None else BASE // DAY * DAY
    marks = [_on(found, day) for found in own]
    first = next((at for at in marks if at is not None), BASE)
    times: list[int] = []
    last = first - 1_000_000
    for number, (line, mark) in enumerate(zip(lines, marks, strict=True)):
        ran = _RAN.search(line)
        at = last + 1_000_000
        coming = [later for later in marks[number + 1 : number + 60] if later is not None][:3]
        if mark is not None and sum(later < mark - 3600 * 10**9 for later in coming) < 2:  # no quotation
            back = mark < last - 2_000_000_000 and coming and all(later < last - 2_000_000_000 for later in coming)
            at = mark + noise(number) if back else max(mark + noise(number), last + 1000)
        elif ran and not any(mark is not None for mark in marks[number : number + 30]):
            at = max(at, first + int(ran[1]) * 1_000_000)
        times.append(at)
        last = at
    return times


def noise(number: int) -> int:
    """What a collector's clock shows beyond the stamp that the program printed, in ns."""
    return number * 7919 % 999_983


def _on(found: tuple[int, str] | None, day: int) -> int | None:
    if found is None or found[1] not in ("wall", "day"):
        return None
    return found[0] + day if found[1] == "day" else found[0]


def diagnosed(files: dict[str, bytes]) -> Evidence:
    with laid_out(files) as evidence:
        return read([str(evidence)])


def answer(report: Report) -> dict[str, Any]:
    verdict = report.verdicts[0]
    return {
        "cause": verdict.cause,
        "mechanism": verdict.mechanism,
        "culprits": sorted({culprit.rank for culprit in verdict.culprits if culprit.rank is not None}),
        "sure of the cause": verdict.grade in ("proven", "likely"),
        "sure of the ranks": verdict.rank_grade in ("proven", "likely"),
    }


def wrapped(case: Case, number: int) -> dict[str, bytes] | None:
    """The case's files in an envelope; None where there is nothing to put into it."""
    wrapping = PER_FILE[number]
    files = dict(case.rest)
    count = 0
    for log in case.logs:
        if log.lines and (wrapping.kernel or not log.kernel):
            files.update(wrapping(log))
            count += 1
        else:
            files[log.name] = ("\n".join(log.lines) + "\n" * log.whole).encode()
    return files if count else None


def all_in_one(case: Case, name: str) -> dict[str, bytes] | None:
    logs = [log for log in case.logs if not log.kernel and log.lines]
    if len(logs) < 2 or any(not log.whole for log in logs) or len({log.pod for log in logs}) < len(logs):
        return None
    rest = {log.name: "\n".join(log.lines).encode() for log in case.logs if log.kernel}
    return {**case.rest, **rest, "all.log": MERGED[name](logs).encode("utf-8", "surrogateescape")}


def one(task: tuple[Path, list[str], bool]) -> list[tuple[str, str, str]]:
    """(case, envelope, what differs or "") for each envelope."""
    folder, chosen, together = task
    case, bare = case_of(folder)
    rows = []
    names = MERGED if together else [wrapping.name for wrapping in PER_FILE]
    for number, name in enumerate(names):
        if chosen and name not in chosen:
            continue
        files = all_in_one(case, name) if together else wrapped(case, number)
        if files is not None:
            found = answer(report_on(diagnosed(files)))
            rows.append(
                (
                    case.name,
                    name,
                    "; ".join(f"{key} {bare[key]} -> {found[key]}" for key in bare if bare[key] != found[key]),
                )
            )
    return rows


def compared(
    roots: list[Path], only: str, chosen: list[str], together: bool, jobs: int
) -> Iterator[tuple[str, str, str]]:
    folders = sorted(path.parent for root in roots for path in root.rglob("truth.json") if only in path.parent.name)
    with ProcessPoolExecutor(jobs) as pool:
        for rows in pool.map(one, [(folder, chosen, together) for folder in folders]):
            print(*{row[0] for row in rows}, "differs in", sum(bool(row[2]) for row in rows), file=sys.stderr)
            yield from rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, nargs="*", default=DEFAULT)
    parser.add_argument("--only", default="")
    parser.add_argument("--envelope", action="append", default=[])
    parser.add_argument("--merged", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    rows = list(compared(args.cases, args.only, args.envelope, args.merged, args.jobs))
    print("| envelope | same | differs |")
    print("|---|---|---|")
    for name in dict.fromkeys(row[1] for row in rows):
        differs = sum(bool(row[2]) for row in rows if row[1] == name)
        print(f"| {name} | {sum(row[1] == name for row in rows) - differs} | {differs} |")
    print()
    for case, name, difference in rows:
        if difference:
            print(f"- {case} in {name}: {difference}")
    sys.exit(1 if any(row[2] for row in rows) else 0)


if __name__ == "__main__":
    main()
