"""Where the ranks parted, read from their own ordinary output.

Ranks of a data-parallel job say the same things with other numbers. Three kinds of parting are looked for in what was
said last before the collective that nobody finished:

branch   one line in two versions with the same beginning, some ranks the one, the others the other
         ("… -> saving" on rank 0, "… -> not better" on ranks 1-3)
count    the same line, an integer that was always equal over the ranks differs ("-> 4 micro-batches", the others 5)
alone    a line that only some ranks said, although such lines are otherwise said by all, or never ("skip sample …")

Nothing is concluded from a rank whose log is not there or not complete.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from whichrank.facts import Said
from whichrank.findings.arrivals import Arrivals
from whichrank.job.model import Job, before

TAIL = 60  # lines of each rank that count as "last"
MEMORY = 600  # lines of each rank that are compared at all
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w]*\.\d)")
_COUNTED = re.compile(
    r"\b(?:micro-?batch(?:es)?|batch(?:es)?|samples?|examples?|cuts|utterances?|items?|rows|records|shards?|files|sequences?|documents?|steps|iterations?|len(?:gth)?|size|num(?:ber)?|chunks?|buckets?|tokens|images?|frames|clips|prompts?|rollouts?|experts?|layers|params|parameters|tensors|groups?|nodes|boxes|objects|splits?|turns?)\b",
    re.I,
)
_LEAVES = re.compile(
    r"\b(?:skip(?:ped|ping|s)?|drop(?:ped|ping|s)?|discard(?:ed|ing)?|ignor(?:e|ed|ing)|exhausted|stopiteration|no more (?:data|batches|samples)|end of (?:data|epoch|shard|stream|dataset)|ran out(?! of (?:the |gpu |cuda |host |cpu |its )?(?:memory|time|disk|space|retries|attempts))|out of (?:data|samples|batches)|early[- ]stop(?:ping|ped)?|stopping early|nan|inf(?:inite)?|overflow|not finite|non-finite|empty (?:batch|loss|mask|sequence)|no (?:valid|positive|foreground|samples|targets|boxes|objects|images|labels)|finished (?:its |the )?(?:epoch|shard|data|loop)|leaving|left the loop|break(?:ing)?|returned? early|fallback|resampl|truncat|padd?ing|bypass|continue)\b",
    re.I,
)
NEXT_PHASE = re.compile(
    r"\bcv\b|\bvalid(?:ation|ating|ate)?\b|\beval(?:uation|uating|uate)?\b|\btest(?:ing)? (?:set|loop)\b|\b(?:end of|finished|done with|completed) (?:the )?epoch|\bepoch \d+ (?:end|done|finished|complete)|"
    r"\bon_(?:train_|epoch_|batch_)?end\b|\bon_\w+_end\b|\b(?:entering|waiting (?:at|in)|reached) (?:the |final )*barrier|\bwaiting for (?:the )?others?\b|\bsaving (?:the )?(?:last|final|epoch)",
    re.I,
)
_NOISE = re.compile(
    r"NCCL (?:INFO|WARN)|ProcessGroup|Traceback|^\s*File \"|^frame #|Warning:|warn\(|\bDEBUG\b.*urllib|OMP_NUM_THREADS|^\s*$|it/s|s/it|%\|"
)
_LABEL = re.compile(
    r"\br(?:ank)?[ _=:]*\d+\b|\bpid[ =:]*\d+|cuda:\d+|\bGPU ?\d+|\bgpu ?\d+|\bdevice[ =:]*\d+|\b\d{4}-\d\d-\d\d[T ]|\d\d:\d\d:\d\d(?:[.,]\d+)?|0x[0-9a-f]+|\bseed[ =:]*\d+",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Side:
    ranks: tuple[int, ...]
    line: Said
    value: str = ""


@dataclass(frozen=True, slots=True)
class Parting:
    """`minority` are the ranks on the smaller side; `sure` is how telling it is (0..1)."""

    kind: Literal["branch", "count", "alone"]
    sides: tuple[Side, ...]
    minority: tuple[int, ...]
    sure: float
    leaves: bool = False  # the odd line itself says that work was skipped or ended
    next_phase: bool = False  # the odd line stands for the next phase: the others are still in the loop
    counted: str = ""  # what a count counts


def partings(job: Job, arrived: Arrivals) -> tuple[Parting, ...]:
    """All partings, the most telling first."""
    tails = _tails(job, arrived)
    if not tails or len(job.ranks) < 2:
        return ()
    found = [*_branches(tails), *_counts(tails), *_alone(tails)]
    return tuple(sorted(found, key=lambda parting: -parting.sure))


def _tails(job: Job, arrived: Arrivals) -> dict[int, list[Said]]:
    """Each rank's lines before the first timeout, all of them, the ordinary ones only."""
    tails: dict[int, list[Said]] = {}
    for rank, info in job.ranks.items():
        if info.coverage in ("cut", "rate_limited"):
            continue
        lines = [
            line
            for line in info.said[-MEMORY:]
            if line.spot.source.kind in ("training", "unknown")
            and not _is_noise(line)
            and not (arrived.first is not None and before(arrived.first, line) is True)
        ]
        if lines:
            tails[rank] = lines
    return tails


_NOISY: dict[str, bool] = {}


def _is_noise(line: Said) -> bool:
    found = _NOISY.get(line.shape)
    if found is None:
        found = _NOISY[line.shape] = bool(_NOISE.search(line.text))
    return found


@lru_cache(maxsize=65536)
def _key_of(text: str) -> str:
    return re.sub(r"\d+(?:\.\d+)?", "#", _LABEL.sub("", text)).strip()


def _key(line: Said) -> str:
    """The line with its numbers and labels taken out: the same for all lines of one shape."""
    found = _KEYS.get(line.shape)
    if found is None:
        found = _KEYS[line.shape] = _key_of(line.text)
    return found


_KEYS: dict[str, str] = {}


def _last_by_key(lines: Sequence[Said]) -> dict[str, tuple[int, Said]]:
    """For each key in a rank's tail: how many lines from the end its last one stands, and that line."""
    found: dict[str, tuple[int, Said]] = {}
    for back, line in enumerate(reversed(lines[-TAIL:])):
        found.setdefault(_key(line), (back, line))
    return found


# --- branch --------------------------------------------------------------------------------------------------------


def _branches(tails: dict[int, list[Said]]) -> Iterable[Parting]:
    """Two versions of a line with one beginning, each rank's *last* such line decides on which side it is."""
    heads: dict[str, dict[int, tuple[str, Said]]] = defaultdict(dict)
    for rank, lines in tails.items():
        for line in lines[-TAIL:]:
            key = _key(line)
            head = _head(key)
            if head:
                heads[head][rank] = (key, line)
    for head, said in heads.items():
        versions: dict[str, list[int]] = defaultdict(list)
        for rank, (key, _) in said.items():
            versions[key].append(rank)
        if len(versions) != 2 or len(said) < max(2, len(tails) - len(tails) // 4):
            continue
        (a, a_ranks), (b, b_ranks) = sorted(versions.items(), key=lambda item: (len(item[1]), min(item[1])))
        if not _same_turn([said[rank][1] for rank in said]):
            continue
        history = _agreed_before(tails, head)
        sure = 0.9 if history >= 2 else 0.75 if history == 1 else 0.55
        sides = (
            Side(tuple(sorted(a_ranks)), said[a_ranks[0]][1], a),
            Side(tuple(sorted(b_ranks)), said[b_ranks[0]][1], b),
        )
        yield Parting(
            "branch",
            sides,
            tuple(sorted(a_ranks)),
            sure,
            bool(_LEAVES.search(said[a_ranks[0]][1].text) or _LEAVES.search(said[b_ranks[0]][1].text)),
        )


def _head(key: str) -> str:
    """The beginning that versions of a line share: its first words, at least a dozen letters."""
    words = key.split()
    head = " ".join(words[:4])
    return head if len(re.sub(r"[^A-Za-z]", "", head)) >= 8 and len(words) > 4 else ""


def _same_turn(lines: Sequence[Said]) -> bool:
    """Do they speak of the same step or epoch? Their first small integers agree, or they were said together."""
    firsts = {next(iter(_integers(line)), None) for line in lines}
    if len(firsts) == 1:
        return True
    times = [line.at_ns for line in lines if line.at_ns]
    return len(times) == len(lines) and max(times) - min(times) < 120_000_000_000


def _agreed_before(tails: dict[int, list[Said]], head: str) -> int:
    """How many earlier turns all ranks said the same version."""
    series = []
    for lines in tails.values():
        keys = [key for line in lines if _head(key := _key(line)) == head]
        series.append(keys[:-1][-20:])
    depth = min(map(len, series), default=0)
    return sum(len({keys[-turn] for keys in series}) == 1 for turn in range(1, depth + 1))


# --- count ---------------------------------------------------------------------------------------------------------


def _integers(line: Said) -> list[int]:
    text = _LABEL.sub(" ", line.text)
    return [int(found) for found in _NUMBER.findall(text) if "." not in found]


def _counts(tails: dict[int, list[Said]]) -> Iterable[Parting]:
    shapes: dict[str, dict[int, list[Said]]] = defaultdict(lambda: defaultdict(list))
    for rank, lines in tails.items():
        for line in lines:
            shapes[_key(line)][rank].append(line)
    for said in shapes.values():
        if len(said) < max(2, len(tails) - len(tails) // 4):
            continue
        yield from _count(said)


def _count(said: dict[int, list[Said]]) -> Iterable[Parting]:
    """One shape, said by (nearly) all ranks: compare its integers turn by turn from the end."""
    depth = min(len(lines) for lines in said.values())
    depth = min(depth, 41)
    rows = {rank: [_integers(line) for line in lines[-depth:]] for rank, lines in said.items()}
    width = min((len(row) for turns in rows.values() for row in turns), default=0)
    for column in range(width):
        last = {rank: turns[-1][column] for rank, turns in rows.items()}
        tally = Counter(last.values())
        if len(tally) < 2 or len(tally) > max(2, len(last) // 3):
            continue
        earlier = [
            len({turns[turn][column] for turns in rows.values()}) == 1 for turn in range(max(0, depth - 40), depth - 1)
        ]
        if earlier and sum(earlier) < 0.9 * len(earlier):
            continue
        if any(
            {turns[-1][other] for turns in rows.values()} != {rows[next(iter(rows))][-1][other]}
            for other in range(column)
            if _is_turn(rows, other, depth)
        ):
            continue  # they do not speak of the same step
        common = tally.most_common(1)[0][0]
        minority = tuple(sorted(rank for rank, value in last.items() if value != common))
        if len(minority) * 2 > len(last):
            continue
        odd = said[minority[0]][-1]
        word = _counted_word(odd.text, last[minority[0]])
        if not earlier and not word:
            continue
        usual = said[next(rank for rank, value in last.items() if value == common)][-1]
        sure = 0.93 if len(earlier) >= 3 and word else 0.85 if len(earlier) >= 3 else 0.8 if word else 0.5
        if not earlier and len(minority) * 2 == len(last):
            sure = 0.4
        sides = (
            Side(minority, odd, str(last[minority[0]])),
            Side(tuple(sorted(set(last) - set(minority))), usual, str(common)),
        )
        yield Parting("count", sides, minority, sure, counted=word)


def _is_turn(rows: dict[int, list[list[int]]], column: int, depth: int) -> bool:
    """Is this field a step counter: it changes from turn to turn and was equal over the ranks?"""
    if depth < 2:
        return False
    one = next(iter(rows.values()))
    return one[-1][column] != one[-2][column] and len({turns[-2][column] for turns in rows.values()}) == 1


def _counted_word(text: str, value: int) -> str:
    """What the number counts: a counting word next to it."""
    for match in re.finditer(rf"(?<![\w.]){value}(?![\w.])", text):
        near = text[max(0, match.start() - 28) : match.end() + 24]
        if word := _COUNTED.search(near[28:]) or _COUNTED.search(near):
            return word[0]
    return ""


# --- alone ---------------------------------------------------------------------------------------------------------


def _alone(tails: dict[int, list[Said]]) -> Iterable[Parting]:
    spoken: dict[str, dict[int, int]] = defaultdict(dict)
    for rank, lines in tails.items():
        for key, count in Counter(_key(line) for line in lines).items():
            spoken[key][rank] = count
    kin = _Kin(spoken)
    leads = min(tails)
    answers = _Answers(tails)
    seen: set[tuple[str, tuple[int, ...]]] = set()
    for rank, lines in tails.items():
        for key, (back, line) in _last_by_key(lines).items():
            leaves = bool(_LEAVES.search(line.text))
            if back > 12 or (len(tails) < 2 and not leaves) or spoken[key].get(rank, 0) > 20:
                continue
            alike = answers.to(key, line)
            if len(tails) > 1 and 2 * len(alike | {rank}) > len(tails):
                continue  # most said it: nothing sets these ranks apart
            together = tuple(sorted({rank, *alike}))
            said_by_all = len(kin.of(key)) == len(tails)
            if len(spoken[key]) > max(1, len(tails) // 3) and not said_by_all:
                continue
            if (not leaves and together == (leads,)) or (key, together) in seen:
                continue  # the first rank reports for all
            seen.add((key, together))
            ahead = bool(NEXT_PHASE.search(line.text)) and back <= 2 and len(tails) > 1
            sure = 0.6 if ahead else 0.3 if not leaves else 0.6 if len(tails) < 2 else 0.85 if said_by_all else 0.75
            yield Parting("alone", (Side(together, line),), together, sure, leaves, ahead)


class _Kin:
    """Which ranks ever said a line with the beginning of this one."""

    def __init__(self, spoken: dict[str, dict[int, int]]) -> None:
        self.spoken, self.ordered = spoken, sorted(spoken)
        self.known: dict[str, set[int]] = {}

    def of(self, key: str) -> set[int]:
        head = " ".join(key.split()[:3])
        if (found := self.known.get(head)) is None:
            found = self.known[head] = set()
            for at in range(bisect_left(self.ordered, head), len(self.ordered)):
                if not self.ordered[at].startswith(head):
                    break
                found.update(self.spoken[self.ordered[at]])
        return found


class _Answers:
    """Which ranks said the same thing at the same time, looked up instead of asked of each pair of ranks."""

    def __init__(self, tails: dict[int, list[Said]]) -> None:
        self.all: dict[str, set[int]] = defaultdict(set)
        self.numbered: dict[tuple[str, str], set[int]] = defaultdict(set)
        self.minutes: dict[tuple[str, int | None], set[int]] = defaultdict(set)
        self.known: dict[tuple[str, frozenset[str], int | None], set[int]] = {}
        for rank, lines in tails.items():
            for line in lines[-TAIL:]:
                key = _key(line)
                self.all[key].add(rank)
                self.minutes[key, _minute(line)].add(rank)
                for number in _long_numbers(line.text):
                    self.numbered[key, number].add(rank)

    def to(self, key: str, line: Said) -> set[int]:
        """Ranks with such a line within a minute or two, and one of its longer numbers in it if it has any."""
        numbers, minute = _long_numbers(line.text), _minute(line)
        if (key, numbers, minute) not in self.known:
            ranks = set[int]().union(*(self.numbered[key, number] for number in numbers)) if numbers else self.all[key]
            if minute is not None:
                near = (self.minutes.get((key, at), set()) for at in (minute - 1, minute, minute + 1, None))
                ranks = ranks & set[int]().union(*near)
            self.known[key, numbers, minute] = ranks
        return self.known[key, numbers, minute]


def _minute(line: Said) -> int | None:
    return None if line.at_ns is None else line.at_ns // 60_000_000_000


@lru_cache(maxsize=65536)
def _long_numbers(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\d{3,}", _LABEL.sub("", text)))
