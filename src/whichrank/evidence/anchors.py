"""Which of the readers' anchors occur in a piece of text: the first sieve for texts of gigabytes.

`Compiled` runs all anchors at once in Hyperscan, where the package `hyperscan` is installed. `Words` needs the
standard library only: an anchor can only be where the longest word in it is, and a log uses the same words all the
time. Both may name an anchor too many, never one too few; `lines_with()` then looks for the named ones exactly.

>>> sieve = Words([b"Watchdog caught", b"exit code: "])
>>> lines_with(sieve, b"step 3 loss 2.1\\n[rank1] Watchdog caught it\\nWatchdogs\\nexit 0")
{b'[rank1] Watchdog caught it': {b'Watchdog caught'}}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

FEW = 40
KNOWN = 100_000  # words remembered at a time
_LETTERS = bytes(
    byte if (chr(byte).isalpha() and byte < 128) or byte == 95 or byte >= 128 else 32 for byte in range(256)
)
_RUN = re.compile(rb"[A-Za-z_\x80-\xff]+")


class Sieve(Protocol):
    def present(self, text: bytes) -> Iterable[bytes]:
        """The anchors that may occur in `text`: all that do, and perhaps more."""


class Words:
    def __init__(self, anchors: Iterable[bytes]) -> None:
        self.always: list[bytes] = []  # anchors without a letter
        self.by_fragment: dict[bytes, list[bytes]] = {}
        for anchor in anchors:
            runs = _RUN.findall(anchor)
            if runs:
                self.by_fragment.setdefault(max(runs, key=len), []).append(anchor)
            else:
                self.always.append(anchor)
        self.lengths = sorted({len(fragment) for fragment in self.by_fragment})
        self.known: set[bytes] = set()
        self.telling: dict[bytes, list[bytes]] = {}  # word -> the fragments in it

    def present(self, text: bytes) -> set[bytes]:
        words = set(text.translate(_LETTERS).split())
        if new := words - self.known:
            self._learn(new)
        fragments = {fragment for word in words & self.telling.keys() for fragment in self.telling[word]}
        return {anchor for fragment in fragments for anchor in self.by_fragment[fragment]}.union(self.always)

    def _learn(self, new: set[bytes]) -> None:
        if len(self.known) > KNOWN:
            self.known.clear()
            self.telling.clear()
        self.known |= new
        if len(new) > FEW:
            joined = b"\n".join(new)
            for fragment in self.by_fragment:
                for word in _lines_with(fragment, joined):
                    self.telling.setdefault(word, []).append(fragment)
            return
        for word in new:
            if found := self._fragments_of(word):
                self.telling[word] = found

    def _fragments_of(self, word: bytes) -> list[bytes]:
        """By its substrings, which are fewer than the fragments."""
        if len(word) > FEW:
            return [fragment for fragment in self.by_fragment if fragment in word]
        pieces = {word[at : at + length] for length in self.lengths for at in range(len(word) - length + 1)}
        return list(pieces & self.by_fragment.keys())


class Compiled:
    def __init__(self, anchors: Iterable[bytes], hyperscan: Any) -> None:
        self.anchors = sorted(anchors)
        self.database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        self.database.compile(
            expressions=[b"".join(b"\\x%02x" % byte for byte in anchor) for anchor in self.anchors],
            ids=list(range(len(self.anchors))),
            elements=len(self.anchors),
            flags=[hyperscan.HS_FLAG_SINGLEMATCH] * len(self.anchors),
        )

    def present(self, text: bytes) -> set[bytes]:
        found: set[int] = set()

        def note(number: int, *_: object) -> None:
            found.add(number)

        self.database.scan(text, match_event_handler=note)
        return {self.anchors[number] for number in found}


def sieve(anchors: Iterable[bytes]) -> Sieve:
    """The fastest sieve that there is here."""
    anchors = set(anchors)
    try:
        import hyperscan
    except Exception:  # not installed, or its library is of another machine
        return Words(anchors)
    return Compiled(anchors, hyperscan)


def lines_with(sieve: Sieve, text: bytes) -> dict[bytes, set[bytes]]:
    """The lines of a text that hold an anchor, each with its anchors. An anchor may begin or end with the line's end."""
    text = b"\n" + text + b"\n"
    found: dict[bytes, set[bytes]] = {}
    for anchor in sieve.present(text):
        for line in _lines_with(anchor, text):
            found.setdefault(line, set()).add(anchor)
    return found


def _lines_with(anchor: bytes, text: bytes) -> Iterator[bytes]:
    at = text.find(anchor)
    while at >= 0:
        at += anchor.startswith(b"\n")
        end = text.find(b"\n", at)
        end = len(text) if end < 0 else end
        yield text[text.rfind(b"\n", 0, at) + 1 : end]
        at = text.find(anchor, end)
