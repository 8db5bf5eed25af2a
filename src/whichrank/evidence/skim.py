"""A text too large to take every line apart: its head, its end, and between them the lines that hold an anchor.

A log of gigabytes has a few hundred shapes of lines. `Survey` remembers the shapes that no reader knows (nearly all
lines); a block in which all lines are of such shapes is left behind after three passes in C: translate, split, set.
What is skimmed: the last `share` bytes whole, and a quarter of that from the first; between, each line that may say something with the lines
around it, as long as a block (a traceback, a stack) is under way; and the last words of ranks that have fallen silent
before the end.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from whichrank.evidence import stamps
from whichrank.evidence.anchors import lines_with, sieve
from whichrank.evidence.envelope import Envelope
from whichrank.evidence.frame import peel
from whichrank.evidence.scan import Keep, Recipe, Scanner, clean
from whichrank.evidence.section import heading, may_head
from whichrank.facts import Fact, Gap, Identity, Said, Source

BLOCK = 2 << 20
HEAD = 4  # the head's part of a share: how the job began takes less than how it ended
LONG = 1 << 20  # bytes of one line; of a longer one the first and the last half of that
BEFORE, AFTER = 2, 2  # lines around one that may say something
CONTEXT = 200  # lines before it that are searched for a stamp
PATIENCE = 50
FOLLOW = 400  # lines after it, as long as a block is under way
MOST = 30_000  # lines between head and end that are taken apart
ALIKE = 10_000  # of them, lines of one shape
FIRST = 20  # lines of a speaker with the same anchors, that are taken apart in any case
SORTS = 20_000  # speakers with their anchors, counted
SHAPES = 30_000  # remembered at a time
SPEAKERS = 512  # whose last words are looked for
LATELY = 32 << 10  # bytes up to its last word that are looked at
SAME_DIGIT = bytes.maketrans(b"123456789", b"0" * 9)
HEADINGS = (b"\n##", b"\n==", b"\n**", b"\n>>", b"\n--", b"$ ", b"% ", b"# ", b">>\n")  # see section.may_head
_LABEL = re.compile(rb"\s{0,4}(?:\[(?:rank|default|)\d{1,6}\]|\d{1,6}:)")
Sort = frozenset[bytes]  # the anchors that a line holds


class Telling:
    """Lines of one shape that may say something. Their recipe is found when one is first taken apart; a heading has none."""

    __slots__ = ("heading", "recipe", "sort")

    def __init__(self, sort: Sort, heading: bool) -> None:
        self.sort, self.heading = sort, heading
        self.recipe: Recipe | None = None


class Survey:
    """What lines of which shape are worth: learnt once, used for all files, by one thread. A shape here: digits as zeros."""

    def __init__(self, scanner: Scanner) -> None:
        self.scanner = scanner
        self.sieve = sieve((*HEADINGS, *(anchor.encode().translate(SAME_DIGIT) for anchor in scanner.anchors)))
        self.dull: set[bytes] = set()
        self.live: dict[bytes, Telling] = {}

    def wanted(self, block: bytes) -> list[tuple[int, bytes]]:
        """Lines of `block` that may say something: (index, shape), in order."""
        shapes = block.translate(SAME_DIGIT).split(b"\n")
        seen = set(shapes)
        seen -= self.dull
        if new := seen - self.live.keys():
            if len(self.dull) + len(self.live) > SHAPES:
                self.dull.clear()
                self.live.clear()
                new = seen
            self._learn(new, shapes, block)
        live = seen & self.live.keys()
        return [(index, shape) for index, shape in enumerate(shapes) if shape in live] if live else []

    def tells(self, shape: bytes, raw: bytes) -> bool:
        """May this line say anything? A recipe runs dry when its patterns have failed often enough on such lines."""
        telling = self.live.get(shape)
        if telling is None:
            return False
        if telling.heading:
            return True
        if telling.recipe is None:
            telling.recipe = self.scanner.recipe(_clean(raw))
        if not telling.recipe.telling:
            del self.live[shape]
            self.dull.add(shape)
        return telling.recipe.telling

    def _learn(self, new: set[bytes], shapes: Sequence[bytes], block: bytes) -> None:
        hopeful = lines_with(self.sieve, b"\n".join(new))
        if hopeful:
            lines = block.split(b"\n")
            sorts: dict[Sort, Sort] = {}  # each kept once
            for shape, index in {shape: index for index, shape in enumerate(shapes) if shape in hopeful}.items():
                sort = frozenset(hopeful[shape])
                sort = sorts.setdefault(sort, sort)
                if sort - _HEADINGS:
                    self.live[shape] = Telling(sort, False)
                elif may_head(raw := _clean(lines[index])) and heading(raw):
                    self.live[shape] = Telling(sort, True)
        self.dull |= new - self.live.keys()


_HEADINGS = frozenset(HEADINGS)


def _clean(line: bytes) -> str:
    return clean(line[:LONG].decode("utf-8", "replace")).rstrip("\r")


class Stretch(NamedTuple):
    """Some lines, and the number of lines before them."""

    before: int
    text: bytes

    def heard(self, label: bytes) -> bool:
        return self.text.startswith(label) or b"\n" + label in self.text

    def line(self, index: int) -> bytes:
        """One of the last lines, -1 is the last. Empty where there are not so many."""
        lines = self.text[-LATELY:].split(b"\n")
        return lines[index - 1] if len(lines) >= 1 - index else b""

    def last(self, label: bytes) -> Stretch:
        """The last line that begins with `label`, and what stands before it."""
        end = self.text.find(b"\n", self.text.rfind(b"\n" + label) + 1) + 1
        begin = self.text.rfind(b"\n", 0, max(0, end - LATELY)) + 1
        return Stretch(self.before + self.text.count(b"\n", 0, begin), self.text[begin:end])


class Skim:
    """One large text under way."""

    def __init__(self, survey: Survey, source: Source, default: Identity, share: int, kept: Keep) -> None:
        self.survey, self.source, self.default, self.share, self.kept = survey, source, default, share, kept
        self.line = 0  # number of lines that are behind
        self.stampless = 0  # searches for a stamp that found none
        self.fed = 0  # number of the last line that was taken apart
        self.left = 0  # lines that still belong to what was found last
        self.taken: Counter[bytes] = Counter()  # shape -> its lines between head and end
        self.sorts: Counter[tuple[Sort, bytes]] = Counter()  # anchors and speaker -> their lines there
        self.total = self.beyond = 0
        self.full = False
        self.gaps: list[Gap] = []
        self.speakers: dict[bytes, Stretch | None] = {}  # a rank's label -> its last words, once it falls silent
        self.block = Stretch(0, b"")  # the last one that was skimmed

    def run(self, blocks: Iterable[bytes], envelope: Envelope | None) -> tuple[list[Fact], list[Said]]:
        """Facts and ordinary lines of a text that comes in blocks, the first of them at least `share` long."""
        self.envelope = envelope
        whole = self._whole_lines(blocks)
        head = next(whole)
        first = head[: head.rfind(b"\n", 0, self.share // HEAD) + 1] or head
        lines = first.decode("utf-8", "replace").split("\n")
        peeled = envelope.unwrap(lines, range(1, len(lines) + 1)).lines if envelope else lines
        self.pass_ = self.survey.scanner.begin(self.source, self.default, peeled, self.kept)
        self._all(first)
        self._listen(lines)
        held = deque([head[len(first) :]])
        size = len(held[0])
        for block in whole:
            held.append(block)
            size += len(block)
            while size - len(held[0]) >= self.share:
                size -= len(held[0])
                self._between(held.popleft())
        self._end(b"".join(held))
        self.source.lines = self.line
        return self.pass_.finish()

    def _end(self, rest: bytes) -> None:
        cut = rest.rfind(b"\n", 0, max(0, len(rest) - self.share)) + 1
        if cut:
            self._between(rest[:cut])
        rest = rest[cut:]
        self._last_words(rest)
        self._all(rest)

    def _whole_lines(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The same bytes in blocks of `BLOCK` or more that end with a line's end."""
        lines: list[bytes] = []
        unfinished: list[bytes] = []  # the line under way
        full = size = lost = 0
        for block in blocks:
            end = block.rfind(b"\n") + 1
            if end:
                lines += (*unfinished, block[:end])
                full += size + end
                unfinished, size = [block[end:]], len(block) - end
                if full >= BLOCK:
                    yield b"".join(lines)
                    lines, full = [], 0
                continue
            unfinished.append(block)
            size += len(block)
            if size > 2 * LONG:
                joined = b"".join(unfinished)
                lost += len(joined) - LONG
                unfinished, size = [joined[: LONG // 2], joined[-LONG // 2 :]], LONG
        if full or size:
            yield b"".join((*lines, *unfinished))
        if lost:
            why = f"{lost >> 20} MiB in the middle of very long lines were not looked at"
            better = "the output with line ends (a progress bar that took a file for a terminal?)"
            self.gaps.append(Gap(self.source.path, why, better))

    def _all(self, block: bytes) -> None:
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        self._take(lines, 0, len(lines))
        self.line += len(lines)

    def _take(self, lines: Sequence[bytes], begin: int, end: int) -> None:
        texts = [line.decode("utf-8", "replace") for line in lines[begin:end]]
        self._feed(texts, self.line + begin + 1)

    def _feed(self, texts: list[str], first: int) -> None:
        self.fed = first + len(texts) - 1
        if self.envelope:
            self.pass_.feed(self.envelope.unwrap(texts, range(first, first + len(texts))))
        else:
            for number, text in enumerate(texts, first):
                self.pass_.line(number, text)

    def _between(self, block: bytes) -> None:
        """The lines of a block that may say something, and what belongs to them."""
        wanted = self.survey.wanted(block)
        if wanted or self.left:
            lines = block.split(b"\n")
            at = 0
            for index, shape in wanted:
                at = self._follow(lines, at, index)
                if self._enough(shape, lines[index], index) or not self.survey.tells(shape, lines[index]):
                    continue
                begin = max(at, index - BEFORE)
                self._jump(lines, begin)
                self._take(lines, begin, index + 1)
                at = index + 1
                self.left = FOLLOW if self.pass_.busy else AFTER
            self._follow(lines, at, len(lines) - 1)
        self._hear(Stretch(self.line, block))
        self.line += block.count(b"\n")

    def _jump(self, lines: Sequence[bytes], begin: int) -> None:
        """Lines were left out before this one: a line without a stamp needs the last stamp before it."""
        number = self.line + begin
        left_out = number - self.fed
        context = CONTEXT if self.stampless < PATIENCE else BEFORE  # a text without stamps is not searched for ever
        for back in range(1, min(left_out, context) + 1):
            line = lines[begin - back] if back <= begin else self.block.line(begin - back)
            if stamps.find(clean(line[:LONG].decode("utf-8", "replace"))):
                self._feed([line.decode("utf-8", "replace")], number - back + 1)
                return
        self.stampless += 1
        if left_out >= CONTEXT:
            self.pass_.forget_time()

    def _follow(self, lines: Sequence[bytes], at: int, end: int) -> int:
        """Lines after one that said something, as long as a block is under way. Returns where it stopped."""
        while at < end and self.left > 0:
            self._take(lines, at, at + 1)
            at += 1
            self.left = self.left - 1 if self.pass_.busy else min(self.left - 1, AFTER)
        return at

    def _enough(self, shape: bytes, line: bytes, index: int) -> bool:
        """Were so many lines like this one taken apart that it is left out? Never a speaker's first with its anchors."""
        telling = self.survey.live.get(shape)
        if telling is None:
            return True
        label = _LABEL.match(line)
        speaker = (telling.sort, label[0] if label else b"")
        if speaker in self.sorts or len(self.sorts) < SORTS:
            self.sorts[speaker] += 1
        self.total += 1
        if self.total <= MOST:
            self.taken[shape] += 1
            if self.taken[shape] <= ALIKE:
                return False
        if 0 < self.sorts[speaker] <= FIRST and self.beyond < MOST:
            self.beyond += 1
            return False
        if not self.full:
            self.full = True
            why = f"very many lines like line {self.line + index + 1}: of those after it only the first of each speaker and the last were taken apart"
            self.gaps.append(Gap(self.source.path, why))
        return True

    def _listen(self, lines: Sequence[str]) -> None:
        """Which labels stand before the lines of ranks, where several speak in one file."""
        labels: Counter[str] = Counter()
        for line in lines[-1500:] if self.default.rank is None else ():
            label = peel(line, self.pass_.dialect)
            if label.rank is not None and not label.weak and not label.soft and line.endswith(label.text):
                labels[line[: len(line) - len(label.text)]] += 1
        often = [label for label, count in labels.items() if count > 1 and label]
        if 1 < len(often) <= SPEAKERS and not self.envelope:
            self.speakers = {label.encode(): None for label in often}

    def _hear(self, words: Stretch) -> None:
        """Who spoke in the block before this one and is silent in this one: keep what it said last."""
        for label in self.speakers:
            if words.heard(label):
                self.speakers[label] = None
            elif self.speakers[label] is None and self.block.heard(label):
                self.speakers[label] = self.block.last(label)
        self.block = words

    def _last_words(self, rest: bytes) -> None:
        """What those said last who are not heard in the last part, but for lines that were taken apart before."""
        self._hear(Stretch(self.line, rest))
        heard: dict[int, bytes] = {}
        for label, words in self.speakers.items():
            for number, line in enumerate(words.text.split(b"\n") if words else (), words.before + 1 if words else 0):
                if line.startswith(label) and line.translate(SAME_DIGIT) not in self.survey.live:
                    heard[number] = line
        for number, line in sorted(heard.items()):
            self._feed([line.decode("utf-8", "replace")], number)
