"""Many ranks or hosts in a few characters.

>>> ranks([*range(17), *range(18, 64)])
'0-16, 18-63'
>>> ranks([3, 11, 19, 27, 35])
'3, 11 … 35 (every 8th)'
>>> several([3]), several([0, 1, 2, 5])
('rank 3', 'ranks 0-2, 5')
>>> hosts(["node-03", "node-04", "node-05", "node-12"])
'node-[03-05,12]'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

_NUMBERED = re.compile(r"^(.*?)(\d+)(\D*)$")


def ranks(numbers: Iterable[int], limit: int | None = None) -> str:
    """Ranges of ranks, "0-16, 18-63"; a regular stride is named; a pair stays "0, 1".

    Longer than `limit` characters: the first ranges and how many ranks there are.
    """
    whole = sorted(set(numbers))
    parts = [_range(run) for run in _runs(whole)]
    text = _strided(_runs(whole)) or ", ".join(parts)
    if limit is None or len(text) <= limit:
        return text
    tail = f" … ({len(whole):,} ranks)"
    shown = parts[0]
    for part in parts[1:]:
        if len(shown) + len(part) + 2 + len(tail) > limit:
            break
        shown += ", " + part
    return shown + tail


def several(numbers: Iterable[int], limit: int | None = None) -> str:
    """The same with its noun, for a sentence."""
    whole = set(numbers)
    return f"rank{'s' if len(whole) != 1 else ''} {ranks(whole, limit)}" if whole else "no rank"


def _runs(whole: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of every stretch without a hole."""
    runs: list[tuple[int, int]] = []
    for number in whole:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _range(run: tuple[int, int]) -> str:
    first, last = run
    if first == last:
        return str(first)
    return f"{first}, {last}" if last == first + 1 else f"{first}-{last}"


def _strided(runs: Sequence[tuple[int, int]]) -> str:
    """Ranks that stand in one place of every node, say: "3, 11 … 59 (every 8th)", "0-3, 8-11 … 56-59 (every 8)"."""
    if len(runs) < 5:
        return ""
    step = runs[1][0] - runs[0][0]
    length = runs[0][1] - runs[0][0]
    if any(b[0] - a[0] != step or b[1] - b[0] != length for a, b in pairwise(runs)):
        return ""
    every = f"every {_ordinal(step)}" if length == 0 else f"every {step}"
    return f"{_range(runs[0])}, {_range(runs[1])} … {_range(runs[-1])} ({every})"


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def hosts(names: Iterable[str], limit: int | None = None) -> str:
    """Host names in the brackets that Slurm, pdsh and clush read: "node-[03-07,12], login1".

    Longer than `limit` characters: their number.
    """
    families: dict[tuple[str, str, int], list[int]] = {}
    plain: dict[str, None] = {}
    whole = sorted(set(names), key=natural)
    for name, key, number in _families(whole):
        if key is None:
            plain[name] = None
        else:
            families.setdefault(key, []).append(number)
    parts = [_bracketed(key, numbers) for key, numbers in families.items()]
    text = ", ".join([*parts, *plain])
    return text if limit is None or len(text) <= limit else f"{len(whole):,} nodes"


def _families(whole: Sequence[str]) -> Iterable[tuple[str, tuple[str, str, int] | None, int]]:
    """Each name with what it shares with its neighbours (text before, text after, digits if padded) and its number."""
    taken = {name: _taken_apart(name) for name in whole}
    padded = {(a, c, len(b)) for a, b, c in filter(None, taken.values()) if b[0] == "0" and len(b) > 1}
    for name in whole:
        parts = taken[name]
        if parts is None:
            yield name, None, 0
        else:
            before, digits, after = parts
            width = len(digits) if (before, after, len(digits)) in padded else 0
            yield name, (before, after, width), int(digits)


def _taken_apart(name: str) -> tuple[str, str, str] | None:
    """The last number of a name's first label is the one that counts hosts; of an address, its last part."""
    label, dot, domain = name.partition(".")
    if label.isdecimal():
        label, domain = name, ""
    else:
        domain = dot + domain
    match = _NUMBERED.match(label)
    return (match[1], match[2], match[3] + domain) if match and label.isascii() else None


def _bracketed(key: tuple[str, str, int], numbers: Sequence[int]) -> str:
    before, after, width = key
    spell = [
        f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}"
        for first, last in _runs(sorted(set(numbers)))
    ]
    inner = ",".join(spell)
    return f"{before}{inner}{after}" if spell == [inner] and "-" not in inner else f"{before}[{inner}]{after}"


def natural(name: str) -> list[tuple[int, int | str]]:
    """
    >>> sorted(["r10.log", "r2.log"], key=natural)
    ['r2.log', 'r10.log']
    """
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", name)]
