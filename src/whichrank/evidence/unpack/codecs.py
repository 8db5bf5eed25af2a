"""Compressed streams: gzip, bzip2, xz, zstd, each also as several streams one after the other.

Formats: RFC 1952 (gzip), bzip2 1.0.8, the .xz format 1.2.1, RFC 8878 (zstd).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from whichrank.evidence.unpack.stream import BLOCK, Enough, Meter, Run, Stream

FIRST, MOST = 1 << 10, 1 << 16  # bytes given to a decoder at once; few at first: what it leaves over is copied
EMPTY = 10_000  # streams with nothing in them, one after the other


class Missing(Exception):
    """This Python cannot unpack the format; `command` installs what does."""

    def __init__(self, why: str, command: str = "") -> None:
        super().__init__(why)
        self.command = command


class Decoder(Protocol):
    """As bz2.BZ2Decompressor and lzma.LZMADecompressor."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class Inflate:
    """zlib's decompressor with the others' interface. `form` as zlib's wbits: 31 gzip, -15 bare deflate."""

    def __init__(self, form: int) -> None:
        self._inner = zlib.decompressobj(form)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def _module(name: str, word: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise Missing(f"packed with {word}, which this Python was built without") from None


def bunzip(run: Run) -> Decoder:
    decoder: Decoder = _module("bz2", "bzip2").BZ2Decompressor()
    return decoder


def unxz(run: Run) -> Decoder:
    lzma = _module("lzma", "xz")
    decoder: Decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=run.budget.limits.window + (8 << 20))
    return decoder


class ZipLzma:
    """LZMA as zip has it: a version, the properties, then a stream that may have no mark at its end.

    Layout: APPNOTE 5.8.8; the five bytes of properties are those of .lzma files (lc, lp, pb in one, the dictionary).
    """

    def __init__(self, run: Run, size: int) -> None:
        self._lzma, self._window, self._left = _module("lzma", "lzma"), run.budget.limits.window, size
        self._head = b""
        self._inner: Any = None

    @property
    def eof(self) -> bool:
        return bool(self._inner and (self._inner.eof or self._left <= 0))

    @property
    def needs_input(self) -> bool:
        return not self._inner or bool(self._inner.needs_input)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data) if self._inner else b""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        if self._inner is None:
            self._head += data
            if len(self._head) < 9:
                return b""
            if self._head[2:4] != b"\5\0" or self._head[4] >= 225:
                raise ValueError("no LZMA properties")
            self._inner, data = self._decoder(self._head[4], int.from_bytes(self._head[5:9], "little")), self._head[9:]
        found: bytes = self._inner.decompress(data, max_length)
        self._left -= len(found)
        return found

    def _decoder(self, properties: int, dictionary: int) -> Any:
        if dictionary > self._window:
            raise MemoryError
        high, lc = divmod(properties, 9)
        pb, lp = divmod(high, 5)
        chain = {"id": self._lzma.FILTER_LZMA1, "dict_size": max(dictionary, 4096), "lc": lc, "lp": lp, "pb": pb}
        return self._lzma.LZMADecompressor(self._lzma.FORMAT_RAW, filters=[chain])


def zstd_decoder() -> Callable[[], Any]:
    """What makes a decoder of one frame: Python 3.14's own, or the package zstandard's."""
    try:
        found: Callable[[], Any] = import_module("compression.zstd").ZstdDecompressor
        return found
    except ImportError:
        pass
    try:
        package = import_module("zstandard")
    except ImportError:
        raise Missing("packed with zstd, for which Python needs a package", "pip install zstandard") from None
    return lambda: package.ZstdDecompressor().decompressobj()


@dataclass(frozen=True, slots=True)
class Codec:
    """`start` tells whether a stream of it begins with these bytes; `decoder` is None for zstd, see `_frames`."""

    name: str
    start: Callable[[bytes], bool]
    decoder: Callable[[Run], Decoder] | None
    by_hand: str


def _is_bzip2(head: bytes) -> bool:
    return head[:3] == b"BZh" and head[3:4].isdigit() and head[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")


def _is_zstd(head: bytes) -> bool:
    return head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5)


GZIP = Codec("gzip", lambda head: head[:3] == b"\x1f\x8b\x08", lambda _: Inflate(31), "gzip -dc")
BZIP2 = Codec("bzip2", _is_bzip2, bunzip, "bzip2 -dc")
XZ = Codec("xz", lambda head: head[:6] == b"\xfd7zXZ\0", unxz, "xz -dc")
ZSTD = Codec("zstd", _is_zstd, None, "zstd -dc --long=31")
CODECS = (GZIP, BZIP2, XZ, ZSTD)


def unpacked(name: str, codec: Codec, source: Stream, run: Run, *, alone: bool = False) -> Stream:
    """What the stream unpacks to, as far as it goes; a gap about `name` says where it broke.

    `alone`: one stream of it only; what follows stays in `source`.
    """
    out = Stream()
    return out.feed(_blocks(name, codec, source, run, out, alone))


def _blocks(name: str, codec: Codec, source: Stream, run: Run, out: Stream, alone: bool) -> Iterator[bytes]:
    meter = Meter(run)
    whole = "the file again, whole"
    try:
        for block in _streams(codec, source, run, meter, alone):
            if block:
                meter.add(len(block))
                yield block
        return
    except Enough as error:
        if not run.over:
            run.gap(
                name,
                f"{error}; read up to there",
                "the end of it, where the hang is",
                f"{codec.by_hand} | tail -c 200M",
            )
    except Missing as error:
        run.gap(name, str(error), f"that package, or the file unpacked by `{codec.by_hand}`", error.command)
    except EOFError:
        if not (source.broken or run.over):  # else it is told already
            at = "; read up to there" if meter.made else " before anything could be read"
            run.gap(name, f"{codec.name} cut off in the middle{at}", whole)
    except Exception as error:  # every module has errors of its own
        if "emory usage limit" in str(error) or isinstance(error, MemoryError):
            why = f"{codec.name} asks for more memory than {run.budget.limits.window >> 20} MiB"
            run.gap(name, why, f"the file unpacked by `{codec.by_hand}`")
        else:
            at = "read up to there" if meter.made else "nothing of it could be read"
            run.gap(name, f"damaged {codec.name}: {error}; {at}", whole)
    out.broken = True


def _streams(codec: Codec, source: Stream, run: Run, meter: Meter, alone: bool) -> Iterator[bytes]:
    """All streams that stand one after the other. Raises EOFError where the last is cut off, Enough, Missing."""
    empty = 0
    while True:
        before = meter.made
        if codec.decoder is None:
            yield from _frame(source, run, meter)
        else:
            yield from decoded(codec.decoder(run), source, meter)
        if alone:
            return
        empty = 0 if meter.made > before else empty + 1
        if empty > EMPTY:
            raise Enough(f"more than {EMPTY:,} empty streams in a row")
        while (found := source.some()) and not (found := found.lstrip(b"\0")):
            pass  # padding to whole blocks of a tape
        source.back(found)
        if not found:
            if source.broken:
                raise EOFError
            return
        if not codec.start(source.peek(10)):
            raise ValueError("what follows its end is something else")


def decoded(decoder: Decoder, source: Stream, meter: Meter) -> Iterator[bytes]:
    """One stream. What was read beyond its end is put back."""
    step = FIRST
    while not decoder.eof:
        data = b""
        if decoder.needs_input:
            data = source.some(step)
            step = min(step * 2, MOST)
            meter.taken += len(data)
        block = decoder.decompress(data, BLOCK)
        yield block
        if not (data or block or decoder.eof) and decoder.needs_input:
            raise EOFError
    meter.taken -= len(decoder.unused_data)
    source.back(decoder.unused_data)


def _exactly(source: Stream, size: int, meter: Meter) -> bytes:
    found = source.read(size)
    meter.taken += len(found)
    if len(found) < size:
        raise EOFError
    return found


def _frame(source: Stream, run: Run, meter: Meter) -> Iterator[bytes]:
    """One zstd frame, a block at a time: a block makes at most 128 KiB, where 4 bytes of input may make as much.

    The package's own streaming does not say whether the input was cut off, and unpacks all it is given at once.
    """
    magic = _exactly(source, 4, meter)
    if magic[1:] == b"\x2a\x4d\x18":
        size = int.from_bytes(_exactly(source, 4, meter), "little")
        if source.skip(size) < size:
            raise EOFError
        return
    decoder = zstd_decoder()()
    head = _exactly(source, 1, meter)
    flags = head[0]
    single = bool(flags & 0x20)
    size_bytes = (1 if single else 0, 2, 4, 8)[flags >> 6]
    rest = _exactly(source, (0 if single else 1) + (0, 1, 2, 4)[flags & 3] + size_bytes, meter)
    if single:
        window = int.from_bytes(rest[len(rest) - size_bytes :], "little")
    else:
        window = (1 << (10 + (rest[0] >> 3))) // 8 * (8 + (rest[0] & 7))
    if window > run.budget.limits.window:
        raise MemoryError
    yield decoder.decompress(magic + head + rest)
    last = False
    while not last:
        head = _exactly(source, 3, meter)
        block = int.from_bytes(head, "little")
        last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        if kind == 3 or size > 1 << 17:
            raise ValueError("a block of no known kind")
        data = head + _exactly(source, 1 if kind == 1 else size, meter)
        if last and flags & 4:  # a checksum
            data += _exactly(source, 4, meter)
        yield decoder.decompress(data)
