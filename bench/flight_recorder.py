#!/usr/bin/env python3
"""Flight Recorder dumps: how fast, and in how much memory, beside torchfrtrace and beside reading them at all.

    python bench/flight_recorder.py [--torchfrtrace PYTHON] [--ranks 256] [--entries 2000]
    python bench/flight_recorder.py --growth 32,64,128,256          time and memory by number of ranks
    python bench/flight_recorder.py --full                          also 16,384 ranks x 200 entries, and their digests
    python bench/flight_recorder.py --stream-scale RANKS ENTRIES    that one alone, of any size

Every incident is written once (lab/simulate: one rank's host is stuck; frames as the watchdog writes them), then each
program runs on the same files, one after the other, as a command of its own. Two jobs: tensor x data parallel, where
torchfrtrace goes through every entry, and with a pipeline too, whose sends it takes for mismatches, and gives up.
*floor*: a plain unpickler that refuses every class, and throws away what it has read, in one process and in two.
torchfrtrace is PyTorch's own (`python -m torch.distributed.flight_recorder.fr_trace FOLDER -p PREFIX`; --torchfrtrace
names an interpreter that has torch): it reads pickles of 2.1 and newer, one file a rank with its number at the end of
the name.

Wall and processor seconds are of all processes of a command (the processor's as the kernel counts them at the end),
memory is the greatest sum of their proportional set sizes, read every 50 ms. Ratios are torchfrtrace / whichrank and
whichrank / floor. Whether the answer is right is printed; exits 1 where whichrank names a wrong rank.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from commands import WHICHRANK, Cost, measured  # noqa: E402 (bench/ and lab/ are no installed packages)
from lab.simulate import stream  # noqa: E402
from speed import ENVIRONMENT  # noqa: E402
from torchfrtrace_peer import first_block  # noqa: E402

LIMIT = 4e9  # bytes that whichrank may take before it is stopped
PREFIX = "comm_lib_trace_rank_"
FLOOR = """
import gc, pickle, sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(module)

def entries(path):
    gc.disable()
    with path.open("rb") as file:
        return len(Plain(file).load()["entries"])

if __name__ == "__main__":
    files, jobs = sorted(Path(sys.argv[1]).iterdir()), int(sys.argv[2])
    if jobs == 1:
        print(sum(map(entries, files)))
    else:
        with ProcessPoolExecutor(jobs) as pool:
            print(sum(pool.map(entries, files, chunksize=8)))
"""


# ---- what is measured


def written(home: Path, ranks: int, entries: int, given: argparse.Namespace, flat: bool) -> tuple[Path, dict[str, Any]]:
    """The dumps' folder and the truth, written once. flat: without a pipeline."""
    place = home / f"{'flat' if flat else 'grid'}-{ranks}x{entries}"
    if not (place / "truth.json").exists():
        stream.write(place, ranks, entries, given.seed, (8, 1, ranks // 8) if flat else None, not given.no_frames)
    return place / "dumps", json.loads((place / "truth.json").read_text(encoding="utf-8"))


def command(*arguments: str | os.PathLike[str]) -> list[str | os.PathLike[str]]:
    return [sys.executable, "-c", WHICHRANK, *arguments]


def whichrank(folder: Path, runs: int) -> Cost:
    return measured(command("diagnose", folder, "--json"), runs, LIMIT)


def floor(folder: Path, jobs: int, runs: int) -> Cost:
    script = folder.parent / "floor.py"  # a file: worker processes may have to import it
    script.write_text(FLOOR, encoding="utf-8")
    return measured([sys.executable, str(script), str(folder), str(jobs)], runs)


def torchfrtrace(python: str, folder: Path, runs: int) -> Cost:
    return measured([python, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder), "-p", PREFIX], runs)


def answer(cost: Cost, truth: dict[str, Any]) -> tuple[str, bool]:
    """The answer in words, and whether it is an error to print it: a wrong rank is, none is not."""
    try:
        verdict = json.loads(cost.out)["verdicts"][0]
    except (ValueError, KeyError, IndexError):
        if cost.status == -signal.SIGKILL and cost.memory > LIMIT:
            return f"STOPPED: more than {LIMIT / 1e9:.0f} GB", True
        return f"exit {cost.status}: {cost.out.strip()[-80:]}", True
    ranks = sorted(culprit["rank"] for culprit in verdict["culprits"])
    if not ranks:
        return "undecided", False
    right = ranks == truth["culprits"] and verdict["mechanism"] == truth["mechanism"]
    return f"{verdict['mechanism']}, rank {', '.join(map(str, ranks))}{'' if right else ' WRONG'}", not right


def its_answer(cost: Cost) -> str:
    said = first_block(cost.out)
    gave_up = ", then gives up" if "aborting" in cost.out else ""
    return f"exit {cost.status}: {said['error'] or said['mechanism']}, ranks {said['named']}{gave_up}"


def beside(home: Path, given: argparse.Namespace, flat: bool) -> bool:
    """One size: whichrank, the floor, torchfrtrace."""
    folder, truth = written(home, given.ranks, given.entries, given, flat)
    size = sum(path.stat().st_size for path in folder.iterdir())
    job = "tensor x data parallel" if flat else "tensor x pipeline x data parallel"
    print(
        f"\n{job}, {given.ranks} ranks x {given.entries} entries, {size / 1e6:.0f} MB, rank {truth['culprits'][0]} is stuck\n"
    )
    print("| program | wall | processor | peak memory | answer |\n|---|--:|--:|--:|---|")
    ours = whichrank(folder, given.runs)
    said, wrong = answer(ours, truth)
    print(f"| whichrank | {ours.cells()} | {said} |", flush=True)
    floors = {jobs: floor(folder, jobs, given.runs) for jobs in (1, 2)}
    for jobs, cost in floors.items():
        print(
            f"| floor, {'one process' if jobs == 1 else f'{jobs} processes'} | {cost.cells()} | {cost.out.strip()} entries |",
            flush=True,
        )
    ratios = [
        f"whichrank / floor: wall {ours.wall / floors[1].wall:.2f} (one process), {ours.wall / floors[2].wall:.2f} (two), "
        f"processor {ours.cpu / floors[1].cpu:.2f}"
    ]
    if given.torchfrtrace:
        theirs = torchfrtrace(given.torchfrtrace, folder, 1)
        print(f"| torchfrtrace | {theirs.cells()} | {its_answer(theirs)} |")
        ratios.append(
            f"torchfrtrace / whichrank: wall {theirs.wall / ours.wall:.1f}, processor {theirs.cpu / ours.cpu:.1f}, "
            f"memory {theirs.memory / max(ours.memory, 1):.1f}"
        )
    print("", *ratios, sep="\n")
    return wrong


def growth(home: Path, given: argparse.Namespace) -> bool:
    """Time and memory by ranks; the last column is the exponent against the row before: 1 is linear."""
    print(
        f"\n| ranks x {given.entries} entries | wall | processor | peak memory | torchfrtrace wall | its memory | exponent | answer |"
    )
    print("|--:" * 7 + "|---|")
    before: Cost | None = None
    wrong = False
    for at, ranks in enumerate(given.growth):
        folder, truth = written(home, ranks, given.entries, given, flat=True)
        cost = whichrank(folder, given.runs)
        said, bad = answer(cost, truth)
        wrong |= bad
        peer = "- | -"
        if given.torchfrtrace:
            theirs = torchfrtrace(given.torchfrtrace, folder, 1)
            peer = f"{theirs.wall:.2f} s | {theirs.memory / 1e6:.0f} MB"
        power = f"{math.log(cost.wall / before.wall) / math.log(ranks / given.growth[at - 1]):.2f}" if before else "-"
        print(f"| {ranks} | {cost.cells()} | {peer} | {power} | {said} |", flush=True)
        before = cost
    return wrong


def scale(home: Path, given: argparse.Namespace, ranks: int, entries: int) -> bool:
    """One large job: written rank by rank, diagnosed, and merged from digests."""
    begin = time.perf_counter()
    folder, truth = written(home, ranks, entries, given, flat=False)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"\n{ranks} ranks x {entries} entries: {size / 1e6:.0f} MB, written in {time.perf_counter() - begin:.0f} s\n")
    print("| program | wall | processor | peak memory | answer |\n|---|--:|--:|--:|---|")
    ours = whichrank(folder, 1)
    said, wrong = answer(ours, truth)
    print(f"| whichrank | {ours.cells()} | {said} |", flush=True)
    least = floor(folder, 2, 1)
    print(f"| floor, 2 processes | {least.cells()} | {least.out.strip()} entries |", flush=True)
    wrong |= digests(folder, truth)
    print(f"\nwhichrank / floor: wall {ours.wall / least.wall:.2f}, processor {ours.cpu / least.cpu:.2f}")
    return wrong


def digests(folder: Path, truth: dict[str, Any], node: int = 8) -> bool:
    """A digest for every node's dumps, then a diagnosis of the digests alone: the merge is what is timed."""
    place = folder.parent / "digests"
    if not place.exists():
        place.mkdir()

        def digest(first: int) -> None:
            files = [folder / f"{PREFIX}{rank}" for rank in range(first, min(first + node, truth["world"]))]
            made = command("digest", *files, "-o", place / f"node-{first // node:05d}.digest")
            subprocess.run(made, check=True, capture_output=True, env=ENVIRONMENT)

        with ThreadPoolExecutor(os.cpu_count()) as at_once:
            list(at_once.map(digest, range(0, truth["world"], node)))
    sizes = [path.stat().st_size for path in place.iterdir()]
    merged = whichrank(place, 1)
    said, wrong = answer(merged, truth)
    print(
        f"| merge of {len(sizes)} digests, {sum(sizes) / truth['world'] / 1e3:.1f} KB a rank | {merged.cells()} | {said} |"
    )
    return wrong


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--ranks", type=int, default=256)
    add("--entries", type=int, default=2000)
    add("--runs", type=int, default=1)
    add("--seed", type=int, default=1)
    add("--no-frames", action="store_true", help="dumps without call sites")
    add("--torchfrtrace", metavar="PYTHON", help="an interpreter that has torch")
    add("--growth", type=lambda text: [*map(int, text.split(","))], metavar="RANKS,…", help="instead: by ranks")
    add("--stream-scale", nargs=2, type=int, metavar=("RANKS", "ENTRIES"), help="instead: one large job")
    add("--full", action="store_true", help="the comparison, the growth, and 16,384 ranks x 200 entries")
    add("--keep", type=Path, metavar="DIR", help="write the dumps here and leave them")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    wrong = False
    with tempfile.TemporaryDirectory(prefix="dumps-") as scratch:
        home = given.keep or Path(scratch)
        home.mkdir(parents=True, exist_ok=True)
        print(f"Python {sys.version.split()[0]}, {len(os.sched_getaffinity(0))} cores, median of {given.runs}")
        if given.full or not (given.growth or given.stream_scale):
            wrong |= beside(home, given, flat=True)
            wrong |= beside(home, given, flat=False)
        if given.full and not given.growth:
            given.growth = [32, 64, 128, 256]
        if given.growth:
            wrong |= growth(home, given)
        large = given.stream_scale or ([16384, 200] if given.full else None)
        if large:
            wrong |= scale(home, given, *large)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
