"""A rank whose own times are clearly longer than its peers', in lines that all ranks print alike.

Ranks that wait for a slow one are slow in the *wait*, the slow one in its *own* work: fields named wait, sync, comm or
idle are left out, and a rank counts only if it is far above all others in the same field, turn after turn.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from whichrank.facts import Said
from whichrank.job.model import Job

RATIO = 1.4  # how far above the next slowest
TURNS = 3  # the last turns that are compared
_FIELD = re.compile(
    r"(?P<name>[A-Za-z][\w./ -]{0,24}?)['\"]?\s{0,8}(?:[:=]\s{0,8})?['\"]?(?P<value>\d+(?:\.\d+)?)\s?(?P<unit>ms|s|sec|seconds|us)\b"
)
_TIME = re.compile(
    r"fwd|bwd|forward|backward|step|iter|comp|opt|dt|time|elapsed|data|load|batch|fetch|gen|decode|save|ckpt", re.I
)
_WAIT = re.compile(r"wait|sync|comm|reduce|gather|idle|barrier|eta|left|remaining|total|wall|uptime|lr", re.I)
_DATA = re.compile(r"data|load|fetch|batch|decode|io\b|read", re.I)


@dataclass(frozen=True, slots=True)
class Laggard:
    rank: int
    field: str
    own_s: float
    others_s: float
    line: Said
    usual: Said

    @property
    def in_data(self) -> bool:
        return bool(_DATA.search(self.field))


def laggard(job: Job) -> Laggard | None:
    """The one rank that is far above all others in a time of its own, or None."""
    series: dict[tuple[str, str], dict[int, list[tuple[float, Said]]]] = defaultdict(lambda: defaultdict(list))
    timed: dict[str, bool] = {}  # shape of a line -> has it a time of the rank's own?
    for rank, info in job.ranks.items():
        for line in info.said[-200:]:
            if line.shape not in timed:
                names = [match["name"] for match in _FIELD.finditer(line.text)]
                timed[line.shape] = any(_TIME.search(name) and not _WAIT.search(name) for name in names)
            if not timed[line.shape]:
                continue
            for match in _FIELD.finditer(line.text):
                name = match["name"].strip()
                if _TIME.search(name) and not _WAIT.search(name):
                    scale = {"ms": 1e-3, "us": 1e-6}.get(match["unit"], 1.0)
                    series[line.shape[:60], name][rank].append((float(match["value"]) * scale, line))
    best: Laggard | None = None
    for (_, name), by_rank in series.items():
        rows = {rank: values[-TURNS:] for rank, values in by_rank.items() if len(values) >= TURNS}
        if len(rows) < max(3, len(job.ranks) - len(job.ranks) // 4):
            continue
        times = sorted((median(value for value, _ in values), rank) for rank, values in rows.items())
        (next_s, next_rank), (own_s, rank) = times[-2], times[-1]
        if own_s > 0.02 and own_s > RATIO * next_s and (best is None or own_s / next_s > best.own_s / best.others_s):
            best = Laggard(rank, name, own_s, next_s, rows[rank][-1][1], rows[next_rank][-1][1])
    return best
