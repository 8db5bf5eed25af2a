#!/usr/bin/env python3
"""How the judgement holds when evidence is missing.

    python bench/robustness.py [CASES…] [--seeds 5] [--json OUT]

Every case is diagnosed with 5, 20 and 50 % of its lines dropped at random, with one rank's file removed and with one
host's files removed, each with several seeds. The right answers may fall; false certainty (a wrong cause graded proven
or likely, or an innocent rank named so) must stay at or below 3 %. Prints a markdown table with 95 % intervals.

Runs in this process: no command is started for each case, so that thousands of diagnoses take minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import score

from whichrank.diagnosis import diagnose
from whichrank.evidence.frame import from_path
from whichrank.report import json_report

DEFAULT = [Path(__file__).parent.parent / "tests" / "cases"]
HARM = (
    "intact",
    "5 % of lines dropped",
    "20 % of lines dropped",
    "50 % of lines dropped",
    "one rank's file removed",
    "one host's files removed",
)


def files_of(case: Path) -> list[Path]:
    return sorted(p for p in case.rglob("*") if p.is_file() and p.name not in ("truth.json", "gen.py"))


def text_of(path: Path) -> bytes:
    return b"\n".join(score.lines_of(path))


def binary(data: bytes) -> bool:
    return b"\0" in data[:4096] or data[:1] == b"\x80"


def harmed(case: Path, harm: str, seed: int) -> dict[str, bytes] | None:
    """The case's files after the harm; None where it has nothing to take away."""
    rng = random.Random(f"{case.name} {harm} {seed}")
    files = {str(p.relative_to(case)).removesuffix(".gz"): text_of(p) for p in files_of(case)}
    if harm.endswith("dropped"):
        share = int(harm.split()[0]) / 100
        return {
            name: data if binary(data) else b"\n".join(line for line in data.split(b"\n") if rng.random() >= share)
            for name, data in files.items()
        }
    if harm == "one rank's file removed":
        ranks = [name for name in files if from_path(name).rank is not None or from_path(name).local_rank is not None]
        if len(ranks) < 2:
            return None
        del files[rng.choice(sorted(ranks))]
    elif harm == "one host's files removed":
        groups = sorted(hosts_of(files).values())
        if len(groups) < 2:
            return None
        for name in rng.choice(groups):
            files.pop(name, None)
    return files


def hosts_of(files: dict[str, bytes]) -> dict[str, list[str]]:
    """Files by the host that their names begin with or the folder they stand in, where there are several."""
    import re

    groups: dict[str, list[str]] = {}
    for name in files:
        for part in name.split("/"):
            match = re.match(r"(?:dmesg-)?([a-z][a-z0-9]*-?[a-z]*\d+[a-z0-9-]*?)(?=[._]|$)", part, re.I)
            if match and not re.match(r"(?:global_?)?rank|attempt|pyspy|worker_?\d+$|r\d", match[1], re.I):
                groups.setdefault(match[1].lower(), []).append(name)
                break
    return groups if len(groups) > 1 else {}


@contextmanager
def laid_out(files: dict[str, bytes]) -> Iterator[Path]:
    """A folder "job" that holds these files for a while."""
    with tempfile.TemporaryDirectory(prefix="job-") as folder:
        evidence = Path(folder, "job")
        for name, data in files.items():
            target = evidence / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        yield evidence


def judge(case: Path, harm: str, seed: int) -> dict[str, object] | None:
    truth = json.loads((case / "truth.json").read_text())
    files = harmed(case, harm, seed)
    if files is None:
        return None
    with laid_out(files) as evidence:
        report = json.loads(json_report.render(diagnose(sorted(map(str, evidence.iterdir())))))
        answer = score.judge(truth, report, evidence)
    return {"case": case.name, "harm": harm, "seed": seed, "truth": truth["cause"], **answer}


def one(task: tuple[str, str, int]) -> dict[str, object] | None:
    return judge(Path(task[0]), task[1], task[2])


def tasks(roots: list[Path], seeds: int) -> Iterator[tuple[str, str, int]]:
    for root in roots:
        for truth in sorted(root.rglob("truth.json")):
            for harm in HARM:
                for seed in range(1 if harm == "intact" else seeds):
                    yield str(truth.parent), harm, seed


def interval(hits: int, of: int) -> str:
    """Share with Wilson's 95 % interval."""
    if not of:
        return "-"
    z, p = 1.96, hits / of
    middle = (p + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return f"{p:.1%} ({max(0, middle - half):.1%}-{min(1, middle + half):.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, nargs="*", default=DEFAULT)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with ProcessPoolExecutor(args.jobs) as pool:
        rows = [row for row in pool.map(one, tasks(args.cases, args.seeds), chunksize=8) if row]
    print("| evidence | diagnoses | cause right | ranks right | false certainty |")
    print("|---|---|---|---|---|")
    for harm in HARM:
        some = [row for row in rows if row["harm"] == harm]
        cells = [
            interval(sum(bool(row[key]) for row in some), len(some))
            for key in ("cause_right", "culprit_right", "false_certainty")
        ]
        print(f"| {harm} | {len(some)} | {' | '.join(cells)} |")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    worst = max(
        (
            sum(bool(r["false_certainty"]) for r in rows if r["harm"] == harm)
            / max(1, sum(r["harm"] == harm for r in rows))
            for harm in HARM
        ),
        default=0,
    )
    sys.exit(1 if worst > 0.03 else 0)


if __name__ == "__main__":
    main()
