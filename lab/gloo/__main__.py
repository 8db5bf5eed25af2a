"""python -m lab.gloo OUT --seed S --count N: real jobs, OUT/0007/{dumps,json,logs,truth.json}.

dumps are pickles, json the same recordings as JSON (without call sites), logs what torchrun's --log-dir leaves of each
rank and the launcher's own output. Needs torch (2.8 or newer: the recorder of gloo) in the interpreter that runs the
jobs, this one or --python. One incident takes 10 to 40 s.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from lab.gloo import drive, plan
from lab.gloo.truth import truth

TRIES = 3


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m lab.gloo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("out", type=Path)
    add("--seed", type=int, default=0)
    add("--count", type=int, default=6)
    add("--first", type=int, default=0, help="number of the first incident")
    add("--fault", choices=plan.FAULTS, help="only this one")
    add("--worlds", type=lambda text: tuple(map(int, text.split(","))), default=plan.WORLDS)
    add("--python", default=sys.executable, help="an interpreter that has torch")
    return made


def make(
    out: Path, number: int, seed: int, fault: str | None, worlds: tuple[int, ...], python: str
) -> dict[str, object]:
    """One incident on disk; returns its truth. WentOtherwise where it went otherwise three times."""
    planned = plan.draw(seed, number, fault, worlds)
    folder = out / f"{number:04d}"
    for attempt in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="run-") as work:
            try:
                left = drive.run(planned, folder, Path(work) / "job", python)
                break
            except drive.WentOtherwise as why:
                print(f"{folder.name}: {planned.fault}/{planned.variant} {why}, again", file=sys.stderr)
                if attempt == TRIES - 1:
                    raise
    known = truth(planned, number, seed, left)
    (folder / "truth.json").write_text(json.dumps(known, indent=1), encoding="utf-8")
    return known


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    for number in range(given.first, given.first + given.count):
        known = make(given.out, number, given.seed, given.fault, given.worlds, given.python)
        print(number, known["kind"], json.dumps(known["detail"]), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
