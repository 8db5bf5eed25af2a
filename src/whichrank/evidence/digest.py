r"""Digests: what was read of a node's files, small enough to be carried to one place.

A digest is what the readers made of the files, not the files: facts with the lines that prove them, ordinary lines of
output, gaps, Flight Recorder rings. It consists of *blocks*, one for each file that was read; digests are merged by
putting their blocks together, in any order, and a block that is there twice counts once. Format (docs/digest.md):

    WHICHRANK DIGEST 1\n   zlib of a msgpack array of blocks (see digest_block.py), each as bytes

Another number in the first line is another format.

>>> text = b"WHICHRANK DIGEST 7\n"
>>> [gap.why for gap in read(text, Source("node-3.digest"))]
['a digest: a digest of another version of whichrank: make it again, or read it with that version']
>>> data = joined([b"two", b"one", b"two"])
>>> data[:19], [*split(data)]
(b'WHICHRANK DIGEST 1\n', [b'one', b'two'])
>>> list(split(data[:-4]))
Traceback (most recent call last):
    ...
whichrank.evidence.digest.Damaged: it breaks off: the file is cut
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from whichrank.evidence.scan import Reader, Whole
from whichrank.facts import Gap, Source

MAGIC = b"WHICHRANK DIGEST "
VERSION = b"1\n"
MOST = 1 << 30  # bytes of one digest
GROWTH, LEAST = 100, 64 << 20  # bytes in it for each of its bytes: logs and rings shrink to a tenth at most
MANY = 8  # its bytes for each block: the rings of many ranks that are all alike take twice that
_PIECE = 1 << 20


class Damaged(ValueError):
    """No digest that can be read; the text says why."""


class Digested(NamedTuple):
    """A block (what was read of one file, packed), and the digest that it came from."""

    data: bytes
    digest: str


def joined(blocks: Iterable[bytes]) -> bytes:
    """One digest of these blocks: the same bytes whatever their order."""
    return MAGIC + VERSION + zlib.compress(msgspec.msgpack.encode(sorted(set(blocks))), 6)


def split(data: bytes) -> list[bytes]:
    """The blocks of a digest. Raises Damaged."""
    head, _, _ = data[:64].partition(b"\n")
    if head + b"\n" != MAGIC + VERSION:
        raise Damaged("a digest of another version of whichrank: make it again, or read it with that version")
    try:
        inflated = _inflated(memoryview(data)[len(head) + 1 :])
        if _count(inflated) > 1000 + len(data) // MANY:
            raise Damaged("it grows out of all proportion, so it was not read")
        blocks = msgspec.msgpack.decode(inflated, type=list[bytes])
    except (zlib.error, msgspec.DecodeError) as error:
        raise Damaged("damaged") from error
    return blocks


def _inflated(data: memoryview) -> bytearray:
    unpacking, found, limit = zlib.decompressobj(), bytearray(), LEAST + GROWTH * len(data)
    for at in range(0, len(data), _PIECE):
        pending: bytes | memoryview = data[at : at + _PIECE]
        while pending and not unpacking.eof:
            found += unpacking.decompress(pending, _PIECE)
            pending = unpacking.unconsumed_tail
            if len(found) > limit:
                raise Damaged("it grows out of all proportion, so it was not read")
    if not unpacking.eof:
        raise Damaged("it breaks off: the file is cut")
    return found


def _count(array: bytearray) -> int:
    """How many elements a msgpack array says that it has: asked before they are made."""
    width = {0xDC: 2, 0xDD: 4}.get(array[0], 0) if array else 0
    return int.from_bytes(array[1 : 1 + width], "big")


def sniff(head: bytes, path: str) -> bool:
    return head.startswith(MAGIC)


def read(data: bytes, source: Source) -> Iterator[Digested | Gap]:
    try:
        blocks = split(data)
    except Damaged as error:
        yield Gap(source.path, f"a digest: {error}", "the digest once more: `whichrank digest`")
        return
    if not blocks:
        yield Gap(source.path, "a digest of nothing: no file was read when it was made")
    for block in blocks:
        yield Digested(block, source.path)


READER = Reader(
    "digest",
    whole=Whole(sniff, read, most=MOST),
    title="whichrank's own digests of other nodes' evidence",
    versions="1, the only one so far",
    collect=(
        "srun --ntasks-per-node=1 bash -c 'whichrank digest /local/logs --host \"$(hostname -s)\" -o digests/$(hostname -s)'",
    ),
)
