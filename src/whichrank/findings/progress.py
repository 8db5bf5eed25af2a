"""Progress bars and step lines: how far, how fast, how long still; who stopped when.

>>> bar_of("model.safetensors:  54%|#####     | 6.16G/11.4G [30:03<25:11, 3.47MB/s]")
Bar(label='model.safetensors', done=6160000000.0, total=11400000000.0, elapsed_s=1803.0, left_s=1511.0, rate='3.47MB/s')
>>> bar_of("step 12 of 20")
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from whichrank.facts import Said
from whichrank.job.model import Job

_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BAR = re.compile(
    r"(?P<percent>(?<!\d)\d{1,3})%\|[^|]*\|\s*(?P<done>\d{1,18}(?:\.\d+)?)(?P<ds>[kKMGT]?)B?/(?P<total>\d{1,18}(?:\.\d+)?)(?P<ts>[kKMGT]?)B?\s*"
    r"\[(?P<elapsed>[\d:]{1,20})<(?P<left>[\d:?]{1,20})(?:,\s*(?P<rate>[^\],]*))?"
)
_NUMBER = re.compile(r"(?<![\w.])(\d{1,12})(?![\w.]*\.\d)")


ENOUGH = 400  # lines that show whether a number counts


@dataclass(frozen=True, slots=True)
class Bar:
    """A tqdm-like bar. `done` and `total` in its own units, times in seconds."""

    label: str
    done: float
    total: float
    elapsed_s: float | None
    left_s: float | None
    rate: str


def _clock(text: str) -> float | None:
    if "?" in text:
        return None
    seconds = 0.0
    for part in text.split(":"):
        if not part.isdigit():
            return None
        seconds = seconds * 60 + int(part)
    return seconds


def bar_of(text: str) -> Bar | None:
    """The last progress bar in a line."""
    if "%|" not in text:
        return None
    end, found = 0, None
    for match in _BAR.finditer(text):
        end, found = found.end() if found else 0, match
    if not found:
        return None
    label = text[max(end, found.start() - 90) : found.start()].rstrip().removesuffix(":")
    return Bar(
        re.split(r"[|\r\n]", label)[-1].strip(" []"),
        float(found["done"]) * _SCALE[found["ds"]],
        float(found["total"]) * _SCALE[found["ts"]],
        _clock(found["elapsed"]),
        _clock(found["left"]),
        (found["rate"] or "").strip(),
    )


@dataclass(frozen=True, slots=True)
class Beat:
    """A regular line with a counter that grows: the pulse of a training loop."""

    rank: int | None
    source: str
    first: Said
    last: Said
    count: int
    gaps_s: tuple[float, ...]  # seconds between neighbours, where there is a clock
    values: tuple[int, ...]
    own_s: tuple[float, ...] = ()  # seconds a step by the lines' own word

    @property
    def trains(self) -> bool:
        """A bar that loads or fetches something counts too, before any training."""
        return not ("%|" in self.last.text and _LOADING.search(self.last.text))

    @property
    def typical_s(self) -> float | None:
        gaps = sorted(self.gaps_s or self.own_s)
        return gaps[len(gaps) // 2] if gaps else None

    @property
    def slowed(self) -> float:
        """How many times longer the last steps took than the first ones; 1.0 where there are too few to tell."""
        times = self.own_s if len(self.own_s) >= 16 else self.gaps_s
        part = len(times) // 4
        if part < 4:
            return 1.0
        first, last = median(times[:part]), median(times[-part:])
        return last / first if first > 0 else 1.0


SLOWED = 1.5  # times: more than data and phases of a healthy run vary between its first and last quarter


def slowing(beats: Iterable[Beat]) -> Beat | None:
    """The pulse that slowed down most, if one did by more than `SLOWED`."""
    most = max(beats, key=lambda beat: beat.slowed, default=None)
    return most if most is not None and most.slowed > SLOWED else None


_LOADING = re.compile(r"\b(?:loading|fetching|downloading|unpacking|reading)\b", re.I)

# Megatron-LM, DeepSpeed's pipeline engine, verl, and what others call it.
_OWN = re.compile(
    r"elapsed time per iteration \(ms\): (?P<ms>\d+(?:\.\d+)?)|(?:iter time \(s\): |timing_s/step:|\b(?:step|iter)_time(?:_s)?['\"]?[:=] ?)(?P<s>\d+(?:\.\d+)?)(?!\d|\.\d| ?(?:it|iter|steps?|ms|s)/)(?P<unit> ?ms\b)?"
)


def own_seconds(text: str) -> float | None:
    """How long a step took by its line's own word.

    >>> own_seconds(" iteration 100/ 5000 | consumed samples: 25600 | elapsed time per iteration (ms): 1234.5 |")
    1.2345
    >>> own_seconds("steps: 100 loss: 2.3000 iter time (s): 12.340 samples/sec: 20.746"), own_seconds("step 3 loss 2.1")
    (12.34, None)
    """
    match = _OWN.search(text)
    if match is None:
        return None
    return float(match["ms"]) / 1000 if match["ms"] else float(match["s"]) * (0.001 if match["unit"] else 1.0)


_PULSE = re.compile(r"\b(?:step|iter(?:ation)?s?|it|batch|epoch|update|loss|samples?|tokens|tok/s)\b|it/s|s/it", re.I)


def beats(job: Job) -> tuple[Beat, ...]:
    """Each speaker's most regular counting line."""
    groups: dict[tuple[int | None, str, str], list[Said]] = defaultdict(list)
    coarse: dict[str, str | None] = {}  # shape of a line -> its group; None if it is no pulse
    for line in job.said:
        if line.shape not in coarse:
            coarse[line.shape] = _coarse(line.shape) if _PULSE.search(line.text) else None
        shape = coarse[line.shape]
        if shape is not None and line.spot.source.kind in ("training", "unknown"):
            groups[line.rank, line.spot.source.path, shape].append(line)
    best: dict[tuple[int | None, str], Beat] = {}
    for (rank, path, _), lines in groups.items():
        if len(lines) < 4:
            continue
        values = _counter(lines if len(lines) <= ENOUGH else [*lines[: ENOUGH // 4], *lines[-ENOUGH:]])
        if values is None:
            continue
        gaps = tuple(
            (b.at_ns - a.at_ns) / 1e9
            for a, b in itertools.pairwise(lines)
            if a.at_ns and b.at_ns and b.at_ns >= a.at_ns
        )
        own = tuple(value for line in lines[-ENOUGH:] if (value := own_seconds(line.text)) is not None)
        beat = Beat(rank, path, lines[0], lines[-1], len(lines), gaps, tuple(values), own)
        if (rank, path) not in best or beat.count > best[rank, path].count:
            best[rank, path] = beat
    return tuple(best.values())


def _coarse(shape: str) -> str:
    """Shapes of one bar differ in its blocks and padding."""
    return re.sub(r"[\s\u2580-\u259f#.:|%-]+", " ", shape)[:48]


def _counter(lines: list[Said]) -> list[int] | None:
    """The values of the integer field that grows and falls least: the seconds of a stamp fall each minute."""
    rows = [[int(n) for n in _NUMBER.findall(line.text)[:12]] for line in lines]
    width = min(len(row) for row in rows)
    best: tuple[int, list[int]] | None = None
    for column in range(width):
        values = [row[column] for row in rows]
        rises = sum(b > a for a, b in itertools.pairwise(values))
        falls = sum(b < a for a, b in itertools.pairwise(values))
        if rises >= 0.7 * (len(values) - 1) and falls <= 0.1 * (len(values) - 1) and (best is None or falls < best[0]):
            best = falls, values
    return best[1] if best else None
