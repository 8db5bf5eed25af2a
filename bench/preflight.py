#!/usr/bin/env python3
"""Each fault of lab/preflights.py several times, and healthy sets: found and named? how soon?

    python bench/preflight.py                          each fault 5 times, healthy sets 10 times
    python bench/preflight.py --python PYTHON          the ranks' Python: one with torch tries collectives too
    python bench/preflight.py --only 'slow storage' --times 1 --show

Over two to four nodes (network namespaces at a switch) with one or two ranks each; which node has the fault changes
from run to run. Needs root, iproute2 and iptables; 20 to 40 minutes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from lab import preflights, switched  # noqa: E402

SHAPES = ((2, 1), (3, 2), (4, 2), (4, 1), (3, 1), (2, 2), (1, 2), (2, 4), (1, 8), (4, 1))  # nodes, ranks on each
LIMIT = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="for the ranks; needs what whichrank needs")
    parser.add_argument("--times", type=int, default=5, help="of each fault")
    parser.add_argument("--healthy", type=int, default=10, help="healthy sets")
    parser.add_argument("--only", help="this fault alone")
    parser.add_argument("--show", action="store_true", help="what was said")
    options = parser.parse_args()
    if why := switched.usable():
        print(f"cannot run here: {why}", file=sys.stderr)
        return 2
    python = ("nice", "-n", "5", os.path.abspath(options.python))  # noqa: PTH100 - a link to another Python stays one
    print("| set | found and named | seconds, least and most | nodes x ranks |\n| --- | --- | --- | --- |", flush=True)
    good = options.only is not None or healthy(python, options.healthy, options.show)
    for fault in preflights.FAULTS:
        if options.only in (None, fault.name):
            good = planted(fault, python, options.times, options.show) and good
    return 0 if good else 1


def healthy(python: tuple[str, ...], times: int, show: bool) -> bool:
    passed, seconds, used = 0, [], []
    for count, each in itertools.islice(itertools.cycle(SHAPES), times):
        with preflights.prepared(count, each) as made:
            ended = preflights.run(made, python)
        right = ended.answer is not None and ended.answer["answer"] == "go" and set(ended.codes.values()) == {0}
        passed += right and ended.seconds < LIMIT
        seconds.append(ended.seconds)
        used.append(f"{count}x{each}")
        tell("healthy", ended, show or not right)
    row("healthy: passes", passed, times, seconds, used)
    return passed == times


def shapes(fault: preflights.Fault) -> Iterator[tuple[int, int, int]]:
    """Nodes, ranks on each, and the node that has the fault."""
    turn = 0
    for count, each in itertools.cycle(SHAPES):
        if count > 1 and each >= fault.each:
            yield count, each, turn % count if fault.first else 1 + turn % (count - 1)
            turn += 1


def planted(fault: preflights.Fault, python: tuple[str, ...], times: int, show: bool) -> bool:
    if why := preflights.possible(fault):
        print(f"| {fault.name} | not tried: {why} | | |", flush=True)
        return True
    found, seconds, used = 0, [], []
    for count, each, node in itertools.islice(shapes(fault), times):
        with preflights.prepared(count, each) as made, fault.plant(made, node):
            ended = preflights.run(made, python)
            right = preflights.right(fault, made, node, ended)
        found += right and ended.seconds < LIMIT
        seconds.append(ended.seconds)
        used.append(f"{count}x{each}")
        tell(f"{fault.name}, node {node} of {count}x{each}", ended, show or not right)
    row(fault.name, found, times, seconds, used)
    return found == times


def row(name: str, right: int, times: int, seconds: list[float], used: list[str]) -> None:
    print(f"| {name} | {right} of {times} | {min(seconds):.0f} - {max(seconds):.0f} | {', '.join(used)} |", flush=True)


def tell(name: str, ended: preflights.Ended, show: bool) -> None:
    """On standard error, what a run said."""
    if not show:
        return
    print(f"-- {name}: {ended.seconds:.1f} s, exit codes {dict(ended.codes)}", file=sys.stderr)
    for one in (ended.answer or {"findings": []})["findings"]:
        print(
            f"   {one['grade']} {one['id']} {one['nodes']} {one['ranks']}: {one['says']} -> {one['do']}",
            file=sys.stderr,
        )
    for rank, said in ended.said.items():
        if said.strip():
            print(f"   rank {rank} said: {said.strip()[:1000]}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
