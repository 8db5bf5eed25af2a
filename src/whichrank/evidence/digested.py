"""Digests back into evidence: as if the files themselves had been read, in the order in which they would have been."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from whichrank.evidence import Evidence
from whichrank.evidence.digest_block import Packed, unpack
from whichrank.evidence.doubles import Here
from whichrank.facts import Gap
from whichrank.uncollected import uncollected


def take_apart(evidence: Evidence) -> None:
    """The blocks of all digests into `evidence`, each once; and a Gap that says what a digest does not hold."""
    with uncollected():
        _take_apart(evidence)


def _take_apart(evidence: Evidence) -> None:
    blocks = {block.data: block.digest for block in sorted(evidence.blocks, reverse=True)}
    tables: dict[bytes, Any] = {}
    files: dict[str, list[Packed]] = defaultdict(list)
    bad: dict[str, list[str]] = defaultdict(list)
    for data, digest in blocks.items():
        try:
            packed = unpack(data, tables)
        except ValueError as error:
            bad[digest].append(str(error))
            continue
        for source in packed.parts.sources:
            source.digest = digest
        files[packed.name].append(packed)
    evidence.gaps.extend(Gap(digest, unreadable(errors), "the digest once more") for digest, errors in bad.items())
    kept = [packed for name in files for packed in _told_apart(files[name])]
    digests = set(blocks.values())
    evidence.sources = [source for source in evidence.sources if source.path not in digests]
    used: list[Packed] = []
    twice: list[str] = []
    here = Here(evidence)
    for packed in sorted(kept, key=lambda packed: (walked(packed.name), packed.host)):
        if here.holds(packed.parts):
            twice += [source.digest for source in packed.parts.sources]
            continue
        used.append(packed)
        here.add(packed.parts)
        evidence.add(packed.parts)
    for digest, count in sorted(Counter(twice).items()):
        what = f"{count:,} files of it are" if count > 1 else "a file of it is"
        evidence.gaps.append(Gap(digest, f"{what} here as well, or in another digest: counted once"))
    if used:
        evidence.gaps.append(_said(used, sorted(digests)))
    evidence.blocks = []


FEW = 20  # digests that are tried one by one


def believable(evidence: Evidence, conclude: Callable[[Evidence], object]) -> Evidence:
    """The evidence without digests from which nothing can be concluded, with a Gap for each.

    What a fact's values are is settled between readers and what reasons on them, not in the format: whoever makes up a
    digest can put anything there. For evidence on which `conclude` has raised.
    """
    digests = sorted({source.digest for source in evidence.sources if source.digest})
    alone = digests if len(digests) <= FEW else []
    bad = [name for name in alone if _raises(conclude, evidence.of(lambda source, name=name: source.digest == name))]  # type: ignore[misc]
    rest = _without(evidence, bad or digests)
    return _without(rest, digests) if bad and _raises(conclude, rest) else rest


def _without(evidence: Evidence, digests: list[str]) -> Evidence:
    rest = evidence.of(lambda source: source.digest not in digests)
    why = "a digest that holds what no reader of logs makes: left out"
    rest.gaps = [*evidence.gaps, *(Gap(digest, why, "the files themselves") for digest in digests)]
    return rest


def _raises(conclude: Callable[[Evidence], object], evidence: Evidence) -> bool:
    try:
        conclude(evidence)
    except Exception:
        return True
    return False


def unreadable(errors: list[str]) -> str:
    """
    >>> unreadable(["damaged", "damaged"])
    '2 blocks of it cannot be read: damaged'
    """
    what = f"{len(errors):,} blocks" if len(errors) > 1 else "a block"
    return f"{what} of it cannot be read: {'; '.join(list(dict.fromkeys(errors))[:3])}"


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
