"""python -m lab.simulate OUT --seed S --count N: writes OUT/0000/dumps/… and OUT/0000/truth.json, and so on."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from lab.simulate import faults, formats, incident, names, programs, stream
from lab.simulate.draw import WORLDS, Wishes

SWITCHES = ("timing", "json", "by_hand")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m lab.simulate", description=__doc__)
    add = made.add_argument
    add("out", type=Path)
    add("--seed", type=int, default=0)
    add("--count", type=int, default=20, help="incidents; kinds take turns")
    add("--first", type=int, default=0, help="number of the first incident")
    add("--jobs", type=int, default=1, help="processes")
    add("--kinds", type=lambda text: tuple(text.split(",")), default=tuple(faults.KINDS), help=",".join(faults.KINDS))
    add("--worlds", type=lambda text: tuple(map(int, text.split(","))), default=WORLDS)
    add("--layout", type=lambda text: tuple(map(int, text.split(","))), help="TP,PP,DP,EP")
    add("--style", choices=programs.STYLES)
    add("--steps", type=int)
    add("--ring", type=int, help="entries of a rank's ring")
    add("--missing", type=float, help="share of the innocent ranks' dumps that is lost")
    add("--start-events", dest="timing", choices=("on", "off"))
    add("--frames", choices=("python", "generated", "off"))
    add("--version", choices=formats.VERSIONS)
    add("--json", choices=("on", "off"))
    add("--backend", choices=("nccl", "gloo"))
    add("--skew", choices=("none", "ntp", "loose"))
    add("--scheme", choices=names.SCHEMES)
    add("--by-hand", choices=("on", "off"), help="dumped on request, not by the watchdog")
    add(
        "--stream-scale", nargs=2, type=int, metavar=("RANKS", "ENTRIES"), help="one incident of any size, rank by rank"
    )
    return made


def write(seed: int, wishes: Wishes, number: int, folder: Path) -> dict[str, Any]:
    """One incident to disk: dumps/ and truth.json; returns its truth."""
    gc.disable()  # hundreds of thousands of small objects, none of them in a cycle
    made = incident.make(seed, number, wishes)
    made.write(folder / "dumps")
    gc.enable()
    known = {"seed": seed, "incident": number, **made.truth}
    (folder / "truth.json").write_text(json.dumps(known, indent=1), encoding="utf-8")
    return known


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    if given.out.exists() and any(given.out.iterdir()):
        print(f"{given.out} is not empty: an older suite would be mixed with this one", file=sys.stderr)
        return 2
    if given.stream_scale:
        ranks, entries = given.stream_scale
        stream.write(given.out, ranks, entries, given.seed)
        return 0
    wanted: dict[str, Any] = {wish.name: getattr(given, wish.name) for wish in fields(Wishes)}
    for name in SWITCHES:
        wanted[name] = None if wanted[name] is None else wanted[name] == "on"
    wishes = Wishes(**wanted)
    numbers = range(given.first, given.first + given.count)
    folders = [given.out / f"{number:04d}" for number in numbers]
    work = partial(write, given.seed, wishes)
    try:
        if given.jobs > 1:
            with ProcessPoolExecutor(given.jobs) as pool:
                done = list(pool.map(work, numbers, folders, chunksize=8))
        else:
            done = list(map(work, numbers, folders))
    except incident.Impossible as problem:
        print(f"{problem}: leave it out with --kinds", file=sys.stderr)
        return 2
    (given.out / "index.json").write_text(json.dumps([_line(known) for known in done], indent=1), encoding="utf-8")
    able = sum(bool(known["identifiable"]) for known in done)
    print(f"{len(done)} incidents in {given.out}, {able} of them identifiable from their dumps", file=sys.stderr)
    return 0


def _line(known: dict[str, object]) -> dict[str, object]:
    return {key: known[key] for key in ("incident", "kind", "mechanism", "culprits", "identifiable", "world", "mode")}


if __name__ == "__main__":
    sys.exit(main())
