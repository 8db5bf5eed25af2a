"""zip: by its directory where it can be reached, else from its first member on.

Format: PKWARE APPNOTE 6.3.10. Own code, because the standard library's holds the whole directory in memory, needs the
end of the file, and refuses a file that was cut off; logs of a node that died are.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from whichrank.evidence.unpack import names
from whichrank.evidence.unpack.codecs import XZ, ZSTD, Codec, Inflate, ZipLzma, bunzip, unpacked
from whichrank.evidence.unpack.stream import BLOCK, Entry, Run, Stream
from whichrank.facts import MEMBER

FIRST, DIRECTORY, END = b"PK\3\4", b"PK\1\2", b"PK\5\6"
SPANNED = b"PK\7\x08PK\3\4"
_DEFLATE = Codec("deflate", lambda _: False, lambda _: Inflate(-15), "unzip -p")
METHODS = {
    8: _DEFLATE,
    12: Codec("bzip2", lambda _: False, bunzip, "unzip -p"),
    93: ZSTD,
    95: XZ,
}
_LZMA = 14
_NAMES = {1: "Shrink", 6: "Implode", 9: "Deflate64", 97: "WavPack", 98: "PPMd", 99: "AES encryption"}
# torch.save writes a zip, numpy.savez too: gigabytes in which no word is said.
_TENSORS = re.compile(r"(?:^|/)data\.pkl$|\.npy$")


class Damaged(Exception):
    """The text says what is wrong."""


@dataclass(slots=True)
class Header:
    """A member, as its own header or the directory has it. Sizes in bytes; `start` is where its header stands."""

    name: str
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    start: int = 0

    @property
    def streamed(self) -> bool:
        """Its sizes stand behind it."""
        return bool(self.flags & 8)


def is_zip(head: bytes) -> bool:
    return head[:4] in (FIRST, END) or head[:8] == SPANNED


def _name(raw: bytes, flags: int) -> str:
    if flags & 0x800:
        return raw.decode("utf-8", "replace")
    try:
        return raw.decode("utf-8")  # what Linux's zip writes without saying so
    except UnicodeDecodeError:
        return raw.decode("cp437")


def _extended(extra: bytes, header: Header) -> None:
    """zip64: what did not fit into 32 bits."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            values = extra[at + 4 : at + 4 + size]
            for attribute in ("size", "packed", "start"):
                if getattr(header, attribute) == 0xFFFFFFFF and len(values) >= 8:
                    setattr(header, attribute, int.from_bytes(values[:8], "little"))
                    values = values[8:]
        at += 4 + size


def _codec(header: Header) -> Codec | None:
    if header.method == _LZMA:
        return Codec("lzma", lambda _: False, lambda run: ZipLzma(run, header.size), "7z e -so")
    return METHODS.get(header.method)


def _tensors(header: Header) -> bool:
    return bool(_TENSORS.search(header.name))


@dataclass(slots=True)
class Zip:
    """One archive under way. `entries` gives its files; each must be read, or dropped, before the next."""

    name: str
    source: Stream
    run: Run
    file: BinaryIO | None
    _spans: list[tuple[int, int]] = field(default_factory=list)
    _names: names.Distinct = field(default_factory=names.Distinct)

    def entries(self) -> Iterator[Entry]:
        file = self.file
        if file is None:
            held = self.source.read(self.run.budget.limits.spool)
            if self.source.peek(1):
                self.source.back(held)
            else:
                file, self.source = io.BytesIO(held), Stream([held])
        if file is not None:
            at = file.tell()
            try:
                place = _directory(file)
            except Damaged as error:
                file.seek(at)  # `source` reads on from there
                what = f"{error}; its members are read as far as they go"
                if not (self.source.broken or self.run.over):
                    self.run.gap(self.name, what, "the file again, whole")
            else:
                yield from self._by_directory(file, *place)
                return
        yield from self._in_order()

    def _by_directory(self, file: BinaryIO, start: int, size: int, count: int) -> Iterator[Entry]:
        directory = Stream(_window(file, start, size, self.run))
        seen = 0
        while self.run.entry() and (raw := directory.read(46))[:4] == DIRECTORY and len(raw) == 46:
            seen += 1
            _, _, flags, method, _, _, crc, packed, plain, n, m, k, _, _, _, at = struct.unpack("<6H3L5H2L", raw[4:])
            header = Header(_name(directory.read(n), flags), flags, method, crc, packed, plain, at)
            _extended(directory.read(m), header)
            directory.skip(k)
            yield from self._member(header, file)
            if _tensors(header):
                return
        if seen < count and not self.run.over:
            self.run.gap(self.name, f"damaged zip: its directory lists {seen:,} members and announces {count:,}")

    def _member(self, header: Header, file: BinaryIO) -> Iterator[Entry]:
        """A member that the directory lists."""
        if header.name.endswith("/"):
            return
        file.seek(header.start)
        raw = file.read(30)
        self.run.budget.taken += len(raw)
        if raw[:4] != FIRST or len(raw) < 30:
            self._gap(header, "damaged zip: nothing stands where its directory says")
            return
        data = header.start + 30 + sum(struct.unpack("<HH", raw[26:]))
        span = (header.start, data + header.packed)
        at = bisect_right(self._spans, span)
        before, after = self._spans[at - 1 : at], self._spans[at : at + 1]
        if (before and before[0][1] > span[0]) or (after and after[0][0] < span[1]):
            self._gap(header, "overlaps with another member, as in a zip bomb; not read")
            return
        insort(self._spans, span)
        yield from self._entry(header, Stream(_window(file, data, header.packed, self.run)))

    def _in_order(self) -> Iterator[Entry]:
        """Members as they follow each other."""
        if self.source.peek(8) == SPANNED:
            self.source.skip(4)
        while self.run.entry() and (raw := self.source.read(30))[:4] == FIRST and len(raw) == 30:
            _, flags, method, _, _, crc, packed, plain, n, m = struct.unpack("<5H3L2H", raw[4:])
            header = Header(_name(self.source.read(n), flags), flags, method, crc, packed, plain)
            _extended(self.source.read(m), header)
            open_end = header.streamed and not packed
            if open_end and (_codec(header) is None or flags & 1):
                self._gap(header, "its size stands behind it: cannot be read from a pipe; nor what comes after it")
                return
            part = self.source if open_end else Stream(self.source.part(header.packed))
            yield from self._entry(header, part, alone=open_end)
            if _tensors(header):
                return
            if not open_end:
                part.drain()
            elif not self._descriptor():
                break
        else:
            if not raw and not (self.source.broken or self.run.over):
                self.run.gap(self.name, "zip cut off in the middle; read up to there", "the file again, whole")
            return
        if not (self.source.broken or self.run.over):
            self.run.gap(self.name, "damaged zip: no header where a member should begin", "the file again, whole")

    def _descriptor(self) -> bool:
        """Pass over the sizes that stand behind a member: with or without a mark, of 32 or 64 bits."""
        behind = self.source.peek(28)
        for size in (16, 24, 12, 20):
            if behind[size : size + 2] == b"PK" and behind[size + 2 : size + 4] in (b"\3\4", b"\1\2", b"\6\x08"):
                return self.source.skip(size) == size
        return False

    def _gap(self, header: Header, why: str, would_help: str = "", command: str = "") -> None:
        self.run.gap(f"{self.name}{MEMBER}{names.clean(header.name)[0]}", why, would_help, command)

    def _entry(self, header: Header, packed: Stream, *, alone: bool = False) -> Iterator[Entry]:
        name, strange = names.clean(header.name)
        full = f"{self.name}{MEMBER}{name}"
        if header.name.endswith("/") or names.beside_the_point(name):
            return
        if _tensors(header):
            self.run.gap(self.name, "holds tensors (torch.save or numpy.savez): no words in it")
        elif header.flags & 0x2041 or header.method == 99:
            self._gap(header, "encrypted", "the file unpacked", "unzip FILE, with the password")
        elif header.method and _codec(header) is None:
            word = _NAMES.get(header.method, "unknown")
            self._gap(header, f"packed by method {header.method} ({word}), which is not read", "the file unpacked")
        else:
            if strange:
                self.run.outside(full, header.name)
            if self.run.member():
                yield Entry(self._names.add(name), self._content(full, header, packed, alone))

    def _content(self, name: str, header: Header, packed: Stream, alone: bool) -> Stream:
        codec = _codec(header)
        inner = unpacked(name, codec, packed, self.run, alone=True) if codec else packed
        out = Stream()
        return out.feed(self._checked(name, header, inner, out, check=not alone))

    def _checked(self, name: str, header: Header, inner: Stream, out: Stream, check: bool) -> Iterator[bytes]:
        crc = size = 0
        for block in inner.blocks():
            crc = zlib.crc32(block, crc)
            size += len(block)
            yield block
        out.broken = inner.broken
        if not check or inner.broken or self.run.over:
            return
        if size < header.size:
            out.broken = True
            if not self.source.broken:
                self.run.gap(name, "cut off in the middle; read up to there", "the file again, whole")
        elif crc != header.crc:
            self.run.gap(name, "damaged: its checksum does not match; read all the same", "the file again, whole")


def _window(file: BinaryIO, start: int, size: int, run: Run) -> Iterator[bytes]:
    """A stretch of the file, which others may read in between."""
    end = start + size
    while start < end and not run.over:
        file.seek(start)
        block = file.read(min(BLOCK, end - start))
        if not block:
            return
        run.budget.taken += len(block)
        start += len(block)
        yield block


def _directory(file: BinaryIO) -> tuple[int, int, int]:
    """Where the directory stands, its size, how many members it announces. Raises Damaged."""
    length = file.seek(0, io.SEEK_END)
    tail_at = max(0, length - (1 << 16) - 42)
    file.seek(tail_at)
    tail = file.read()
    at = tail.rfind(END)
    if at < 0 or at + 22 > len(tail):
        raise Damaged("zip without its directory: cut off")
    count, size, start = struct.unpack_from("<HLL", tail, at + 10)
    if count == 0xFFFF or 0xFFFFFFFF in (size, start):
        where = tail.rfind(b"PK\6\7", 0, at)
        if where >= 0:
            file.seek(min(int.from_bytes(tail[where + 8 : where + 16], "little"), length))
            record = file.read(56)
            if record[:4] == b"PK\6\6" and len(record) == 56:
                count, size, start = struct.unpack_from("<QQQ", record, 32)
    if start + size > length:
        raise Damaged("damaged zip: its directory is not where it should be")
    file.seek(start)
    if count and file.read(4) != DIRECTORY:
        raise Damaged("damaged zip: its directory is not where it should be")
    return start, size, count
