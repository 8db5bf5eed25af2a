"""python -m lab.faults --worlds 2,4,8 --seeds 5 --keep DIR: real jobs, each with a real fault, and who answers right.

Each incident is left in DIR/<fault>-w<ranks>-s<seed>/: evidence/ (what a user would have) and truth.json; the table goes
to the terminal and, with all rows, to DIR/rows.json. Incidents that are there already are only judged again.

--bare   the job alone: logs and Flight Recorder dumps, then `whichrank diagnose` (the default)
--run    the job under --wrapper, `whichrank run` unless told otherwise; its last report counts

torch (2.8 or newer) is needed in the interpreter that runs the jobs, --python, and whichrank in this one. What needs root
(mounts, network namespaces, memory cgroups) is left out, with a word, for an ordinary user.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lab.faults import fuse, hosts, incident, memory, page
from lab.faults.draw import draw
from lab.faults.fault import Fault
from lab.faults.kinds import BY_NAME, FAULTS
from lab.faults.score import SOURCE, Row, misses, scored, table
from lab.gloo.drive import WentOtherwise

TRIES = 3
WRAPPER = f"env PYTHONPATH={SOURCE} {sys.executable} -m whichrank run --dir {{dir}} --"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m lab.faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("--keep", type=Path, required=True, metavar="DIR", help="where the incidents go")
    add("--seeds", type=int, default=1, help="incidents of each fault and world")
    add("--first-seed", type=int, default=0)
    add("--worlds", type=lambda text: [*map(int, text.split(","))], default=[4])
    add(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="a fault, or the beginning of its name; again for more",
    )
    add("--bare", dest="watched", action="store_false", default=False)
    add("--run", dest="watched", action="store_true")
    add("--wrapper", default=WRAPPER, help="comes before torchrun; {dir} is the run directory")
    add("--python", default=sys.executable, help="an interpreter that has torch")
    add("--jobs", type=int, default=1, help="incidents at the same time")
    add("--healthy-seconds", type=float, default=20.0, help="how long a healthy job trains")
    add("--work", type=Path, help="where the jobs work (default: the system's temporary folder)")
    add("--score", action="store_true", help="run nothing, judge what is there")
    add("--page", type=Path, help="docs/faults.md: write the tables into it")
    return made


def lacking(fault: Fault) -> str:
    """What this machine does not offer; '' where nothing is missing."""
    offered = {
        "root": os.geteuid() == 0,
        "fuse": Path("/dev/fuse").exists(),
        "namespaces": bool(shutil.which("ip") and shutil.which("unshare") and shutil.which("tc")),
        "memory_cgroup": memory.limits() is not None,
    }
    return ", ".join(need for need in fault.needs if not offered[need])


def chosen(names: Sequence[str]) -> list[Fault]:
    found = [fault for fault in FAULTS if not names or any(fault.name.startswith(name) for name in names)]
    able = []
    for fault in found:
        if lacks := lacking(fault):
            print(f"left out: {fault.name} needs {lacks}", file=sys.stderr)
        else:
            able.append(fault)
    return able


def folder_of(keep: Path, fault: Fault, world: int, seed: int) -> Path:
    return keep / f"{fault.name}-w{world}-s{seed}"


def make(given: argparse.Namespace, fault: Fault, world: int, seed: int) -> Row | None:
    """One incident, run unless it is there, and judged; None where it went otherwise each time."""
    folder = folder_of(given.keep, fault, world, seed)
    drawn = draw(fault, world, seed, given.watched)
    if fault.healthy:
        drawn = replace(drawn, steps=max(20, int(given.healthy_seconds / drawn.pace_s)))
    for _ in range(0 if given.score or (folder / "truth.json").exists() else TRIES):
        try:
            incident.run(fault, drawn, folder, given.python, shlex.split(given.wrapper), given.work)
            break
        except WentOtherwise as why:
            print(f"{folder.name}: {why}", file=sys.stderr)
    if not (folder / "truth.json").exists():
        return None
    row = scored(folder)
    print(
        f"{row['id']} {row['variant']}: {row['truth']} {row['guilty']}, answered {row['cause']} ({row['grade']}) "
        f"{row['named']} ({row['rank_grade']}) {row['mechanism']}", file=sys.stderr,
    )  # fmt: skip
    return row


def made_all(given: argparse.Namespace, wanted: Sequence[tuple[Fault, int, int]]) -> list[Row]:
    """All of them, in their order. Stopped by SIGINT or SIGTERM, what runs still ends and is taken away."""
    if os.geteuid() == 0:
        fuse.sweep()
        hosts.sweep()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        going = [pool.submit(make, given, *one) for one in wanted]
        try:
            return [row for one in going if (row := one.result())]
        except KeyboardInterrupt:
            print("stopped: the incidents that run end first", file=sys.stderr)
            pool.shutdown(wait=True, cancel_futures=True)
            return [row for one in going if one.done() and not one.cancelled() and (row := one.result())]


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    given.keep = given.keep.absolute()
    given.keep.mkdir(parents=True, exist_ok=True)
    wanted = [
        (fault, world, seed)
        for fault in chosen(given.only)
        for world in given.worlds
        for seed in range(given.first_seed, given.first_seed + given.seeds)
        if not given.score or (folder_of(given.keep, fault, world, seed) / "truth.json").exists()
    ]
    if not wanted:
        print(f"nothing to do; faults are {', '.join(BY_NAME)}", file=sys.stderr)
        return 2
    rows = made_all(given, wanted)
    (given.keep / "rows.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    made, wrong = table(rows), [*misses(rows)]
    print(made, *(f"- {miss}" for miss in wrong), sep="\n")
    if given.page:
        ran = f"python -m lab.faults {'--run' if given.watched else '--bare'} --worlds {','.join(map(str, given.worlds))} --seeds {given.seeds}"
        page.write(given.page, "faults", page.faults([fault for fault in FAULTS if not fault.healthy]))
        page.write(given.page, "healthy", page.faults([fault for fault in FAULTS if fault.healthy]))
        page.write(given.page, "run" if given.watched else "bare", page.measured(ran, made, wrong))
    if len(rows) < len(wanted):
        print(f"\n{len(wanted) - len(rows)} incidents went otherwise than planned and are left out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
