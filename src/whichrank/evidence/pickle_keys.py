"""What a pickle would use as keys, seen before it is loaded: a few bytes can keep a dictionary busy for ever.

Python's hashes of numbers are known to everybody, and so are numbers whose hashes collide: of n such keys each is
compared with all before it. A tuple of one tuple twice, forty times over, is hashed for days; one nested a million
times overflows the interpreter's own stack. A recorder's keys are text, whose hashes nobody can foresee. So numbers
are counted, and tuples of more than text, sets, and tricks with the stack that no recorder does are refused.

A call as recorders write it (PyTorch's torch/csrc/jit/serialization/pickler.cpp, Python's own pickler) is passed over
by one pattern; everything else is followed opcode by opcode, as Python's Modules/_pickle.c does.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

MOST_NUMBERS = 1000  # keys that are no text: process groups by their number
MANY = 300  # calls, from which on it pays to learn how they are written
MOST_STEPS = 6_000_000  # opcodes that are followed one by one: some seconds

# What lies on the stack. FLAT: a tuple of texts; DEEP: any other; OTHER: what can be no key, or was put
# into the memo unseen: then it is text, a list or a dictionary.
_TEXT, _NUMBER, _FLAT, _DEEP, _OTHER = range(5)
_TEXTS = (_TEXT, _OTHER)  # a tuple that holds a list or a dictionary cannot be a key

# opcode -> bytes of its argument, and what it puts on the stack
_FIXED = {
    0x80: (1, None), 0x95: (8, None),  # PROTO, FRAME
    0x4E: (0, _NUMBER), 0x88: (0, _NUMBER), 0x89: (0, _NUMBER),  # NONE, NEWTRUE, NEWFALSE
    0x4B: (1, _NUMBER), 0x4D: (2, _NUMBER), 0x4A: (4, _NUMBER), 0x47: (8, _NUMBER),  # BININT1, 2, BININT, BINFLOAT
    0x5D: (0, _OTHER), 0x7D: (0, _OTHER), 0x29: (0, _FLAT),  # EMPTY_LIST, EMPTY_DICT, EMPTY_TUPLE
}  # fmt: skip
# opcode -> bytes that tell how many bytes follow, and what it puts on the stack
_COUNTED = {
    0x58: (4, _TEXT), 0x8C: (1, _TEXT), 0x8D: (8, _TEXT),  # BINUNICODE, SHORT_BINUNICODE, BINUNICODE8
    0x54: (4, _TEXT), 0x55: (1, _TEXT), 0x42: (4, _TEXT), 0x43: (1, _TEXT), 0x8E: (8, _TEXT),  # …STRING, …BYTES
    0x8A: (1, _NUMBER), 0x8B: (4, _NUMBER),  # LONG1, LONG4
}  # fmt: skip
_LINES = {0x53: _TEXT, 0x56: _TEXT, 0x49: _NUMBER, 0x4C: _NUMBER, 0x46: _NUMBER}  # STRING, UNICODE, INT, LONG, FLOAT
_PUTS = {0x71: 1, 0x72: 4, 0x70: 0, 0x94: -1}  # BINPUT, LONG_BINPUT, PUT (a line), MEMOIZE (the next number)
_GETS = {0x68: 1, 0x6A: 4, 0x67: 0}  # BINGET, LONG_BINGET, GET (a line)
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_MARK, _TUPLE, _LIST, _DICT, _APPEND, _APPENDS, _SETITEM, _SETITEMS, _MEMOIZE, _EMPTY_DICT = b"(tldaesu\x94}"
# Here the unpickler ends by itself, and says what was asked for: GLOBAL, INST, STACK_GLOBAL, PERSID, BINPERSID, STOP
_ENDS = frozenset(b"ci\x93PQ.")
_NO_DATA = "it is no plain data, so it was not opened"


def trouble(data: bytes) -> str | None:
    """Why this pickle is not to be loaded; None where its keys are harmless, or where it breaks off before they are not.

    Time grows with its length, never faster.
    """
    walk = _Walk(data)
    try:
        walk.run()
    except _Refused as error:
        return str(error)
    except IndexError:  # too little on the stack: the unpickler gets no further than this, and says so
        pass
    return None


class _Refused(Exception):
    pass


class _Walk:
    """The stack and the memo of an unpickler, of which only the kinds are known."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.stack: list[int] = []
        self.marks: list[int] = []
        self.memo: dict[int, int] = {}
        self.bad: set[int] = set()  # numbers and deep tuples in the memo
        self.counts = False  # are things in the memo numbered by themselves (MEMOIZE, protocol 4)?
        self.kept = 0  # things in the memo, if so
        self.numbers = 0  # among the keys
        self.calls = 0
        self.usual: re.Pattern[bytes] | None = None  # calls that are written like one of this file

    def run(self) -> None:
        data, at, steps = self.data, 0, 0
        while at < len(data):
            opcode = data[at]
            if opcode == _EMPTY_DICT and not self.bad and (end := self._call(at)):
                at = end
                continue
            steps += 1
            if steps > MOST_STEPS:
                raise _Refused("far longer than its content explains, so it was not opened")
            if opcode in _ENDS:
                return
            at = self._step(opcode, at + 1)

    def _call(self, at: int) -> int:
        """Where the call ends that begins here, if it is written as recorders do."""
        found = self.usual and self.usual.match(self.data, at)
        if not found:
            found = pattern(self.counts).match(self.data, at)
            if found is None:
                return 0
            self.calls += 1
            if self.calls == MANY:
                self.usual = like(found, self.counts)
        seen = at
        if self.counts:  # also of a group without MEMOIZE: then nobody asks for this number
            seen = max(at, found.start("put"))
            self.kept += memoized(self.data, at, seen)
        if put := found["put"]:
            flat = self._is_text(found["first"]) and self._is_text(found["second"])
            number = self.kept if self.counts else int.from_bytes(put[1:], "little")
            self._keep(number, _FLAT if flat else _DEEP)
        if self.counts:
            self.kept += memoized(self.data, seen, found.end())
        self.stack.append(_OTHER)
        return found.end()

    def _is_text(self, part: bytes) -> bool:
        """Of a part of a tuple: text itself, or BINGET or LONG_BINGET of it."""
        return part[0] not in _GETS or self.memo.get(int.from_bytes(part[1:], "little"), _OTHER) in _TEXTS

    def _step(self, opcode: int, at: int) -> int:
        """One opcode, whose argument stands at `at`; where the next one is."""
        if opcode in _GETS:
            number, at = self._number(_GETS[opcode], at)
            self.stack.append(self.memo.get(number, _OTHER))
        elif opcode in _FIXED:
            length, kind = _FIXED[opcode]
            at += length
            if kind is not None:
                self.stack.append(kind)
        elif opcode in _PUTS:
            at = self._put(opcode, at)
        elif opcode in _COUNTED:
            width, kind = _COUNTED[opcode]
            at += width + int.from_bytes(self.data[at : at + width], "little")
            self.stack.append(kind)
        elif opcode in _LINES:
            at = self._line(at)
            self.stack.append(_LINES[opcode])
        else:
            self._build(opcode)
        return at

    def _line(self, at: int) -> int:
        end = self.data.find(b"\n", at)
        return len(self.data) if end < 0 else end + 1

    def _number(self, width: int, at: int) -> tuple[int, int]:
        """The argument of `width` bytes, or a line of digits."""
        end = at + width if width else self._line(at)
        if width:
            return int.from_bytes(self.data[at:end], "little"), end
        digits = self.data[at:end].strip()
        if not (digits.isdigit() and len(digits) < 20):
            raise _Refused(_NO_DATA)
        return int(digits), end

    def _put(self, opcode: int, at: int) -> int:
        if not self.memo:
            self.counts = opcode == _MEMOIZE
        elif self.counts != (opcode == _MEMOIZE):
            raise _Refused(_NO_DATA)  # nobody numbers in both ways
        number, at = (self.kept, at) if self.counts else self._number(_PUTS[opcode], at)
        self.kept += self.counts
        self._keep(number, self.stack[-1])
        return at

    def _keep(self, number: int, kind: int) -> None:
        self.memo[number] = kind
        (self.bad.add if kind in (_NUMBER, _DEEP) else self.bad.discard)(number)

    def _build(self, opcode: int) -> None:
        """Opcodes that make one thing of several."""
        stack = self.stack
        if opcode == _MARK:
            self.marks.append(len(stack))
        elif opcode in _TUPLES:
            self._tuple(len(stack) - _TUPLES[opcode])
        elif opcode == _APPEND:
            stack.pop()
        elif opcode == _SETITEM:
            self._keys(stack[-2:-1])
            del stack[-2:]
        elif opcode in (_TUPLE, _LIST, _DICT, _APPENDS, _SETITEMS):
            first = self.marks.pop()
            if opcode == _TUPLE:
                self._tuple(first)
                return
            if opcode in (_SETITEMS, _DICT):
                self._keys(stack[first::2])
            del stack[first:]
            if opcode in (_LIST, _DICT):
                stack.append(_OTHER)
        else:
            raise _Refused(_NO_DATA)

    def _tuple(self, first: int) -> None:
        if first < 0:
            raise IndexError
        flat = all(kind in _TEXTS for kind in self.stack[first:])
        self.stack[first:] = [_FLAT if flat else _DEEP]

    def _keys(self, kinds: list[int]) -> None:
        if _DEEP in kinds:
            raise _Refused("a key in it is a tuple of more than text: no recorder writes that, so it was not opened")
        self.numbers += kinds.count(_NUMBER)
        if self.numbers > MOST_NUMBERS:
            raise _Refused(
                f"more than {MOST_NUMBERS:,} of its keys are numbers: no recorder writes that, so it was not opened"
            )


# ---- what recorders write

_NUMBERS = rb"K.|[N\x88\x89]|J....|M..|\x8a\x08........|G........|\x8a(?:%b)" % b"|".join(
    b"%b.{%d}" % (bytes([length]), length) for length in range(1, 10)
)


def _texts(counts: bool) -> bytes:
    """SHORT_BINUNICODE or BINUNICODE of up to 80 bytes."""
    rest = b"" if counts else b"\0\0\0"
    lengths = b"|".join(b"%b%b.{%d}" % (re.escape(bytes([length])), rest, length) for length in range(81))
    return b"%b(?:%b)" % (b"\x8c" if counts else b"X", lengths)


class _Parts(NamedTuple):
    put: bytes
    text: bytes
    lists: bytes  # of numbers, of lists of numbers, of frames
    group: bytes  # a tuple of two texts: a name and a description
    key: bytes = b"h.|j...."


@lru_cache
def _parts(counts: bool) -> _Parts:
    put = rb"\x94?" if counts else rb"(?:r....|q.|)"
    text = _texts(counts) + put
    number = b"h.|%b|j...." % _NUMBERS
    shape = rb"\]%b(?:(?:%b)a|\((?:%b){0,5000}e)?" % (put, number, number)
    frame = rb"\}%b\((?:(?:h.|j....)(?:%b|%b)){1,40}u" % (put, number, text)
    items = b"%b|%b|%b|%b" % (number, shape, frame, text)
    lists = rb"\]%b(?:\((?:%b){1,5000}e|(?:%b)a)?" % (put, items, items)
    name = b"h.|j....|" + text
    return _Parts(put, text, lists, rb"(?P<first>%b)(?P<second>%b)\x86(?P<put>%b)" % (name, name, put))


@lru_cache
def pattern(counts: bool) -> re.Pattern[bytes]:
    """One call: a dictionary of texts, numbers, lists, with one tuple of two texts (its group).

    Whatever it is applied to, it tries each byte a few times at most: nothing in it can be read in two ways. `counts`
    as in _Walk.
    """
    parts = _parts(counts)
    once = rb"(?(3)(?!)|%b)" % parts.group
    value = rb"%b|%b|%b|h.|%b|j...." % (_NUMBERS, parts.lists, once, parts.text)
    return re.compile(rb"\}%b\((?:(?:%b)(?:%b)){1,50}u" % (parts.put, parts.key, value), re.DOTALL)


def like(call: re.Match[bytes], counts: bool) -> re.Pattern[bytes] | None:
    """Calls with the same keys in the same order, and values of the same kinds: found in a third of the time."""
    parts, data = _parts(counts), call.string
    number = b"(?:%b)" % _NUMBERS
    values = {"number": number, "list": parts.lists, "group": parts.group, "get": b"(?:h.|%b|j....)" % _NUMBERS}
    at = data.index(b"(", call.start() + 1)
    if not re.fullmatch(rb"\}%b" % parts.put, data[call.start() : at], re.DOTALL):
        return None  # the parenthesis is part of a number in the memo
    at += 1
    written = [rb"\}%b\(" % parts.put]
    while at < call.end() - 1:
        pair = _pair(counts).match(data, at)
        if pair is None:
            return None
        kind = next(name for name in values if pair[name] is not None)
        written.append(re.escape(pair["key"]) + values[kind])
        at = pair.end()
    groups = sum(parts.group in value for value in written)
    written.append(b"u" if groups else b"u(?P<first>)(?P<second>)(?P<put>)")
    return _compiled(b"".join(written)) if groups < 2 else None


@lru_cache
def _pair(counts: bool) -> re.Pattern[bytes]:
    parts = _parts(counts)
    return re.compile(
        rb"(?P<key>%b)(?:(?P<number>%b)|(?P<list>%b)|(?P<group>%b)|(?P<get>h.|j....))"
        % (parts.key, _NUMBERS, parts.lists, parts.group),
        re.DOTALL,
    )


@lru_cache(16)
def _compiled(written: bytes) -> re.Pattern[bytes]:
    return re.compile(written, re.DOTALL)


@lru_cache
def _to_memoize() -> re.Pattern[bytes]:
    """In what `pattern` matches: all up to the next MEMOIZE."""
    return re.compile(rb"(?:h.|%b|j....|[\]\}(aeu\x86]|%b)*\x94" % (_NUMBERS, _texts(True)), re.DOTALL)


def memoized(data: bytes, at: int, end: int) -> int:
    """How often MEMOIZE stands in a part of what `pattern` matches."""
    count = 0
    while found := _to_memoize().match(data, at, end):
        at = found.end()
        count += 1
    return count
