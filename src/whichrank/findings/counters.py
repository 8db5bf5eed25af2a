"""Counters that were read more than once: what grew between two snapshots, and which were read only once.

A total says nothing of the day of the incident: it has been counting since the port came up. Snapshots of one host and
device are put in order by their times, by the lines of one file, or by names that say so (before/after, .1/.2); where
none of these tells, two files are not compared. A value that falls was reset: what it had counted before is not growth.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from whichrank.facts import Fact, slashed
from whichrank.job.clocks import span
from whichrank.job.model import Job

_PORT = re.compile(
    r"(?<![A-Za-z0-9])((?:eth|bond|hsn|ib)\d+|en(?:[osx]|p\d+s)\d\w*|mlx\d_\d+|(?:bnxt_re|irdma|erdma_|qedr|rdmap|rocep|ibp)\d\w*)(?![A-Za-z0-9])"
)
_WIDTH = 2**32  # counters of old ports wrap there
_WORDS = (
    ("before", "pre", "start", "begin", "first", "old", "initial", "baseline", "t0"),
    ("during", "mid", "middle"),
    ("after", "post", "end", "second", "new", "final", "last", "later", "t1"),
)
# A number that counts the snapshots of one thing; a number behind a device's name (eth0, mlx5_1, port2) does not.
_NUMBER = re.compile(
    r"(?:(?<=[._-])|(?<=[._-](?:t|s))|(?<=snap)|(?<=snapshot)|(?<=pass)|(?<=take)|(?<=sample))[_-]?\d+(?=[._-]|$)"
)


@dataclass(frozen=True, slots=True)
class Growth:
    """How much a counter grew, between which lines, in how many seconds (None: no clock tells)."""

    host: str | None
    device: str | None
    name: str
    by: float
    before: Fact
    after: Fact
    seconds: float | None
    reset: bool

    @property
    def proof(self) -> tuple[Fact, ...]:
        return (self.after,) if self.before is self.after else (self.before, self.after)

    @property
    def says(self) -> str:
        """ "LinkDownedCounter of mlx5_0 on n3 grew by 3 in 60 s"."""
        device = f" of {self.device}" if self.device else ""
        host = f" on {self.host}" if self.host else ""
        during = f" in {span(self.seconds)}" if self.seconds else " between two snapshots"
        return (
            f"{self.name}{device}{host} grew by {self.by:g}{during}{' (and was reset meanwhile)' if self.reset else ''}"
        )


@dataclass(frozen=True, slots=True)
class Counters:
    grown: tuple[Growth, ...]
    still: tuple[Growth, ...]  # read twice, and the same
    lone: tuple[Fact, ...]  # read once, and not zero

    def of(self, pattern: re.Pattern[str]) -> list[Growth]:
        return [growth for growth in self.grown if pattern.search(growth.name)]


def counters(job: Job, begin_ns: float = float("-inf")) -> Counters:
    """All counters of the job. What had stopped growing before `begin_ns` is another day's: neither grown nor still."""
    series: dict[tuple[str | None, str | None, str, str], list[Fact]] = defaultdict(list)
    for fact in job.of("counter"):
        if not isinstance(fact["value"], (int, float)) or isinstance(fact["value"], bool) or fact["gauge"]:
            continue
        device = fact["device"] or fact["interface"] or fact.who.gpu or _port_of(fact.spot.source.path)
        # Files that name no host may be of different ones: only what stands in one of them is compared.
        place = "" if fact.who.host else fact.spot.source.path
        series[fact.who.host, str(device) if device else None, str(fact["name"]), place].append(fact)
    grown: list[Growth] = []
    still: list[Growth] = []
    lone: list[Fact] = []
    for (host, device, name, _), facts in series.items():
        for snapshots in _lanes(facts, device is not None):
            growth = _growth(host, device, name, snapshots)
            if growth is None:
                lone += [fact for fact in snapshots if fact["value"]][:1]
            elif not _over(growth, begin_ns):
                (grown if growth.by > 0 else still).append(growth)
    return Counters(tuple(grown), tuple(still), tuple(lone))


def _port_of(path: str) -> str | None:
    """The port that only a file's name tells.

    >>> _port_of("n7/ethtool.ens4f0np0.before.txt"), _port_of("n7.mlx5_2.txt"), _port_of("n7.ethtool.2.txt")
    ('ens4f0np0', 'mlx5_2', None)
    """
    match = _PORT.search(slashed(path).rpartition("/")[2])
    return match[1] if match else None


def _over(growth: Growth, begin_ns: float) -> bool:
    at = growth.after
    return at.at_ns is not None and at.clock in ("wall", "near") and at.at_ns < begin_ns


def _lanes(facts: Sequence[Fact], known: bool) -> list[list[Fact]]:
    """The snapshots of each counter, in order. Where no device is named, one name may stand for several ports."""
    files: dict[str, list[Fact]] = {}
    for fact in facts:
        files.setdefault(fact.spot.source.path, []).append(fact)
    for found in files.values():
        found.sort(key=lambda fact: fact.spot.line or 0)
    most = max(len(found) for found in files.values())
    stamped = all(
        a.at_ns is not None and b.at_ns is not None and a.at_ns < b.at_ns
        for found in files.values()
        for a, b in itertools.pairwise(found)
    )
    if known or most == 1 or stamped:
        return _joined([list(found) for found in files.values()])
    if any(len(found) != most for found in files.values()):
        return [[fact] for fact in facts]
    return [lane for k in range(most) for lane in _joined([[found[k]] for found in files.values()])]


def _joined(files: list[list[Fact]]) -> list[list[Fact]]:
    """The snapshots of several files as one series; each file by itself where nothing tells their order."""
    if len(files) == 1:
        return files
    firsts = [found[0] for found in files]
    if all(fact.at_ns is not None and fact.clock in ("wall", "near") for fact in firsts) and len(
        {fact.at_ns for fact in firsts}
    ) == len(firsts):
        files = sorted(files, key=lambda found: found[0].at_ns or 0)
    elif order := _by_name([fact.spot.source.path for fact in firsts]):
        files = [files[number] for number in order]
    else:
        return files
    return [[fact for found in files for fact in found]]


def _by_name(paths: Sequence[str]) -> list[int] | None:
    """The order that the files' names tell, or None.

    >>> _by_name(["n7/ethtool.after.txt", "n7/ethtool.before.txt"]), _by_name(["n7.perfquery.2", "n7.perfquery.1"])
    ([1, 0], [1, 0])
    >>> _by_name(["n7.eth0.txt", "n7.eth1.txt"]), _by_name(["a.txt", "b.txt"])
    (None, None)
    """
    words = [[re.findall(r"[a-z]+\d?", part.lower()) for part in (path.rpartition("/")[2], path)] for path in paths]
    for level in (0, 1):
        ranks = [
            [number for number, names in enumerate(_WORDS) if any(word in names for word in found[level])]
            for found in words
        ]
        if all(len(found) == 1 for found in ranks) and len({found[0] for found in ranks}) == len(paths):
            return sorted(range(len(paths)), key=lambda number: ranks[number][0])
    bare = {_NUMBER.sub("#", path) for path in paths}
    numbers = [[int(re.sub(r"\D", "", found)) for found in _NUMBER.findall(path)] for path in paths]
    if len(bare) == 1 and all(numbers) and len({tuple(found) for found in numbers}) == len(paths):
        return sorted(range(len(paths)), key=lambda number: numbers[number])
    return None


def _growth(host: str | None, device: str | None, name: str, snapshots: Sequence[Fact]) -> Growth | None:
    if len(snapshots) < 2:
        return None
    by, reset = 0.0, False
    for a, b in itertools.pairwise(fact["value"] for fact in snapshots):
        if b >= a:
            by += b - a
        elif _WIDTH > a > 0.99 * _WIDTH and b < 0.01 * _WIDTH:
            by += b + _WIDTH - a
        else:
            reset = True
    first, last = snapshots[0], snapshots[-1]
    clocks = {first.clock, last.clock} <= {"wall", "near"}
    seconds = (
        (last.at_ns - first.at_ns) / 1e9 if clocks and first.at_ns is not None and last.at_ns is not None else None
    )
    # The line that shows it is the last one that rose.
    risen = [b for a, b in itertools.pairwise(snapshots) if b["value"] > a["value"]]
    return Growth(host, device, name, by, first, risen[-1] if risen else last, seconds if seconds else None, reset)
