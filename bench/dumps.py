#!/usr/bin/env python3
"""How often dumps alone give the right answer: simulated incidents, or a folder of them, against their truth.

    python -m bench.dumps [--count 200] [--seed 1] [--jobs 2] [--only kind=dead] [--only missing=0.1]
    python -m bench.dumps --score DIR [--logs]        incidents made before, by lab.simulate or lab.gloo
    python -m bench.dumps --torchfrtrace PYTHON       beside torchfrtrace's answers on the same dumps
    python -m bench.dumps --misses --keep DIR         list what went wrong, and keep those incidents
    python -m bench.dumps --first 50 --count 50 --json FILE    a part of a long run; --rows FILE… then makes its tables

exact             the ranks named are exactly the culprits (of no rank: nobody is named, and the mechanism is right),
                  over the incidents that the simulator calls identifiable from their files
among 3           the culprits are among at most three names, over all incidents that have culprits
honest            where the files do not tell, nobody is named but ranks that look like the culprit
mechanism         the truth's or one of its `also_accepted`, over the identifiable; next to it over all
false certainty   an innocent rank, or a wrong mechanism or cause, graded proven or likely, over all;
                  "of ranks" is the part of it where an innocent is named so
cause too sure    a cause graded proven or likely that is not the fault's, though its mechanism may count as right (a call
                  that is skipped may look like calls in another order)
hang claimed      a rank or a mechanism named in a job that is sound

A row is one incident and an answer; the first verdict counts. Of torchfrtrace the first block that accuses anything
counts; as it knows no grades, an innocent named is false certainty. Shares stand with Wilson's 95 % intervals.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from dumps_judge import Answer, Scored, judge, modes  # noqa: E402 (bench/ and lab/ are no installed packages)
from dumps_tables import misses, tables  # noqa: E402
from lab.simulate import __main__ as simulate  # noqa: E402
from lab.simulate.draw import Wishes  # noqa: E402

from whichrank.diagnosis import diagnose  # noqa: E402

WORLDS = (8, 16, 24, 32, 48, 64) * 3 + (128, 128, 256)  # as often as they stand here
FIELDS = {
    "start_events": "timing",
    "kind": "kinds",
    "world": "worlds",
}  # of a truth, as the simulator's wishes name them


@dataclass(frozen=True, slots=True)
class Work:
    """What every worker is told. peer: an interpreter that has torch."""

    seed: int
    wishes: Wishes
    peer: str | None
    keep: Path | None
    logs: bool


# ---- answers


def ours(paths: Sequence[Path]) -> Answer:
    start = time.perf_counter()
    try:
        verdict = diagnose([str(path) for path in paths]).verdicts[0]
    except Exception as why:
        return Answer(error=f"{type(why).__name__}: {why}"[:200], seconds=time.perf_counter() - start)
    return Answer(
        named=sorted({culprit.rank for culprit in verdict.culprits if culprit.rank is not None}),
        mechanism=verdict.mechanism,
        rank_grade=verdict.rank_grade,
        cause=verdict.cause,
        grade=verdict.grade,
        group_ranks=sorted(verdict.group_ranks),
        seconds=time.perf_counter() - start,
    )


_peers: dict[str, subprocess.Popen[str]] = {}  # one for each worker process


def torchfrtrace(python: str, truth: dict[str, Any], dumps: Path) -> Answer:
    """Its best chance: the right attempt, the right prefix, and leave to go on where dumps are missing."""
    if truth.get("mode", {}).get("json"):
        return Answer(error="reads no JSON")
    files = [*truth["files"].values()] if "files" in truth else [path.name for path in dumps.iterdir()]
    prefix = re.sub(r"\d+$", "", files[0].rpartition("/")[2])
    folder = dumps / "attempt_1" if (dumps / "attempt_1").is_dir() else dumps
    if python not in _peers:
        script = str(Path(__file__).with_name("torchfrtrace_peer.py"))
        _peers[python] = subprocess.Popen([python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    peer = _peers[python]
    assert peer.stdin is not None and peer.stdout is not None
    asked = {"folder": str(folder), "prefix": prefix, "incomplete": bool(truth.get("missing_ranks"))}
    peer.stdin.write(json.dumps(asked) + "\n")
    peer.stdin.flush()
    said = json.loads(peer.stdout.readline())
    grade = "likely" if said["named"] else "undecided"
    return Answer(said["named"], said["mechanism"], grade, error=said["error"], seconds=said["seconds"])


# ---- one incident


def simulated(work: Work, number: int) -> list[Scored]:
    """Makes incident `number`, asks about it, and forgets it, or keeps it where the answer was wrong."""
    with tempfile.TemporaryDirectory(prefix="dumps-") as place:
        folder = Path(place) / f"{number:05d}"
        truth = simulate.write(work.seed, work.wishes, number, folder)
        scored = asked_about(work, truth, folder)
        if work.keep and any(each.ours.missed for each in scored):
            kept = work.keep / folder.name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
            for each in scored:
                each.ours.folder = str(kept)
    return scored


def made_before(work: Work, folder: Path) -> list[Scored]:
    scored = asked_about(work, json.loads((folder / "truth.json").read_text(encoding="utf-8")), folder)
    for each in scored:
        each.ours.folder = str(folder)
    return scored


def asked_about(work: Work, truth: dict[str, Any], folder: Path) -> list[Scored]:
    """A row for each kind of evidence that the folder has: dumps, the same as JSON, dumps with logs."""
    sets: list[tuple[str, list[Path]]] = [("dumps", [folder / "dumps"])]
    if (folder / "json").is_dir():
        sets.append(("JSON", [folder / "json"]))
    if work.logs and (folder / "logs").is_dir():
        sets.append(("dumps and logs", [folder / "dumps", folder / "logs"]))
    scored = []
    for evidence, paths in sets:
        row = judge(folder.name, truth, ours(paths), evidence)
        row.modes = modes(truth, evidence)
        if len(sets) > 1 and evidence == "dumps":
            row.modes.insert(0, "evidence: dumps")
        scored.append(Scored(row))
    if work.peer:
        row = judge(folder.name, truth, torchfrtrace(work.peer, truth, folder / "dumps"))
        row.modes = modes(truth)
        scored[0].peer = row
    return scored


# ---- the command


def wishes_of(only: Sequence[str]) -> Wishes:
    """--only field=value, in the simulator's words or the truth's."""
    known = {wish.name for wish in fields(Wishes)}
    chosen: dict[str, Any] = {"worlds": WORLDS}
    for given in only:
        name, _, value = given.partition("=")
        name = FIELDS.get(name, name)
        if name not in known:
            raise SystemExit(f"--only {given}: one of {', '.join(sorted(known | set(FIELDS)))}")
        chosen[name] = _value(name, value)
    return replace(Wishes(), **chosen)


def _value(name: str, text: str) -> Any:
    if name == "kinds":
        return tuple(text.split(","))
    if name in ("worlds", "layout"):
        return tuple(map(int, text.split(",")))
    if name in ("timing", "json", "by_hand"):
        return text.lower() in ("1", "on", "true", "yes")
    return float(text) if name == "missing" else int(text) if name in ("ring", "steps") else text


def holds(truth: dict[str, Any], only: Sequence[str]) -> bool:
    """Does an incident made before answer to every --only?"""
    known = {**truth.get("mode", {}), **{key: truth[key] for key in ("kind", "world", "mechanism", "identifiable")}}
    for given in only:
        name, _, value = given.partition("=")
        if name not in known or str(known[name]).lower() not in value.lower().split(","):
            return False
    return True


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--count", type=int, default=200)
    add("--first", type=int, default=0, help="number of the first incident")
    add("--seed", type=int, default=1)
    add("--jobs", type=int, default=2)
    add("--only", action="append", default=[], metavar="FIELD=VALUE", help="kind, world, backend, missing, frames, …")
    add("--score", type=Path, metavar="DIR", help="incidents made before, in folders with truth.json")
    add("--logs", action="store_true", help="with --score: also with the logs beside the dumps")
    add("--torchfrtrace", metavar="PYTHON", help="an interpreter that has torch")
    add("--misses", action="store_true", help="list what went wrong")
    add("--keep", type=Path, metavar="DIR", help="keep the incidents that went wrong")
    add("--json", type=Path, help="write every row")
    add("--rows", type=Path, nargs="+", metavar="FILE", help="instead: the tables of rows that --json wrote, all together")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    work = Work(given.seed, wishes_of([] if given.score else given.only), given.torchfrtrace, given.keep, given.logs)
    todo: Iterable[Any]
    if given.score:
        found = sorted(path.parent for path in given.score.rglob("truth.json"))
        todo = [f for f in found if holds(json.loads((f / "truth.json").read_text(encoding="utf-8")), given.only)]
        one: Callable[[Any], list[Scored]] = partial(made_before, work)
    else:
        todo = range(given.first, given.first + given.count)
        one = partial(simulated, work)
    if given.rows:
        scored = [Scored.of(plain) for path in given.rows for plain in json.loads(path.read_text(encoding="utf-8"))]
    else:
        with ProcessPoolExecutor(given.jobs) as pool:
            scored = [each for several in pool.map(one, todo, chunksize=4) for each in several]
    if not scored:
        print("no incidents", file=sys.stderr)
        return 2
    tables(scored)
    if given.misses:
        misses(scored)
    if given.json:
        given.json.write_text(json.dumps([each.plain() for each in scored], indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
