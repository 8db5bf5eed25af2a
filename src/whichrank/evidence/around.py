"""The lines around a line that proves something, read once more from where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from whichrank.evidence.collect import MINUS, collect, opened
from whichrank.evidence.unpack import Member
from whichrank.facts import Gap

LINES = 3  # before and after
LONGEST = 400  # bytes of a line
MOST = 512 << 20  # bytes that are read again, over all files
KEPT = 1 << 16  # bytes of a line whose end is not in its block

Lines = dict[int, str]


def around(paths: Sequence[str], wanted: Mapping[str, Iterable[int]]) -> dict[str, Lines]:
    """For each source the lines near those that are wanted, by number; without what cannot be read again.

    wanted: names of sources, as proofs give them, and numbers of lines, counted from 1 in the unpacked text.
    """
    near = {
        name: {number + by for number in numbers for by in range(-LINES, LINES + 1)} for name, numbers in wanted.items()
    }
    files = {name.partition("!")[0] for name in near}
    found: dict[str, Lines] = {}
    left = MOST
    for entry in collect([path for path in paths if path != MINUS]):
        if isinstance(entry, Gap) or entry.name not in files:
            continue
        for member in opened(entry):
            if left > 0 and isinstance(member, Member) and member.name in near:
                found[member.name], read = _lines(member.blocks, near[member.name], left)
                left -= read
    return found


def _lines(blocks: Iterable[bytes], wanted: set[int], most: int) -> tuple[Lines, int]:
    """The wanted lines, and how many bytes were read to find them."""
    found: Lines = {}
    number, read, rest, last = 1, 0, b"", max(wanted)
    for block in blocks:
        read += len(block)
        data = rest + block
        whole, rest = data[: data.rfind(b"\n") + 1], data[data.rfind(b"\n") + 1 :][:KEPT]
        count = whole.count(b"\n")
        if any(number <= each < number + count for each in wanted):
            _take(whole.split(b"\n")[:count], number, wanted, found)
        number += count
        if number > last or read > most:
            break
    if rest and number in wanted:
        _take([rest], number, wanted, found)
    return found, read


def _take(lines: Sequence[bytes], first: int, wanted: set[int], found: Lines) -> None:
    for number in wanted:
        if first <= number < first + len(lines):
            found[number] = lines[number - first][:LONGEST].decode("utf-8", "replace").rstrip("\r")
