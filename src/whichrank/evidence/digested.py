"""Digests back into evidence: as if the files themselves had been read, in the order in which they would have been."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from whichrank.evidence import Evidence
from whichrank.evidence.digest_block import Packed, unpack
from whichrank.evidence.unpickle import uncollected
from whichrank.facts import Gap


def take_apart(evidence: Evidence) -> None:
    """The blocks of all digests into `evidence`, each once; and a Gap that says what a digest does not hold."""
    with uncollected():
        _take_apart(evidence)


def _take_apart(evidence: Evidence) -> None:
    blocks = {block.data: block.digest for block in sorted(evidence.blocks, reverse=True)}
    tables: dict[bytes, Any] = {}
    files: dict[str, list[Packed]] = defaultdict(list)
    good = []
    for data, digest in blocks.items():
        try:
            packed = unpack(data, tables)
        except ValueError as error:
            evidence.gaps.append(Gap(digest, f"a block of it cannot be read: {error}", "the digest once more"))
            continue
        files[packed.name].append(packed)
        good.append(digest)
    kept = [packed for name in files for packed in _told_apart(files[name])]
    for packed in sorted(kept, key=lambda packed: (walked(packed.name), packed.host)):
        evidence.add(packed.parts)
    digests = set(blocks.values())
    evidence.sources = [source for source in evidence.sources if source.path not in digests]
    if kept:
        evidence.gaps.append(_said(kept, sorted(digests)))
    evidence.blocks = []


def _told_apart(same: list[Packed]) -> list[Packed]:
    """Blocks of one name: the longest reading of each host; those of several hosts get the host before their name."""
    longest: dict[str, Packed] = {}
    for packed in sorted(same, key=lambda packed: (_size(packed), len(packed.parts.facts), len(packed.parts.said))):
        longest[packed.host] = packed
    if len(longest) > 1:
        for packed in longest.values():
            for source in packed.parts.sources:
                source.path = f"{packed.host}/{source.path}"
    return list(longest.values())


def _size(packed: Packed) -> int:
    return sum(source.bytes for source in packed.parts.sources)


def walked(name: str) -> tuple[tuple[int, str], ...]:
    """Sorted by this, names stand as a walk through their folder finds them: its files, then its folders.

    >>> sorted(["a/z/1", "a/b", "a/c/2", "a/c/d/1"], key=walked)
    ['a/b', 'a/c/2', 'a/c/d/1', 'a/z/1']
    """
    *folders, last = name.split("/")
    return (*((1, folder) for folder in folders), (0, last))


def _said(kept: list[Packed], digests: list[str]) -> Gap:
    lines, calls = (sum(packed.left_out[at] for packed in kept) for at in (0, 1))
    left = [f"{lines:,} lines" if lines else "", f"the {calls:,} oldest calls of rings" if calls else ""]
    what = " and ".join(part for part in left if part) or "nothing"
    many = f"{len(digests)} digests" if len(digests) > 1 else digests[0]
    files = f"{len(kept):,} files" if len(kept) > 1 else "one file"
    why = (
        f"read from {'digests' if len(digests) > 1 else 'a digest'} of {files}, not from the files: {what} was left out"
    )
    return Gap(many, why.replace("calls of rings was", "calls of rings were").replace("lines was", "lines were"),
               "the files themselves" if lines or calls else "")  # fmt: skip
