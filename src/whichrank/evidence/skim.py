"""A text too large to take every line apart: its head, its end, and between them the lines that hold an anchor.

A log of gigabytes has a few hundred shapes of lines. `Survey` remembers the shapes that no reader knows (nearly all
lines); a block in which all lines are of such shapes is left behind after three passes in C: translate, split, set.
What is skimmed: the last `share` bytes whole, and a quarter of that from the first; between, each line that may say something with the lines
around it, as long as a block (a traceback, a stack) is under way; and the last words of ranks that have fallen silent
before the end.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from whichrank.evidence import stamps
from whichrank.evidence.anchors import lines_with, sieve
from whichrank.evidence.envelope import Envelope
from whichrank.evidence.frame import peel
from whichrank.evidence.scan import Recipe, Scanner, clean
from whichrank.evidence.section import heading
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
SHAPES = 30_000  # remembered at a time
SPEAKERS = 512  # whose last words are looked for
LATELY = 32 << 10  # bytes up to its last word that are looked at
HEADINGS = (b"\n##", b"\n==", b"\n**", b"\n>>", b"\n--", b"$ ", b"% ", b"# ", b">>\n")  # see section.may_head
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)


class Survey:
    """What lines of which shape are worth: learnt once, used for all files. A shape here: digits as zeros."""

    def __init__(self, scanner: Scanner) -> None:
        self.scanner = scanner
        self.sieve = sieve((*HEADINGS, *(anchor.encode().translate(_DIGITS) for anchor in scanner.anchors)))
        self.dull: set[bytes] = set()
        self.live: dict[bytes, Recipe | None] = {}  # None: a heading

    def wanted(self, block: bytes) -> list[tuple[int, bytes]]:
        """Lines of `block` that may say something: (index, shape), in order."""
        shapes = block.translate(_DIGITS).split(b"\n")
        seen = set(shapes)
        seen -= self.dull
        if new := seen - self.live.keys():
            self._learn(new, shapes, block)
        live = {shape for shape in seen & self.live.keys() if self._telling(shape)}
        return [(index, shape) for index, shape in enumerate(shapes) if shape in live] if live else []

    def _telling(self, shape: bytes) -> bool:
        """A recipe runs dry when its patterns have failed often enough on lines of its shape."""
        recipe = self.live[shape]
        if recipe is None or recipe.telling:
            return True
        del self.live[shape]
        self.dull.add(shape)
        return False

    def _learn(self, new: set[bytes], shapes: Sequence[bytes], block: bytes) -> None:
        if len(self.dull) + len(self.live) > SHAPES:
            self.dull.clear()
            self.live.clear()
        hopeful = lines_with(self.sieve, b"\n".join(new))
        if hopeful:
            lines = block.split(b"\n")
            for shape, index in {shape: index for index, shape in enumerate(shapes) if shape in hopeful}.items():
                raw = clean(lines[index][:LONG].decode("utf-8", "replace")).rstrip("\r")
                recipe = self.scanner.recipe(raw)
                if recipe.telling:
                    self.live[shape] = recipe
                elif recipe.heads and heading(raw):
                    self.live[shape] = None
        self.dull |= new - self.live.keys()


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

    def __init__(self, survey: Survey, source: Source, default: Identity, share: int, kept: int) -> None:
        self.survey, self.source, self.default, self.share, self.kept = survey, source, default, share, kept
        self.line = 0  # number of lines that are behind
        self.stampless = 0  # searches for a stamp that found none
        self.fed = 0  # number of the last line that was taken apart
        self.left = 0  # lines that still belong to what was found last
        self.taken: Counter[str] = Counter()  # shape -> its lines between head and end
        self.gaps: list[Gap] = []
        self.total = 0
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
                if self._enough(shape, index):
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

    def _enough(self, shape: bytes, index: int) -> bool:
        recipe = self.survey.live.get(shape)
        alike = recipe.shape if recipe else ""
        self.taken[alike] += 1
        self.total += 1
        if self.taken[alike] <= ALIKE and self.total <= MOST:
            return False
        if self.taken[alike] == ALIKE + 1 or self.total == MOST + 1:
            line = self.line + index + 1
            why = f"very many lines like line {line}: of those after it only the last were taken apart"
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
                if line.startswith(label) and line.translate(_DIGITS) not in self.survey.live:
                    heard[number] = line
        for number, line in sorted(heard.items()):
            self._feed([line.decode("utf-8", "replace")], number)
