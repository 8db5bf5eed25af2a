#!/usr/bin/env python3
"""Logs of gigabytes: `whichrank FOLDER` beside `grep` for all its anchors, on the same files in the same run.

    python bench/large.py [--gigabytes 1] [--runs 3] [--keep FOLDER] [--anchors FILE]
    python bench/large.py --gigabytes 0.06 --forms hostile

bench/folder.py writes 64 ranks' logs with one incident; the same lines are measured as a file a rank, as one file in
which all ranks speak, and with words of its own in every line (what no table of line shapes can help with). grep looks
for every anchor that the readers have (`LC_ALL=C grep -aFc -f`); --anchors writes that list. The form `hostile` is one
file of all ranks in which every line is made of words of its own and of what readers look for. whichrank runs with the
compiled matcher where the package hyperscan is there, and with the standard library alone; the verdict is checked each
time. Memory is the greatest sum over all its processes (proportional set size, read from /proc every 50 ms). Prints
markdown tables of medians; nothing passes or fails here but a wrong verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import folder
from commands import WHICHRANK, measured
from speed import ENVIRONMENT

from whichrank.evidence import scanner

PLAIN = f"import sys; sys.modules['hyperscan'] = None; {WHICHRANK}"
PLAIN_BYTES = {**ENVIRONMENT, "LC_ALL": "C"}


def merged(source: Path, target: Path) -> None:
    """All ranks in one file, line by line, as torchrun prints them."""
    target.mkdir()
    (target / "kernel.dmesg").write_bytes(b"".join(path.read_bytes() for path in source.glob("*.dmesg")))
    files = {
        path.stem.removeprefix("rank").lstrip("0") or "0": path.open("rb") for path in sorted(source.glob("rank*"))
    }
    with (target / "train.log").open("wb") as out:
        while files:
            for rank, file in list(files.items()):
                lines = file.readlines(1000)
                if not lines:
                    del files[rank]
                label = f"[rank{rank}]:".encode()
                out.writelines(line if line.startswith(b"[rank") else label + b" " + line for line in lines)


def varied(source: Path, target: Path) -> None:
    """Every line ends with words of its own: names that no other line has."""
    target.mkdir()
    letters = "abcdefghijklmnopqrstuvwxyz"
    for path in sorted(source.iterdir()):
        rng = random.Random(path.name)
        with path.open() as lines, (target / path.name).open("w") as out:
            for line in lines:
                told = "train.py" in line
                out.write(f"{line[:-1]} sample {''.join(rng.choices(letters, k=12))}\n" if told else line)


LURES = (
    "Watchdog caught collective operation timeout",
    "rank",
    "pid",
    "host",
    "Error:",
    "Killed process",
    "NCCL WARN",
    "Xid",
)


def hostile(source: Path, target: Path) -> None:
    """All ranks in one file; of each ordinary line only the label is left, then words that no other line has, and a lure."""
    merged(source, target)
    letters = "abcdefghijklmnopqrstuvwxyz"
    rng = random.Random(7)
    log = target / "train.log"
    with log.open() as lines, (target / "lures.log").open("w") as out:
        for line in lines:
            label, _, text = line.partition(" ")
            if "train.py" in text:
                words = ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(rng.randint(4, 9))]
                words.insert(rng.randint(0, len(words)), rng.choice(LURES))
                line = f"{label} {' '.join(words)}\n"
            out.write(line)
    (target / "lures.log").replace(log)


def verdict_of(out: str) -> str:
    first = json.loads(out)["verdicts"][0]
    ranks = ", ".join(str(culprit["rank"]) for culprit in first["culprits"])
    right = first["cause"] == "host_oom" and ranks == str(folder.VICTIM)
    return f"{first['cause']}, rank {ranks}" if right else f"WRONG: {first['cause']}, ranks {ranks}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1.0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--forms", nargs="+", default=["files", "merged", "varied"])
    parser.add_argument("--keep", type=Path, help="write the logs here and leave them")
    parser.add_argument("--anchors", type=Path, help="write the list of anchors here")
    args = parser.parse_args()
    wrong = False
    with tempfile.TemporaryDirectory() as scratch:
        home = args.keep or Path(scratch)
        anchors = args.anchors or home / "anchors.txt"
        anchors.parent.mkdir(parents=True, exist_ok=True)
        anchors.write_text("\n".join(sorted(scanner().anchors)) + "\n", encoding="utf-8")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        print(
            f"Python {sys.version.split()[0]}, {cores} cores, {len(scanner().anchors)} anchors, median of {args.runs}\n"
        )
        print("| logs | GB | `grep -aFc -f` | matcher | `whichrank` | ratio | peak memory, MB | verdict |")
        print("| :-- | --: | --: | :-- | --: | --: | --: | :-- |")
        programs = [("standard library", PLAIN)]
        if find_spec("hyperscan"):
            programs.insert(0, ("hyperscan", WHICHRANK))
        for gigabytes in args.gigabytes:
            base = home / f"files-{gigabytes:g}"
            if not base.exists():
                folder.build(base, int(gigabytes * 1e9))
            for form in args.forms:
                place = home / f"{form}-{gigabytes:g}"
                if form != "files" and not place.exists():
                    {"merged": merged, "varied": varied, "hostile": hostile}[form](base, place)
                size = sum(path.stat().st_size for path in place.iterdir()) / 1e9
                grep = measured(["grep", "-aFc", "-f", anchors, "-r", place], args.runs, environment=PLAIN_BYTES).wall
                for name, program in programs:
                    ours = measured(
                        [sys.executable, "-c", program, place, "--json"], args.runs, environment=PLAIN_BYTES
                    )
                    said = verdict_of(ours.out)
                    wrong |= said.startswith("WRONG")
                    print(
                        f"| {form} | {size:.2f} | {grep:.2f} s | {name} | {ours.wall:.2f} s | {ours.wall / grep:.2f} "
                        f"| {ours.memory / 1e6:.0f} | {said} |",
                        flush=True,
                    )
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
