"""tar: ustar, pax and GNU (long names, sparse files), read as it comes.

Formats: POSIX.1-2017 pax, GNU tar 1.35 (tar.h, "Storing Sparse Files"). Own code, because the standard library's reads
a long name's or a pax header's announced size at once, however large, and stops at the first damaged header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from whichrank.evidence.unpack import names
from whichrank.evidence.unpack.stream import Entry, Run, Stream
from whichrank.facts import MEMBER

UNIT = 512
EXTRA = 1 << 20  # bytes of a pax header or a long name
HOLE = 1 << 16  # bytes given of a hole: logs that were truncated under their writer begin with large ones
PIECES = 1 << 16  # of a sparse file
PADDING = 4096  # units of zeros after which a tar has ended
_NOTHING = bytes(UNIT)
_RECORD = re.compile(rb"(\d{1,7}) ([^=\n]{1,200})=")
_NO_DATA = b"123456"  # links, devices, folders, FIFOs: a size is no announcement of data
_PASSED = b"DVNM"  # lists of folders, volume labels, the end of a file that began on another tape
_CUT = "cut off in the middle; read up to there"


@dataclass(slots=True)
class Header:
    name: str
    size: int
    kind: bytes
    link: str
    raw: bytes


def is_tar(head: bytes) -> bool:
    """By its checksum: old tars have no magic. By its magic where the first header is damaged."""
    if len(head) < UNIT:
        return False
    named = b"\0" in head[:100] and head[257:263] in (b"ustar\0", b"ustar ")
    return named or (_sums_up(head[:UNIT]) and head[0] != 0)


def _sums_up(raw: bytes) -> bool:
    field = raw[148:156].strip(b" \0")
    if not re.fullmatch(rb"[0-7]{1,8}", field):
        return False
    told = int(field, 8)
    rest = raw[:148] + b" " * 8 + raw[156:]
    return told == sum(rest) or told == sum(byte - 256 * (byte > 127) for byte in rest)


def _number(field: bytes) -> int:
    """Octal digits, or 256-based where the first bit is set. Raises ValueError."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    return int(field.strip(b" \0") or b"0", 8)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def _header(raw: bytes) -> Header | None:
    if not _sums_up(raw):
        return None
    try:
        size = _number(raw[124:136])
    except ValueError:
        return None
    name = _text(raw[:100])
    if raw[257:263] == b"ustar\0" and (prefix := _text(raw[345:500])):
        name = f"{prefix}/{name}"
    kind = raw[156:157]
    if kind == b"\0":
        kind = b"5" if name.endswith("/") else b"0"
    return Header(name, 0 if kind in _NO_DATA else size, kind, _text(raw[157:257]), raw)


class Tar:
    """One archive under way. `entries` gives its files; each must be read, or dropped, before the next."""

    def __init__(self, name: str, source: Stream, run: Run) -> None:
        self.name, self.source, self.run = name, source, run
        self.at = 0  # bytes
        self.damaged = False
        self.links: dict[str, str] = {}
        self.names = names.Distinct()

    def entries(self) -> Iterator[Entry]:
        extra: dict[str, str] = {}
        sparse: list[tuple[int, int]] = []
        while (header := self._next()) is not None and self.run.entry():
            if header.kind in (b"x", b"X", b"g", b"L", b"K"):
                found, pieces = self._extra(header)
                if header.kind != b"g":  # says the same of all members: a comment, times
                    extra.update(found)
                    sparse.extend(pieces)
                continue
            yield from self._entry(header, extra, sparse)
            extra, sparse = {}, []
        self._dangling()

    def _next(self) -> Header | None:
        """The next header, None at the end."""
        zeros = 0
        while True:
            raw = self.source.read(UNIT)
            self.at += len(raw)
            if len(raw) < UNIT:
                if not zeros and not self._told():
                    self.run.gap(self.name, "tar without an end: it seems to be cut off", "the file again, whole")
                return None
            if raw == _NOTHING:
                zeros += 1
                if zeros > PADDING:
                    return None
                continue
            if (header := _header(raw)) is not None:
                return header
            if not self.damaged:
                self.damaged = True
                where = f"damaged tar: no header at byte {self.at - UNIT:,}"
                self.run.gap(self.name, f"{where}; the next one after it is looked for", "the file again, whole")

    def _told(self) -> bool:
        return self.source.broken or self.run.over

    def _payload(self, size: int) -> Iterator[bytes]:
        """The data behind a header, with its padding passed over, once all of it is asked for."""
        read = 0
        for block in self.source.part(size):
            read += len(block)
            yield block
        self.at += read + self.source.skip(-size % UNIT)
        if read < size and not self._told():
            self.run.gap(self.name, _CUT, "the file again, whole")
            self.source.broken = True

    def _extra(self, header: Header) -> tuple[dict[str, str], list[tuple[int, int]]]:
        """What a header says about the next one: its records, and the pieces of a sparse file (GNU's 0.0)."""
        blocks = self._payload(header.size)
        if header.size > EXTRA:
            for _ in blocks:
                pass
            self.run.gap(self.name, f"a header of {header.size:,} bytes in it was passed over")
            return {}, []
        data = b"".join(blocks)
        if header.kind in (b"L", b"K"):
            return {"path" if header.kind == b"L" else "linkpath": _text(data)}, []
        return _records(data)

    def _entry(self, header: Header, extra: dict[str, str], sparse: list[tuple[int, int]]) -> Iterator[Entry]:
        told = extra.get("GNU.sparse.name") or extra.get("path") or header.name
        kind = header.kind
        size = header.size
        if kind not in _NO_DATA and extra.get("size", "").isdecimal():
            size = int(extra["size"][:20])
        name, strange = names.clean(told)
        content = Stream(self._data(name, header, size, extra, sparse))
        if kind in b"12":
            link = extra.get("linkpath") or header.link
            base = "" if kind == b"1" or link.startswith("/") else told.rpartition("/")[0] + "/"
            self.links[name] = _joined(base + link)
        elif (
            kind not in _NO_DATA and kind not in _PASSED and not told.endswith("/") and not names.beside_the_point(name)
        ):
            if strange:
                self.run.outside(f"{self.name}{MEMBER}{name}", told)
            if self.run.member():
                yield Entry(self.names.add(name), content)
        content.drain()

    def _data(
        self, name: str, header: Header, size: int, extra: dict[str, str], sparse: list[tuple[int, int]]
    ) -> Iterator[bytes]:
        payload = Stream(self._payload(size))
        try:
            if header.kind == b"S":
                sparse = self._old_sparse(header)
            elif extra.get("GNU.sparse.major") == "1":
                sparse = _leading_map(payload)
            elif "GNU.sparse.map" in extra:
                numbers = list(map(int, extra["GNU.sparse.map"].split(",")))
                sparse = list(zip(numbers[::2], numbers[1::2], strict=True))
            else:
                sparse = sparse if "GNU.sparse.size" in extra else []
            whole = extra.get("GNU.sparse.realsize") or extra.get("GNU.sparse.size") or "0"
            end = _number(header.raw[483:495]) if header.kind == b"S" else int(whole[:20])
        except ValueError:
            self.run.gap(f"{self.name}{MEMBER}{name}", "a sparse file whose map is damaged; read without its holes")
            sparse, end = [], 0
        yield from _filled(payload, sparse, end) if sparse else payload.blocks()
        payload.drain()

    def _old_sparse(self, header: Header) -> list[tuple[int, int]]:
        """GNU's own: four pieces in the header, more in units after it. Raises ValueError."""
        pieces = _pairs(header.raw[386:482])
        more = header.raw[482]
        while more:
            unit = self.source.read(UNIT)
            self.at += len(unit)
            if len(unit) < UNIT or len(pieces) > PIECES:
                raise ValueError
            pieces.extend(_pairs(unit[:504]))
            more = unit[504]
        return pieces

    def _dangling(self) -> None:
        """Links to what is not in the archive."""
        folders = self.names.folders()
        lost = [f"{name} -> {target}" for name, target in self.links.items() if not self._known(target, folders)]
        if lost and not self.run.over:
            shown = ", ".join(lost[:3]) + (f" and {len(lost) - 3:,} more" if len(lost) > 3 else "")
            self.run.gap(
                self.name, f"links to files that are not in it: {shown[:400]}", "an archive made with `tar -h`"
            )

    def _known(self, target: str, folders: set[str]) -> bool:
        return target in self.names or target in folders or target in self.links


def _joined(path: str) -> str:
    """Where a link points within the archive, as `names.clean` would call it."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return names.clean("/".join(parts))[0]


def _records(data: bytes) -> tuple[dict[str, str], list[tuple[int, int]]]:
    """pax: "LENGTH key=value" and a line end, where the length counts all of it."""
    found: dict[str, str] = {}
    numbers: list[int] = []
    at = 0
    while match := _RECORD.match(data, at):
        end = at + int(match[1])
        if end <= match.end() or end > len(data):
            break
        key, value = match[2].decode("utf-8", "replace"), data[match.end() : end - 1].decode("utf-8", "replace")
        if key in ("GNU.sparse.offset", "GNU.sparse.numbytes") and value.isdecimal() and len(numbers) < 2 * PIECES:
            numbers.append(int(value[:20]))
        found[key] = value
        at = end
    return found, list(zip(numbers[::2], numbers[1::2]))  # noqa: B905  an odd one out has no length


def _pairs(data: bytes) -> list[tuple[int, int]]:
    pairs = [(data[at : at + 12], data[at + 12 : at + 24]) for at in range(0, len(data) - 23, 24)]
    return [(_number(offset), _number(size)) for offset, size in pairs if offset.strip(b"\0")]


def _leading_map(payload: Stream) -> list[tuple[int, int]]:
    """GNU's 1.0: decimal lines before the data, padded to a unit. Raises ValueError."""
    numbers: list[int] = []
    held = b""
    while not numbers or len(numbers) < 1 + 2 * numbers[0]:
        unit = payload.read(UNIT)
        if len(unit) < UNIT or len(numbers) > 2 * PIECES:
            raise ValueError
        *lines, held = (held + unit).split(b"\n")
        numbers.extend(
            int(line[:20])
            for line in lines[: 1 + 2 * numbers[0] - len(numbers) if numbers else None]
            if line.strip(b"\0")
        )
    count = numbers[0]
    return list(zip(numbers[1 : 1 + 2 * count : 2], numbers[2 : 2 + 2 * count : 2], strict=True))


def _filled(payload: Stream, sparse: list[tuple[int, int]], end: int) -> Iterator[bytes]:
    """The pieces, with zeros between them. Of a large hole no more than `HOLE`: nobody reads zeros."""
    at = 0
    for offset, size in [*sparse, (end, 0)]:
        if offset > at:
            yield bytes(min(offset - at, HOLE))
        yield from payload.part(size)
        at = max(at, offset + size)
