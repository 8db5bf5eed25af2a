"""Packed evidence -> its members, as blocks of bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from whichrank.facts import Gap

BLOCK = 1 << 20
GZIP = b"\x1f\x8b"


@dataclass
class Budget:
    out: int = 4 << 30


class Member(NamedTuple):
    """`blocks` must be read before the next member is asked for."""

    name: str
    blocks: Iterator[bytes]


def members(name: str, stream: BinaryIO, budget: Budget) -> Iterator[Member | Gap]:
    head = stream.read(BLOCK)
    if head[:2] == GZIP:
        data = zlib.decompressobj(31).decompress(head + stream.read())
        yield Member(name, iter([data]))
    elif head:
        yield Member(name, _blocks(head, stream))


def _blocks(head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    while head:
        yield head
        head = stream.read(BLOCK)
