"""Bytes as text: encodings, zeros, and what is no text at all."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from whichrank.facts import Source

_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def decode(data: bytes) -> str | None:
    """Bytes as text, or None if they are no text."""
    if data[:2] in _UTF16:
        return data.decode("utf-16", "replace")
    if b"\0" in data[:65536]:
        # Logs that were truncated under their writer begin with zeros; few zeros in a text are noise.
        if data.count(b"\0") > len(data) // 2 and not data.strip(b"\0").isascii():
            return None
        kept = data.replace(b"\0", b"")
        if len(kept) < len(data) - len(data) // 100 and not _looks_like_text(kept[:65536]):
            return None
        data = kept
    text = data.decode("utf-8", "replace")
    if text[:65536].count("\ufffd") > len(text[:65536]) // 5:
        return None
    return text


def _looks_like_text(head: bytes) -> bool:
    """Lines of printable characters, of a length that people write."""
    printable = sum(32 <= byte < 127 or byte in b"\t\r\n" or byte >= 0x80 for byte in head)
    return bool(head) and printable > 0.97 * len(head) and head.count(b"\n") > len(head) // 2000


def head_of(blocks: Iterator[bytes], size: int) -> tuple[bytes, bool]:
    """The first `size` bytes or more of a stream, and whether there may be more."""
    head: list[bytes] = []
    length = 0
    for block in blocks:
        head.append(block)
        length += len(block)
        if length > size:
            return b"".join(head), True
    return b"".join(head), False


def recoded(blocks: Iterator[bytes], source: Source) -> Iterator[bytes]:
    """A stream of text as UTF-8 without zeros. Its size, and whether it ends within a line, go to `source`."""
    decoder: codecs.IncrementalDecoder | None = None
    first = True
    for block in blocks:
        source.bytes += len(block)
        if first and block[:2] in _UTF16:
            decoder = codecs.getincrementaldecoder("utf-16")("replace")
        first = False
        if decoder:
            block = decoder.decode(block).encode("utf-8", "replace")
        elif b"\0" in block:
            block = block.replace(b"\0", b"")
        if block:
            source.ends_midline = not block.endswith((b"\n", b"\r"))
            yield block
