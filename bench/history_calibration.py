"""Is `whichrank history why` right as often as it says? Thousands of simulated histories with a known truth.

    python bench/history_calibration.py [--histories 6000] [--seed 1] [--workers 2] [--page FILE]

Prints, for each kind of truth, how often a pattern that was planted with 4 hits or more (and with a placement that
varied) is found; of all answers how many are right; and how often something is found where nothing is: beside two naive
rules, "twice on a node" and "the most frequent node". 95 % intervals are Wilson's. Exits with 1 where a bar is missed.

    python bench/history_calibration.py --histories 3000 --seed N --page docs/history.md

also writes the table into that page. Take a seed that nobody has looked at: the priors were chosen by hand on others.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from histories import KINDS, Simulated, draw

from whichrank.history.why import SURE, Findings, Pattern, find

RIGHT, ANSWERED, FALSE = 0.90, 0.80, 0.05


def right(pattern: Pattern, case: Simulated) -> bool:
    """Does this answer name what was planted? A GPU's node is a right answer too: it is drained in either case."""
    names = {pattern.name, *pattern.confounded}
    for kind, truth in case.truth.items():
        if kind == "node" and pattern.kind in ("node", "gpu") and any(pattern.name.endswith(name) for name in truth):
            return pattern.kind == "node"
        if kind == "gpu" and pattern.kind in ("node", "gpu") and any(pattern.name.endswith(name) for name in truth):
            return True
        if kind == "rank" and truth == {"rank -1"} and pattern.kind in ("rank", "role"):
            sizes = {run.id: run.world_size for run in case.history.runs}
            last = {f"rank {sizes.get(case.history.incidents[place].run, 0) - 1}" for place in pattern.incidents}
            return pattern.name == "the last rank" or last == {pattern.name}
        if kind == "rank" and pattern.kind == "rank" and names & truth:
            return True
        if kind in ("rack", "role", "shard", "site") and names & truth:
            return True
        if kind == "step" and pattern.kind == "step":
            return abs(int(pattern.name.split()[1]) - int(next(iter(truth)))) <= 12
        if kind == "storage" and pattern.kind in ("burst", "window", "service"):
            return True
        if kind == "window" and pattern.kind in ("window", "burst", "service"):
            return True
    return False


def naive(case: Simulated) -> tuple[str | None, str | None]:
    """(the node that comes twice, the most frequent node)."""
    counts = Counter(one.host for one in case.history.incidents if one.host)
    top = counts.most_common(1)
    return (top[0][0] if top and top[0][1] >= 2 else None), (top[0][0] if top else None)


class Answer(NamedTuple):
    kind: str
    posterior: float
    confounded: bool
    right: bool


def judge(seed: int) -> dict[str, object]:
    case = draw(seed)
    found: Findings = find(case.history, case.topology)
    answers = [
        Answer(pattern.kind, round(pattern.posterior, 4), bool(pattern.confounded), right(pattern, case))
        for pattern in found.patterns
    ]
    twice, most = naive(case)
    nodes = case.truth.get("node", set()) | case.truth.get("gpu", set())
    best = max(found.weighed, key=lambda pattern: pattern.posterior, default=None)
    return {
        "kind": case.kind, "large": sum(case.planted.values()) >= 4 and case.varied, "planted": case.planted,
        "answers": answers, "twice": None if twice is None else twice in nodes, "most": most in nodes,
        "best": None if best is None else (best.posterior, right(best, case)),
    }  # fmt: skip


def wilson(hits: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    middle = (hits + z * z / 2) / (of + z * z)
    half = z / (of + z * z) * (hits * (of - hits) / of + z * z / 4) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


def share(hits: int, of: int) -> str:
    if not of:
        return "none"
    low, high = wilson(hits, of)
    return f"{hits / of:6.1%} ({low:.1%}-{high:.1%}) of {of}"


def report(rows: list[dict]) -> bool:  # type: ignore[type-arg]
    for row in rows:
        row["likely"] = [one.right for one in row["answers"] if one.posterior < SURE and not one.confounded]
        row["answers"] = [one for one in row["answers"] if one.posterior >= SURE]
    sure = [(row, one) for row in rows for one in row["answers"] if not one.confounded]
    likely = [right for row in rows for right in row["likely"]]
    large = [row for row in rows if row["kind"] not in ("none", "mixed") and row["large"]]
    answered = [row for row in large if any(one.right for one in row["answers"])]
    nothing = [row for row in rows if row["kind"] == "none"]
    false = [row for row in nothing if row["answers"]]
    print(f"{len(rows):,} histories of {len(KINDS)} kinds, 8 to 1,000 nodes, 3 to 60 incidents\n")
    print(f"answers at 90 % or more that are right   {share(sum(one.right for _, one in sure), len(sure))}")
    print(f"planted patterns (>= 4 hits) answered    {share(len(answered), len(large))}")
    print(f"something found where nothing is         {share(len(false), len(nothing))}")
    print(f"answers at 75 to 90 %, called likely     {share(sum(likely), len(likely))} right")
    twice = [row["twice"] for row in rows if row["twice"] is not None]
    print(
        f"\nnaive: twice on a node      right {share(sum(twice), len(twice))}; where nothing is: "
        f"{share(sum(row['twice'] is not None for row in nothing), len(nothing))}"
    )
    print(
        f"naive: most frequent node   right {share(sum(row['most'] for row in rows), len(rows))}; where nothing is: always"
    )
    print(f"\n{'planted':10} {'answered, 4 hits or more':34} {'answers right':34} confounded, said so")
    for kind in KINDS:
        mine = [row for row in rows if row["kind"] == kind]
        most = [row for row in mine if row["large"]]
        own = [one for row in mine for one in row["answers"] if not one.confounded]
        told = [one for row in mine for one in row["answers"] if one.confounded]
        hit = sum(any(one.right for one in row["answers"]) for row in most)
        first = share(hit, len(most)) if kind != "none" else "-"
        print(
            f"{kind:10} {first:34} {share(sum(one.right for one in own), len(own)):34} {share(sum(one.right for one in told), len(told))}"
        )
    _mixed([row for row in rows if row["kind"] == "mixed"])
    _calibration(rows)
    kinds: dict[str, list[bool]] = defaultdict(list)
    for _, one in sure:
        kinds[one.kind].append(one.right)
    print(
        "\nanswers right, by what they say: "
        + ", ".join(f"{kind} {sum(v)}/{len(v)}" for kind, v in sorted(kinds.items()))
    )
    return (
        sum(one.right for _, one in sure) >= RIGHT * len(sure) and len(answered) >= ANSWERED * len(large)
        and len(false) <= FALSE * len(nothing)
    )  # fmt: skip


MARKS = ("<!-- calibration -->", "<!-- /calibration -->")


def page_table(rows: list[dict], seed: int, seconds: float) -> str:  # type: ignore[type-arg]
    """The figures as the page has them, with what they were measured on. `rows` as `report` leaves them."""
    own = [one for row in rows for one in row["answers"] if not one.confounded]
    large = [row for row in rows if row["kind"] not in ("none", "mixed") and row["large"]]
    nothing = [row for row in rows if row["kind"] == "none"]
    twice = [row["twice"] for row in rows if row["twice"] is not None]
    likely = [right for row in rows for right in row["likely"]]

    def found(of: list[dict]) -> int:  # type: ignore[type-arg]
        return sum(any(one.right for one in row["answers"]) for row in of)

    by_kind = []
    for kind in KINDS:
        mine = [row for row in rows if row["kind"] == kind and row["large"]]
        if kind != "none" and mine:
            by_kind.append(f"{kind} {found(mine) / len(mine):.0%} of {len(mine)}")
    table = [
        ("answers at 90 % or more that are right", share(sum(one.right for one in own), len(own))),
        ("planted patterns that are answered", share(found(large), len(large))),
        ("something found where nothing is", share(sum(bool(row["answers"]) for row in nothing), len(nothing))),
        ("answers called likely (75 to 90 %) that are right", share(sum(likely), len(likely))),
        ('naive rule "twice on a node": right', share(sum(twice), len(twice))),
        ('naive rule "twice on a node": something found where nothing is', share(sum(row["twice"] is not None for row in nothing), len(nothing))),
        ('naive rule "most frequent node": right', share(sum(row["most"] for row in rows), len(rows))),
    ]  # fmt: skip
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}"
    head = f"{len(rows):,} simulated histories of seed {seed}, measured on {date.today().isoformat()} ({machine}; {seconds:.0f} s), with 95 % intervals:"
    lines = [head, "", "| | |", "|---|---|", *(f"| {name} | {value.strip()} |" for name, value in table), ""]
    return "\n".join([*lines, f"Planted patterns answered, by kind: {', '.join(by_kind)}."])


def write_page(path: Path, table: str) -> None:
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    path.write_text(f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}", encoding="utf-8")


def _mixed(rows: list[dict]) -> None:  # type: ignore[type-arg]
    both = [row for row in rows if len(row["planted"]) >= 2 and min(row["planted"].values()) >= 4]
    one = sum(any(answer.right for answer in row["answers"]) for row in both)
    two = sum(sum(answer.right for answer in row["answers"]) >= 2 for row in both)
    print(
        f"\ntwo causes mixed, each with 4 hits or more: one found {share(one, len(both))}, both found {share(two, len(both))}"
    )


def _calibration(rows: list[dict]) -> None:  # type: ignore[type-arg]
    print("\nbest pattern weighed, by its posterior: how often it is right")
    for low, high in ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 0.9), (0.9, 0.97), (0.97, 1.01)):
        mine = [row["best"][1] for row in rows if row["best"] and low <= row["best"][0] < high]
        print(f"  {low:4.0%} to {min(1, high):4.0%}   {share(sum(mine), len(mine))}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--histories", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the table between its marks there")
    asked = parser.parse_args()
    start = time.perf_counter()
    seeds = range(asked.seed * 1_000_000, asked.seed * 1_000_000 + asked.histories)
    with ProcessPoolExecutor(asked.workers) as pool:
        rows = list(pool.map(judge, seeds, chunksize=50))
    good = report(rows)
    if asked.page:
        write_page(asked.page, page_table(rows, asked.seed, time.perf_counter() - start))
    print(f"\n{time.perf_counter() - start:.0f} s; " + ("all bars hold" if good else "A BAR IS MISSED"))
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
