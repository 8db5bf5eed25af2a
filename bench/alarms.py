#!/usr/bin/env python3
"""How often a healthy job is called stuck, and how soon a stuck one: `python bench/alarms.py [--hours 1000]`.

Step times are made up: each rank's phases last a log-normal time (the spread is drawn for each job), with pauses that
come at random (garbage, a cold page cache, a shared file system: exponential, up to 20 s on average), evaluations and
checkpoints, lengths that grow, and restarts from the beginning. The detector of `whichrank run` sees them as it would see
the rings, each second. A pause that a job has never had before and that is longer than the limit is told as a stall and
taken back afterwards: that is what counts here as a false alarm, and the price of a lower limit.
"""

from __future__ import annotations

import argparse
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from whichrank.watch.detector import Detector, Seen, Stall

WORLD = 4
LOOK = 1.0
KEPT = 512


@dataclass(frozen=True, slots=True)
class Habits:
    """What a job is like: seconds of its phases, spread of their logarithm, pauses an hour and their mean seconds."""

    data: float
    compute: float
    spread: float
    pauses: float
    pause: float
    grows: float
    evaluates: int


def habits(chance: random.Random) -> Habits:
    return Habits(
        data=10 ** chance.uniform(-3, -0.5),
        compute=10 ** chance.uniform(-1, 0.7),
        spread=chance.uniform(0.02, 0.8),
        pauses=chance.choice((0, 1, 4, 20)),
        pause=chance.uniform(0.5, 5.0),
        grows=chance.choice((1.0, 1.0, 1.0005)),
        evaluates=chance.choice((0, 200, 1000)),
    )


Row = list[tuple[str, float]]


def steps(kind: Habits, chance: random.Random) -> Iterator[list[Row]]:
    """Each step's (phase, seconds) of every rank; without the collective at its end."""
    number, compute = 0, kind.compute
    while True:
        number += 1
        compute = min(compute * kind.grows, 10 * kind.compute)
        length = chance.lognormvariate(0, kind.spread / 2)  # of this batch, on all ranks
        rows = []
        for _ in range(WORLD):
            row = [
                ("data", kind.data * chance.lognormvariate(0, kind.spread)),
                ("compute", compute * length * chance.lognormvariate(0, kind.spread / 2)),
            ]
            if kind.pauses and chance.random() < kind.pauses * (kind.data + compute) / 3600 / WORLD:
                row.append((chance.choice(("data", "compute")), chance.expovariate(1 / kind.pause)))
            rows.append(row)
        if kind.evaluates and number % kind.evaluates == 0:
            lasts = chance.uniform(20, 60)
            for row in rows:
                row.append(("evaluation", lasts * chance.uniform(0.9, 1.1)))
            rows[0].append(("checkpoint", chance.uniform(2, 30)))
        yield rows


class Watched:
    """One job under the detector."""

    def __init__(self, floor: float) -> None:
        self.detector = Detector(floor)
        self.recent: list[dict[str, deque[float]]] = [{} for _ in range(WORLD)]
        self.now = self.look = 0.0
        self.step = 0
        self.alarms: list[tuple[float, Stall]] = []

    def run(self, rows: list[Row]) -> None:
        """One step of all ranks."""
        spans = []
        for row in rows:
            at, spent = self.now, []
            for phase, seconds in row:
                spent.append((phase, at, at + seconds))
                at += seconds
            spans.append(spent)
        end = max(spent[-1][2] for spent in spans) + 0.002
        for spent in spans:
            spent.append(("collective", spent[-1][2], end))
        past: list[dict[str, tuple[float, ...]]] | None = None
        while self.look < end:
            if past is None:
                past = [{name: tuple(times) for name, times in own.items()} for own in self.recent]
            seen = []
            for rank, spent in enumerate(spans):
                place = next(index for index, (_, _, to) in enumerate(spent) if self.look < to)
                seen.append(
                    Seen(rank, rank, self.step, spent[place][0], spent[place][1], past[rank], (self.step, place))
                )
            if isinstance(told := self.detector.look(seen, self.look), Stall):
                self.alarms.append((self.look, told))
            self.look += LOOK
        for own, spent in zip(self.recent, spans, strict=True):
            sums: dict[str, float] = {}
            for phase, since, to in spent:
                sums[phase] = sums.get(phase, 0.0) + to - since
            for phase in {*sums, *own}:
                own.setdefault(phase, deque(maxlen=KEPT)).append(sums.get(phase, 0.0))
        self.now, self.step = end, self.step + 1


def job(seed: int, floor: float, hours: float) -> tuple[int, float | None]:
    """False alarms in so many hours, in up to four runs of the same job; then how soon a rank that stands still is named."""
    chance = random.Random(seed)
    kind = habits(chance)
    alarms, delay = 0, None
    for _ in range(attempts := chance.choice((1, 1, 2, 4))):
        watched = Watched(floor)
        for rows in steps(kind, chance):
            if watched.now > hours * 3600 / attempts:
                break
            watched.run(rows)
        alarms += len(watched.alarms)
        before = len(watched.alarms)
        rows[1].append(("data", 3600.0))
        began = watched.now + sum(seconds for _, seconds in rows[1][:-1])
        watched.run(rows)
        later = [at - began for at, stall in watched.alarms[before:] if stall.ranks == (1,)]
        delay = later[0] if later else delay
    return alarms, delay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1000, help="job-hours for each limit (default 1000)")
    parser.add_argument("--each", type=float, default=2.0, help="hours of one job (default 2)")
    parser.add_argument("--floors", type=float, nargs="*", default=[5, 7, 10, 15, 20])
    asked = parser.parse_args()
    print("| least limit | false alarms in 1,000 job-hours | jobs without any | noticed after: median | 90 % | worst |")
    print("|---|---|---|---|---|---|")
    jobs = round(asked.hours / asked.each)
    for floor in asked.floors:
        found = [job(seed, floor, asked.each) for seed in range(jobs)]
        alarms = sum(count for count, _ in found)
        delays = sorted(delay for _, delay in found if delay is not None)
        quiet = sum(not count for count, _ in found) / len(found)
        late = [f"{delays[int(share * (len(delays) - 1))]:.0f} s" for share in (0.5, 0.9, 1.0)]
        print(f"| {floor:g} s | {alarms / asked.hours * 1000:.1f} | {quiet:.1%} | {' | '.join(late)} |", flush=True)


if __name__ == "__main__":
    main()
