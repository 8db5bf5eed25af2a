"""One pass over a text: lines -> facts, by tables that readers declare.

A `Line` is a row of a table: the literal that a line must hold, and the pattern that takes it apart. A `Block` is a
small state machine for what spans lines (a traceback, a stack, a report); its anchor starts it, and it is offered the
following lines of the same speaker, so that ranks may interleave.

Anchors are looked for once for each *shape* of line (its text with the numbers taken out), not once for each line:
a log of a million lines has a few hundred shapes.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from whichrank.evidence import stamps
from whichrank.evidence.anchors import Sieve, Words
from whichrank.evidence.envelope import Part
from whichrank.evidence.fold import fold
from whichrank.evidence.frame import ANSI, Dialect, Labels, dialect_of, peel
from whichrank.evidence.section import Section, may_head
from whichrank.facts import NOBODY, Clock, Fact, Gap, Identity, Said, Source, Spot

if TYPE_CHECKING:
    from whichrank.dump import Dump
    from whichrank.evidence.digest import Digested

EXCERPT = 400  # characters of a line that are kept as proof
LONGEST = 20_000  # characters of one line that are looked at
SHORT = 300  # lines of a text that may be a note
TALL = 20_000  # of a layout, a row for each rank
OPEN = 12  # blocks of one speaker at once: each is offered every line that follows
ENOUGH = 20  # failures of a pattern on lines of one shape
OWN = "whichrank: "  # before the lines that `whichrank run` prints among the job's
SHAPES = 30_000  # remembered at a time: a text in which each line has a shape of its own must not fill the memory
FEWEST = 50  # ordinary lines of a speaker that stay in any case
SHAPELESS = 20_000  # shapes among the ordinary lines: where there are more, to compare lines by their shapes is idle


class Keep(NamedTuple):
    """How much of one source is kept. The last lines, and of the facts the first and the last: see fold.py."""

    each: int = 4000  # ordinary lines of a speaker
    lines: int = 200_000  # of all speakers
    facts: int = 20_000


ALL = Keep()
# A line of these kinds is part of what the program says as well: ranks are compared by such lines.
ALSO_SAID = {
    "config",
    "member",
    "checkpoint_saved",
    "checkpoint_saving",
    "restored",
    "success",
    "env_set",
    "folded",
    "restart",
}
_DIGITS = re.compile(r"0x[0-9a-f]+|\d+")  # pointers are numbers
_NUMBER = re.compile(r"-?\d+")
_HUGE = re.compile(r"\d{40,}")
# A progress bar leaves its line open, and the next message of any process lands behind it.
GLUED = re.compile(
    r"(?P<stream>(?:(?:\x1b\[\d+m)?\(\S+ pid=\d+[^)]*\)(?:\x1b\[0m)? )?)(?P<bar>.*?\[(?:\d+:)?\d\d:\d\d[^\]]*\])(?P<rest>(?:\[rank\d+\]: ?|\[[EWIF] ?(?:\d{3,4} [\d:.]+ )?\w+\.cpp:\d+\] |Traceback \(most).*)",
    re.S,
)
_WHO = {"rank", "local_rank", "host", "pod", "pid", "gpu", "world", "attempt", "pid_namespace"}
_NUMBERS = {"rank", "local_rank", "pid", "attempt"}
# Digits here are no number: hexadecimal, a version of one part, a name that happens to be one.
_TEXTS = {
    "a_dtype", "a_op", "address", "b_dtype", "b_op", "bus_id", "call", "comm", "comm_id", "command", "cuda",
    "device", "devices", "dtype", "error", "event", "filesystem", "host_", "interface", "keys",
    "last_error", "library", "memcg", "message", "mount", "name", "op", "options", "parent", "path", "peer_host",
    "pid_text", "plugin", "pod", "server", "source", "stat", "state", "switch", "task_memcg", "text", "transport",
    "type", "version", "wanted",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """A row: `kind` of fact, the `anchor` literal (or several, any of them), the `pattern` searched in the line.

    Named groups become the fact's parts: rank, local_rank, host, pod, pid, gpu, world go to its identity (and attempt,
    where the fact is a `member`; elsewhere it counts the attempts of something else),
    `group` and `seq` to theirs, all others to `values` (digits as int). `known` adds constant values. `tidy` may
    rewrite the values: a signal's name to its number, a list of ranks to integers. Where a line makes several facts,
    or none after all, `read` makes them from the match.
    """

    kind: str
    anchor: str | tuple[str, ...]
    pattern: str
    known: Mapping[str, Any] = field(default_factory=dict)
    tidy: Callable[[dict[str, Any]], None] | None = None
    read: Callable[[Row, re.Match[str]], Iterable[Fact]] | None = None

    @property
    def anchors(self) -> tuple[str, ...]:
        return (self.anchor,) if isinstance(self.anchor, str) else self.anchor


@dataclass(slots=True)
class Row:
    """A line under the scanner: `raw` without terminal sequences, `text` also without its labels."""

    source: Source
    no: int
    raw: str
    text: str
    who: Identity
    at_ns: int | None
    clock: Clock
    lane: object
    shape: str
    task: int | None = None
    actor: str | None = None
    command: str = ""  # of the heading that it stands under, see section.py

    def spot(self) -> Spot:
        return Spot(self.source, self.no, excerpt(self.raw))

    def fact(
        self,
        kind: str,
        *,
        who: Identity = NOBODY,
        group: str | None = None,
        seq: int | None = None,
        spot: Spot | None = None,
        **values: Any,
    ) -> Fact:
        """A fact proved by this row, about `who` as far as it says, else about the speaker."""
        return Fact(kind, spot or self.spot(), self.at_ns, self.clock, who.filled(self.who), group, seq, values)


class State(Protocol):
    """A block under way.

    A state with a true attribute `loose` is also offered the lines without a rank's label that follow in the same
    stream: C++ code labels only the first line of what it prints. One with a true attribute `patient` stays open to the
    end, and needs no line but those that hold its anchor: a large text is not taken apart for its sake.
    """

    def take(self, row: Row) -> bool | None:
        """Does this row belong to the block? False ends it; None: a stranger in between, the block stays open.

        A row that is not taken is read as any other.
        """

    def facts(self) -> Iterable[Fact]:
        """What the block said, once it has ended."""


class Block(Protocol):
    @property
    def anchors(self) -> tuple[str, ...]: ...

    def start(self, row: Row) -> State | None:
        """A new block, if this row (which holds an anchor) really starts one."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A format that is a file of its own: a pickle, a JSON document."""

    sniff: Callable[[bytes, str], bool]
    read: Callable[[bytes, Source], Iterator[Digested | Dump | Fact | Gap]]
    most: int = 32 << 20  # bytes of such a file that are read


@dataclass(frozen=True, slots=True)
class Reader:
    """What one module of evidence/ contributes.

    `note` is given the lines of a text of no more than `SHORT` lines: what people write down takes sense only whole.
    `machine`: its facts are about a machine or a job; the rank in the file's name or before the line is not theirs.

    For its page in docs/evidence and `whichrank explain` (docs/evidence.md says how to fill them in): `title`, what the
    evidence is, in a few words; `versions` of the programs whose output was read for it; `collect`, the commands or
    settings that make such evidence, each beginning with the tool's name.
    """

    name: str
    lines: tuple[Line, ...] = ()
    blocks: tuple[Block, ...] = ()
    whole: Whole | None = None
    note: Callable[[Part, Source], Iterable[Fact]] | None = None
    machine: bool = False
    title: str = ""
    versions: str = ""
    collect: tuple[str, ...] = ()


@dataclass(slots=True)
class Try:
    """A row of a table that lines of a shape may match; given up once it has failed often enough to be hopeless."""

    name: str
    line: Line
    pattern: re.Pattern[str]
    failed: int = 0

    def hopeless(self) -> bool:
        self.failed += 1
        return self.failed > ENOUGH and _blind_to_digits(self.line.pattern)


class Recipe(NamedTuple):
    """What is the same for all lines of a shape."""

    shape: str
    stamp: int | None
    lines: list[Try]
    blocks: tuple[tuple[str, Block], ...]
    heads: bool = False

    @property
    def telling(self) -> bool:
        """May a line of this shape say anything to a reader?"""
        return bool(self.lines or self.blocks)


def excerpt(text: str) -> str:
    text = text.strip().replace("\r", " ")
    return text if len(text) <= EXCERPT else text[: EXCERPT - 1] + "…"


def clean(text: str) -> str:
    """Text without terminal sequences and control characters (tabs and carriage returns stay)."""
    if not text.isprintable() and ANSI.search(text):
        text = ANSI.sub("", text)
    # A number of hundreds of digits is no number, and Python refuses to convert it, or to make a float of it.
    return _HUGE.sub("…", text) if len(text) > 250 else text


Lane = object  # who speaks: a rank, or a stream whose ranks are not told
_RANK_ALONE = re.compile(r"\[rank(\d{1,6})\]: ?(?![\[(])")  # torchrun's label with no other after it
# "[PG ID 3 PG GUID 3(mesh_dp) Rank 2]", "[PG 4 Rank 1]": a rank in that group; the default group is 0.
_SUBGROUP = re.compile(r"\[PG (?:(?!0 )\d+ Rank|(?:ID )?[^\]]*?\((?!default_pg)[^)\]]*\) Rank|ID [1-9]\d* [^\]]*Rank)")


class Scanner:
    """Compiled tables of many readers, and what was learnt of the lines: for all files, but for one thread."""

    def __init__(self, readers: Sequence[Reader], sieve: Callable[[Iterable[bytes]], Sieve] = Words) -> None:
        self._lines = [(_shaped(line.anchors), reader.name, line) for reader in readers for line in reader.lines]
        self._blocks = [(_shaped(block.anchors), reader.name, block) for reader in readers for block in reader.blocks]
        self._at = _places(anchors for anchors, *_ in self._lines)  # the shape of an anchor -> its rows
        self._block_at = _places(anchors for anchors, *_ in self._blocks)
        self._sieve = sieve({*self._at, *self._block_at})
        self._machines = {reader.name for reader in readers if reader.machine}
        self._notes = [(reader.name, reader.note) for reader in readers if reader.note]
        self._recipes: dict[str, Recipe] = {}

    @property
    def anchors(self) -> frozenset[str]:
        """The literals that every line holds which is part of a fact, but for lines within a block."""
        lines = (anchor for *_, line in self._lines for anchor in line.anchors)
        return frozenset((*lines, *(anchor for *_, block in self._blocks for anchor in block.anchors)))

    def recipe(self, raw: str) -> Recipe:
        """How to take lines of this shape apart. `raw` is clean."""
        shape = _DIGITS.sub("#", raw)
        return self._recipes.get(shape) or self._recipe(shape, raw)

    def _recipe(self, shape: str, raw: str) -> Recipe:
        """Anchors are looked for by their shapes in that of the line, so that whichever line of it came first says the same."""
        present = self._sieve.present(shape.encode("utf-8", "replace"))
        lines = [self._lines[at] for at in sorted({at for anchor in present for at in self._at.get(anchor, ())})]
        blocks = [
            self._blocks[at] for at in sorted({at for anchor in present for at in self._block_at.get(anchor, ())})
        ]
        recipe = Recipe(
            shape,
            stamps.form_of(raw),
            # A pattern is compiled when a line first holds its anchor: most never are.
            [Try(name, line, _compiled(line.pattern)) for anchors, name, line in lines if _holds(shape, anchors)],
            tuple((name, block) for anchors, name, block in blocks if _holds(shape, anchors)),
            may_head(raw),
        )
        if len(self._recipes) >= SHAPES:
            self._recipes.clear()
        self._recipes[shape] = recipe
        return recipe

    def begin(self, source: Source, default: Identity, lines: Sequence[str], kept: Keep = ALL) -> Pass:
        """A pass over a text whose lines look like `lines`; `kept` says how much of it is kept."""
        return Pass(self, source, default, dialect_of(lines), kept)

    def scan(
        self, part: Part, source: Source, default: Identity = NOBODY, kept: Keep = ALL
    ) -> tuple[list[Fact], list[Said]]:
        """All facts of a text, and its ordinary lines (as many as `kept` says)."""
        source.lines = max(source.lines, part.numbers[-1] if part.numbers else len(part.lines))
        pass_ = self.begin(source, default, part.lines, kept)
        pass_.feed(part)
        if len(part.lines) <= SHORT or regular(part.lines):
            for name, note in self._notes:
                if found := list(note(part, source)):
                    pass_.facts.extend(found)
                    pass_.used.add(name)
        return pass_.finish()


_ROW = re.compile(
    r"\s*(?:\d{1,6}[:,\s]\s*\S{1,80}|\S{1,80}(?:\s+slots\s*=\s*|[:,\s]\s*)\d{1,6})(?:[\s,]+\S{1,40}){0,4}\s*"
)


def regular(lines: Sequence[str]) -> bool:
    """A long text that begins as a layout of a large job does: a short row with a number for each rank or host."""
    if len(lines) > TALL:
        return False
    head = [line for line in lines[:40] if line.strip() and not line.startswith("#")][1:20]  # the first may be a header
    return len(head) > 5 and all(len(line) < 120 and _ROW.fullmatch(line) for line in head)


def _places(anchors: Iterable[tuple[str, ...]]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for at, several in enumerate(anchors):
        for anchor in several:
            found.setdefault(anchor.encode(), []).append(at)
    return found


def _shaped(anchors: Iterable[str]) -> tuple[str, ...]:
    return tuple(_DIGITS.sub("#", anchor) for anchor in anchors)


def _holds(shape: str, anchors: tuple[str, ...]) -> bool:
    return any(anchor in shape for anchor in anchors)


_compiled = lru_cache(maxsize=None)(re.compile)
# Digits in a pattern that are none of the line's: \d and how often from once on, lengths, [0-9a-f], names of groups.
_REPEATS = re.compile(r"\\d(?:\{[01]?,\d*\})?(?!\{)|(?<!\\d)\{\d*,?\d*\}|\[(?:[^\]\d]|0-9)*\]|\(\?P<\w+>")


@cache
def _blind_to_digits(pattern: str) -> bool:
    """Has this pattern no digit of its own? Then all lines of a shape match it or none does."""
    return not any(char.isdigit() for char in _REPEATS.sub("", pattern))


class Pass:
    """One scan under way: lines in, in their order; facts and what was said at the end."""

    def __init__(self, scanner: Scanner, source: Source, default: Identity, dialect: Dialect, kept: Keep) -> None:
        self.scanner, self.source, self.default, self.dialect, self.kept = scanner, source, default, dialect, kept
        self.facts: list[Fact] = []
        self.talk: dict[Lane, deque[tuple[int, str, str, str, Identity, int | None, int]]] = {}
        self.open: dict[Lane, list[tuple[str, State]]] = {}  # none of the lists is empty
        self.loose: dict[Lane, list[State]] = {}  # of a stream: its open states that are loose
        self.known: dict[object, Identity] = {}
        self.used: set[str] = set()
        self.section = Section()
        self.near: dict[Lane | None, int] = {}
        self.plain: set[str] = set()  # shapes of lines without any label
        self.bare: set[str] = set()  # shapes of lines with labels before their text only
        self.index = 0
        self.arrived: int | None = None  # the line under way: what its wrapping says of its time and its speaker
        self.wrapped: Identity | None = None

    def feed(self, part: Part, first: int = 1) -> None:
        """Lines that follow each other. `first` is the number of the first one, where the part does not number them."""
        for index, line in enumerate(part.lines):
            self.arrived = part.times[index] if part.times else None
            self.wrapped = part.whos[index] if part.whos else None
            self.line(part.numbers[index] if part.numbers else first + index, line)

    def forget_time(self) -> None:
        """Lines were left out: the last stamps seen say nothing of the lines that come now."""
        self.near.clear()

    @property
    def busy(self) -> bool:
        """Is a block under way that may need the next line, whatever it is?"""
        return any(not getattr(state, "patient", False) for states in self.open.values() for _, state in states)

    def line(self, number: int, line: str) -> None:
        if len(line) > LONGEST or ("\r" in line and len(line) > 300):
            for piece in line[: LONGEST * 50].split("\r"):
                if piece.strip():
                    self.row(number, piece[:LONGEST])
            return
        if ("][" in line or "]Trace" in line) and (glued := GLUED.match(line)) is not None:
            self.row(number, glued["stream"] + glued["bar"])
            self.row(number, glued["stream"] + glued["rest"].rstrip("\r"))
            return
        self.row(number, line.rstrip("\r"))

    def row(self, number: int, line: str) -> None:
        try:
            self._row(number, line)
        except Exception as error:  # a reader's own bug costs its line, never the report
            if os.environ.get("WHICHRANK_DEBUG"):
                raise
            self.source.trouble.append(f"line {number}: {type(error).__name__} in a reader")

    def _row(self, number: int, line: str) -> None:
        raw = clean(line)
        recipe = self.scanner.recipe(raw)
        label = self._label(raw, recipe.shape)
        if label.text.startswith(OWN):
            return  # what `whichrank run` concluded is no evidence of what it concluded
        stamp = self._stamp(raw, recipe)
        if recipe.heads:
            self.section.see(label.text)
        stream: Lane = (label.actor, label.pid, label.task, label.local_rank)
        if self.wrapped is not None:  # several pods in one export
            stream = (stream, self.wrapped.pod, self.wrapped.host, self.wrapped.rank)
        lane: Lane = label.rank if label.rank is not None else stream
        at_ns, clock = stamp or (None, "none")
        if stamp and clock in ("wall", "day"):
            self.near[lane] = self.near[None] = stamp[0]
        elif at_ns is None and (near := self.near.get(lane, self.near.get(None))) is not None:
            # A line without a stamp came after the last one of its speaker that had one.
            at_ns, clock = near, "near"
        who = self._who(label)
        if not (recipe.lines or recipe.blocks or self.open):
            self._remember(number, raw, label.text, recipe.shape, who, at_ns, clock, lane)
            return
        row = Row(
            self.source,
            number,
            raw,
            label.text,
            who,
            at_ns,
            clock,
            lane,
            recipe.shape,
            label.task,
            label.actor,
            self.section.command,
        )
        taken = self._offer(row, lane) or (label.soft and self._offer(row, stream))
        if label.rank is None and not taken and stream in self.loose:
            taken = any(state.take(row) for state in reversed(self.loose[stream]))
        # A row may prove a line's fact and also start a block, but it is part of one block only.
        proved = self._prove(row, recipe)
        started = not taken and self._start(row, recipe, lane, stream)
        if not (taken or started or proved):
            self._remember(number, raw, label.text, recipe.shape, who, at_ns, clock, lane)

    def _label(self, raw: str, shape: str) -> Labels:
        if shape in self.plain:
            return Labels(raw)
        if shape in self.bare and raw.startswith("[rank") and (match := _RANK_ALONE.match(raw)):
            return Labels(raw[match.end() :], rank=int(match[1]), bare=True)
        label = peel(raw, self.dialect, shape in self.bare)
        if len(self.bare) > SHAPES:
            self.bare.clear()
            self.plain.clear()
        if label.bare:  # lines of one shape carry the same labels
            self.bare.add(shape)
            if label == Labels(raw, bare=True):
                self.plain.add(shape)
        if label.weak and (self.default.rank is not None or _SUBGROUP.search(raw)):
            label = label._replace(rank=self.default.rank)
        return label

    def _stamp(self, raw: str, recipe: Recipe) -> tuple[int, Clock] | None:
        stamp = stamps.read(raw, recipe.stamp) if recipe.stamp is not None else None
        if self.arrived is not None and (stamp is None or stamp[1] != "wall"):
            return self.arrived, "wall"
        return stamp

    def _who(self, label: Labels) -> Identity:
        """The speaker: what the line's labels say, then what is known of its file, export or section."""
        key = (*label[1:7], self.wrapped, self.section.host)
        if (who := self.known.get(key)) is None:
            if len(self.known) > SHAPES:  # an export's labels may differ on each line
                self.known.clear()
            who = self.known[key] = self._made(label)
        return who

    def _made(self, label: Labels) -> Identity:
        default = self.wrapped.filled(self.default) if self.wrapped is not None else self.default
        if self.section.host and default.host is None:
            default = replace(default, host=self.section.host)
        task = None if self.dialect.task_is_rank else label.task
        who = Identity(None, None, label.rank, label.local_rank, label.host, label.pod, label.pid, None, None, task)
        if label.rank is not None and default.rank not in (None, label.rank):
            # Another rank's line in this file: what is known of the file's own rank is not its.
            return replace(who, world=default.world, attempt=default.attempt, host=label.host or default.host)
        return who if default == NOBODY else who.filled(default)

    def _prove(self, row: Row, recipe: Recipe) -> bool:
        """Facts that the line proves by itself. True if it is no ordinary talk."""
        proved = False
        for attempt in list(recipe.lines):
            if facts := _match(row, attempt.line, attempt.pattern):
                attempt.failed = -1_000_000
                self.keep(attempt.name, facts)
                proved = proved or any(fact.kind not in ALSO_SAID for fact in facts)
            elif attempt.hopeless():
                recipe.lines.remove(attempt)
        return proved

    def _start(self, row: Row, recipe: Recipe, lane: Lane, stream: Lane) -> bool:
        for name, block in recipe.blocks:
            if state := block.start(row):
                states = self.open.setdefault(lane, [])
                states.append((name, state))
                if len(states) > OPEN:
                    self._close(lane, states[0])
                if getattr(state, "loose", False) and lane is not stream:
                    self.loose.setdefault(stream, []).append(state)
                self.used.add(name)
                return True
        return False

    def _remember(
        self,
        number: int,
        raw: str,
        text: str,
        shape: str,
        who: Identity,
        at_ns: int | None,
        clock: Clock,
        lane: Lane,
    ) -> None:
        """An ordinary line. It becomes a `Said` only if it is still among the last ones at the end."""
        if not raw or raw.isspace():
            return
        self.index += 1
        if (talk := self.talk.get(lane)) is None:
            talk = self.talk[lane] = deque(maxlen=self.kept.each)
        talk.append((number, raw, text, shape, who, at_ns if clock != "boot" else None, self.index))

    def _offer(self, row: Row, lane: Lane) -> bool:
        states = self.open.get(lane)
        if not states:
            return False
        taken = False
        for entry in list(states):
            answer = entry[1].take(row)
            if answer:
                taken = True
            elif answer is not None:
                self._close(lane, entry)
        return taken

    def _close(self, lane: Lane, entry: tuple[str, State]) -> None:
        """A block has ended: what it said is kept."""
        states = self.open[lane]
        states.remove(entry)
        if not states:
            del self.open[lane]
        for loose in self.loose.values():
            if entry[1] in loose:
                loose.remove(entry[1])
        self.keep(entry[0], entry[1].facts())

    def keep(self, name: str, facts: Iterable[Fact]) -> None:
        """Facts of a reader, without the speaker's rank where they are about a machine."""
        self.used.add(name)
        if name in self.scanner._machines:
            facts = [
                replace(fact, who=replace(fact.who, rank=None, local_rank=None))
                if fact.who.rank is not None or fact.who.local_rank is not None
                else fact
                for fact in facts
            ]
        self.facts.extend(facts)
        if len(self.facts) > 2 * self.kept.facts:
            self._fold()

    def _fold(self) -> None:
        self.facts, left_out = fold(self.facts, self.kept.facts)
        for kind, count in left_out.items():
            self.source.left_out[kind] = self.source.left_out.get(kind, 0) + count

    def _trim(self) -> None:
        """Of too many ordinary lines the last of each speaker stay."""
        kept = sum(map(len, self.talk.values()))
        most = self.kept.lines
        if kept > SHAPELESS and len({row[3] for talk in self.talk.values() for row in talk}) > SHAPELESS:
            most = min(most, SHAPELESS)
        while kept > most and (longest := max(map(len, self.talk.values()))) > FEWEST:
            each = max(FEWEST, longest // 2, most // len(self.talk))
            for lane, talk in self.talk.items():
                self.talk[lane] = deque(talk, maxlen=each)
            kept = sum(map(len, self.talk.values()))

    def finish(self) -> tuple[list[Fact], list[Said]]:
        for states in self.open.values():
            for name, state in states:
                self.keep(name, state.facts())
        self._fold()
        self._trim()
        self.source.readers = tuple(sorted(self.used))
        self.source.headed = bool(self.section.command)
        self.facts.sort(key=lambda fact: fact.spot.place)
        said = [
            Said(Spot(self.source, number, excerpt(raw)), who, at_ns, text, shape, index)
            for talk in self.talk.values()
            for number, raw, text, shape, who, at_ns, index in talk
        ]
        said.sort(key=lambda line: line.index)
        return self.facts, said


def _match(row: Row, line: Line, pattern: re.Pattern[str]) -> list[Fact]:
    match = pattern.search(row.raw)
    if not match:
        return []
    return list(line.read(row, match)) if line.read else [_fact(row, line, match)]


def _fact(row: Row, line: Line, match: re.Match[str]) -> Fact:
    who: dict[str, Any] = {}
    values: dict[str, Any] = dict(line.known)
    group = seq = None
    for name, value in match.groupdict().items():
        if value is None:
            continue
        if name in _WHO and (name != "attempt" or line.kind == "member"):
            who[name] = int(value) if name in _NUMBERS else value
        elif name == "group":
            group = value
        elif name == "seq":
            seq = int(value)
        else:
            values[name] = int(value) if name not in _TEXTS and _NUMBER.fullmatch(value) else value
    if line.tidy:
        line.tidy(values)
    # The speaker's own label outranks a rank inside the message: that one may be the rank in a process group.
    identity = Identity(**who)
    identity = Identity(
        identity.world or row.who.world,
        identity.attempt if identity.attempt is not None else row.who.attempt,
        identity.rank if identity.rank is not None else row.who.rank,
        identity.local_rank if identity.local_rank is not None else row.who.local_rank,
        identity.host or row.who.host,
        identity.pod or row.who.pod,
        identity.pid if identity.pid is not None else row.who.pid,
        None,
        identity.gpu,
        row.who.task,
    )
    return Fact(line.kind, row.spot(), row.at_ns, row.clock, identity, group, seq, values)
