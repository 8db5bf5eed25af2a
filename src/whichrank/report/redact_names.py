"""Aliases for private names, and where known names stand in a text.

An alias is one character of a private-use plane while a report is worked on, so that no later step takes it for text;
`Aliases.shown` puts the names in once all of them are known: `host-1`, `user-2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from whichrank.job.common_words import is_common
from whichrank.job.private import Name
from whichrank.ranges import hosts as host_ranges

FIRST, LAST = 0xF0000, 0x10FFFD
ALIAS = f"{chr(FIRST)}-{chr(LAST)}"  # for a class of characters in a pattern
_ALIAS = re.compile(f"[{ALIAS}]")
_RUN = re.compile(r"[^\W\d_]+|\d+")
_NUMBER = re.compile(r"(?<![^\W_])\d{4,}(?![^\W_])")
_JOINT = re.compile(r"[-_.+/]?")  # between the parts of one name
_ORDERED = ("host", "pod", "switch")  # numbered in natural order, so that neighbours stay neighbours
_SAME_EVERYWHERE = re.compile(r"(?:gpu|rank|worker|cuda|step|iter|epoch|local|task|attempt|mlx|port|pid|seed)", re.I)
LONGEST = 24  # runs of letters or digits in one name


class Aliases:
    """Private things -> what a redacted report calls them. One for a whole report: the same thing has one name."""

    def __init__(self) -> None:
        self._number: dict[tuple[str, object], int] = {}
        self._keys: list[object] = []
        self._first: dict[int, int] = {}  # asked for first, in this order

    def of(self, kind: str, key: object) -> str:
        """The character that stands for this thing. `key` says what is the same thing."""
        number = self._number.setdefault((kind, key), len(self._number))
        if number == len(self._keys):
            self._keys.append(key)
        return chr(min(FIRST + number, LAST))

    def first(self, alias: str) -> None:
        """This one is numbered before others of its kind."""
        self._first.setdefault(ord(alias) - FIRST, len(self._first))

    def shown(self) -> dict[int, str]:
        """A table for `str.translate`."""
        by_kind: dict[str, list[int]] = {}
        for (kind, _), number in self._number.items():
            by_kind.setdefault(kind, []).append(number)
        table: dict[int, str] = {}
        for kind, numbers in by_kind.items():
            if kind != "hosts":
                ordered = sorted(numbers, key=lambda number: self._place(kind, number))
                table.update({FIRST + number: f"{kind}-{at}" for at, number in enumerate(ordered, 1)})
        for (kind, key), number in self._number.items():
            if kind == "hosts" and isinstance(key, tuple):  # a list of nodes: in brackets again
                table[FIRST + number] = host_ranges(str(member).translate(table) for member in key)
        return table

    def _place(self, kind: str, number: int) -> tuple[object, ...]:
        if kind not in _ORDERED:
            return (number,)
        key = self._keys[number]
        parts = key if isinstance(key, tuple) else (str(key),)
        natural = tuple((0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts)
        return (self._first.get(number, len(self._first)), natural)


def has_alias(text: str) -> bool:
    return _ALIAS.search(text) is not None


def without_aliases(text: str) -> str:
    """A text in which nobody else uses our characters."""
    return _ALIAS.sub("", text)


def key_of(name: str) -> tuple[str, ...]:
    """What is the same of all spellings of a name: "GN-05", "gn_05" and "gn05" are one."""
    return tuple(_RUN.findall(name.lower()))


class Known:
    """The names that are known, and their places in a text."""

    def __init__(self, names: Iterable[Name], aliases: Aliases) -> None:
        self.aliases = aliases
        self.names: dict[tuple[str, ...], str] = {}
        self.families: dict[tuple[str, ...], str] = {}
        self.numbers: set[str] = set()  # of jobs: a number is a name only where one is expected
        self._spelled: list[str] = []
        self.longest = 1
        rank = {kind: place for place, kind in enumerate(("host", "pod", "switch", "job", "user"))}
        for kind, name in sorted(names, key=lambda entry: rank.get(entry[0], 9)):
            self._add(kind, name)
        self._spelled.sort()

    def _add(self, kind: str, name: str) -> None:
        if kind in ("host", "domain") and re.fullmatch(r"[\d.]+|[0-9a-fA-F:]*:[0-9a-fA-F:]+", name):
            return  # an address: found by its form
        if kind == "host" and "." in name:
            name, _, domain = name.partition(".")
            if not is_common(domain):
                self._add("domain", domain)
        key = key_of(name)
        if kind == "dir" and set(key) <= _words_of_messages():
            return  # a folder called "gradient" does not take that word out of every message
        told = len(key) > 1 or not is_common(name)  # "fs-home" is a name, "home" is none
        if name.isdecimal():
            self.numbers.update([name] if len(name) > 3 else [])
            return
        if not told or len(name) < 2 or not 0 < len(key) <= LONGEST:
            return
        self.longest = max(self.longest, len(key))
        self.names.setdefault(key, kind)
        if len(name) > 3:
            self._spelled.append(name.lower())
        stem = "".join(key[:-1])
        if kind in _ORDERED and (family := _family(key)) and len(stem) > 1 and not _SAME_EVERYWHERE.fullmatch(stem):
            self.families.setdefault(family, kind)

    def find(self, key: tuple[str, ...]) -> str | None:
        """The kind of the name with this key: of a known one, or of a sister of one (node-07 beside node-03)."""
        if found := self.names.get(key):
            return found
        return self.families.get(_family(key)) if key[-1].isdecimal() else None

    def alias(self, kind: str, name: str) -> str:
        """The alias of a name that stands where nothing else can stand."""
        key = key_of(name)
        known = self.find(key) if key else None
        return self.aliases.of(known or kind, key or name)

    def in_path(self, part: str) -> str:
        """A part of a path with an alias for each known name and for a job's number."""
        return _NUMBER.sub(
            lambda match: self.aliases.of("job", key_of(match[0])) if match[0] in self.numbers else match[0],
            self.replaced(part),
        )

    def replaced(self, text: str) -> str:
        """The text with an alias for each known name."""
        runs = list(_RUN.finditer(text))
        out: list[str] = []
        done = place = 0
        while place < len(runs):
            size, found = self._at(text, runs, place)
            if found is None:
                place += 1
                continue
            start, end = runs[place].start(), runs[place + size - 1].end()
            key = tuple(run[0].lower() for run in runs[place : place + size])
            out += [text[done:start], self.aliases.of(found, key)]
            done, place = end, place + size
            if found == "host" and (domain := _DOMAIN.match(text, end)) and self._private(domain["name"]):
                out += [".", self.aliases.of("domain", domain["name"].lower())]
                done = domain.end()
                while place < len(runs) and runs[place].start() < done:
                    place += 1
        return "".join([*out, text[done:]])

    def _at(self, text: str, runs: list[re.Match[str]], place: int) -> tuple[int, str | None]:
        """The longest name that begins with this run of letters or digits."""
        if not _starts(text, runs[place].start()):
            return 0, None
        best: tuple[int, str | None] = (0, None)
        key: tuple[str, ...] = ()
        for size in range(1, min(self.longest, len(runs) - place) + 1):
            run = runs[place + size - 1]
            if size > 1 and _JOINT.fullmatch(text, runs[place + size - 2].end(), run.start()) is None:
                break
            key += (run[0].lower(),)
            if not text[run.end() : run.end() + 1].isalnum() and (found := self.find(key)):
                best = (size, found)
        return best

    def _private(self, domain: str) -> bool:
        return key_of(domain) in self.names or not is_common(domain)

    def whole(self, cut: str) -> str:
        """The alias of the known name of which only a beginning is there; nothing if there is none."""
        low = cut.lower()
        name = next((name for name in self._spelled if name.startswith(low) and name != low), "")
        kind = self.find(key_of(name)) if name else None
        return self.aliases.of(kind, key_of(name)) if kind else ""


_DOMAIN = re.compile(r"\.(?P<name>[a-zA-Z][\w-]*(?:\.[a-zA-Z][\w-]*)*)")


@lru_cache(maxsize=1)
def _words_of_messages() -> frozenset[str]:
    """Words of the messages that the readers know, and of our own texts."""
    from whichrank.causes import CAUSES
    from whichrank.evidence import scanner

    texts = [*scanner().anchors]
    for cause in CAUSES:
        texts += [
            cause.id,
            cause.title,
            cause.means,
            cause.looks_like,
            *cause.fix,
            cause.stopgap,
            cause.dont,
            cause.verb,
        ]
    return frozenset(word.lower() for text in texts for word in _RUN.findall(text) if len(word) > 3)


def _starts(text: str, at: int) -> bool:
    return at == 0 or not text[at - 1].isalnum()


def _family(key: tuple[str, ...]) -> tuple[str, ...]:
    """A numbered name without its number."""
    return (*key[:-1], "#") if key[-1].isdecimal() and len(key) > 1 else ()
