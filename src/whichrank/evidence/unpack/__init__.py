"""Archives and compressed files, unpacked in memory block by block: .gz .bz2 .xz .zst .zip .tar and .tar.*, in each other.

What a file is, its first bytes say, not its name. Nothing is written to disk, and no limit of `Limits` is passed; what
cannot be read is a `Gap`, and what came before it is read.

>>> import gzip, io
>>> packed = io.BytesIO(gzip.compress(b"[rank3]: step 7"))
>>> [(member.name, b"".join(member.blocks)) for member in members("rank3.log.gz", packed, Budget())]
[('rank3.log.gz', b'[rank3]: step 7')]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from whichrank.evidence.unpack.codecs import CODECS, Codec, unpacked
from whichrank.evidence.unpack.stream import BLOCK, Budget, Limits, Run, Stream
from whichrank.evidence.unpack.tar import Tar, is_tar
from whichrank.evidence.unpack.zip import Zip, is_zip
from whichrank.facts import MEMBER, Gap

__all__ = ["BLOCK", "Budget", "Limits", "Member", "is_packed", "members"]

HEAD = 512  # bytes that tell what a file is
REFUSED = {
    b"7z\xbc\xaf\x27\x1c": ("a 7-Zip archive", "7z x"),
    b"Rar!\x1a\x07": ("a RAR archive", "unrar x"),
    b"\x04\x22\x4d\x18": ("packed with lz4", "lz4 -dc"),
    b"\x1f\x9d": ("packed with compress", "gzip -dc"),
    b"LZIP\1": ("packed with lzip", "lzip -dc"),
    b"\x89LZO\0\r\n\x1a\n": ("packed with lzop", "lzop -dc"),
}


# A document of an office program is a zip of XML: what it says is in none of its parts alone.
OFFICE_NAMES = (
    b"[Content_Types].xml",
    b"_rels/.rels",
    b"docProps/",
    b"xl/",
    b"word/",
    b"ppt/",
    b"mimetypeapplication/vnd.oasis",
)
OFFICE_DOCUMENT = ("a spreadsheet or another document of an office program", "its text: export it as CSV or plain text")
ZIP_NAME = 30  # where the first member's name begins


class Member(NamedTuple):
    """A file: itself, or one in an archive, then named "archive.tar.gz!inner/path.log".

    `blocks`: its bytes, at most `BLOCK` at a time. To be read before the next member is asked for; what is not read
    then is dropped.
    """

    name: str
    blocks: Iterator[bytes]


def is_packed(head: bytes) -> bool:
    """Is a file that begins so (its first 512 bytes) anything but plain?"""
    return _form(head) is not None


def members(name: str, stream: BinaryIO, budget: Budget) -> Iterator[Member | Gap]:
    """The files in a file, each once, and what of them cannot be read. `budget` is this file's own.

    A plain file is its own only member, a compressed one too. A zip is read from its end where `stream` can seek.
    """
    run = Run(name, budget)
    source = Stream()
    source.feed(_read(stream, source, run))
    yield from _opened(name, source, run, 0, file=stream if _seeks(stream) else None)
    yield from run.rest()


def _seeks(stream: BinaryIO) -> bool:
    try:
        return stream.seekable()
    except (AttributeError, OSError, ValueError):
        return False


def _read(stream: BinaryIO, source: Stream, run: Run) -> Iterator[bytes]:
    try:
        while not run.over and (block := stream.read(BLOCK)):
            run.budget.taken += len(block)
            yield block
    except OSError as error:
        source.broken = True
        run.gap(run.name, f"cannot be read further: {error.strerror or error}", "the file's content")


def _form(head: bytes) -> Codec | type[Tar] | type[Zip] | tuple[str, str] | None:
    for codec in CODECS:
        if codec.start(head):
            return codec
    if is_zip(head):
        return OFFICE_DOCUMENT if _is_office(head[ZIP_NAME:]) else Zip
    if is_tar(head):
        return Tar
    refused = next((told for magic, told in REFUSED.items() if head.startswith(magic)), None)
    return (refused[0], f"the files in it, unpacked by `{refused[1]}`") if refused else None


def _is_office(name: bytes) -> bool:
    """Does a zip whose first member's name begins so (OpenDocument: and its content) hold an office document?"""
    return name.startswith(OFFICE_NAMES)


def _opened(
    name: str, source: Stream, run: Run, depth: int, *, file: BinaryIO | None = None, packed: bool = False
) -> Iterator[Member | Gap]:
    """The files in a stream that lies `depth` archives deep; `packed`: it is what a compressed stream unpacks to."""
    form = _form(source.peek(HEAD))
    if form is None:
        if not (source.broken and not source.peek(1)):  # else a gap says why nothing came
            yield Member(name, source.blocks())
    elif isinstance(form, tuple):
        run.gap(name, f"{form[0]}: not read", form[1])
    elif depth - (packed and not isinstance(form, Codec)) >= run.budget.limits.depth:
        run.gap(name, f"lies in more than {run.budget.limits.depth} archives: not unpacked", "this file, unpacked")
    elif isinstance(form, Codec):
        yield from _opened(name, unpacked(name, form, source, run), run, depth + 1, packed=True)
    else:
        level = depth if packed else depth + 1  # a .tar.gz is one archive
        archive = Tar(name, source, run) if form is Tar else Zip(name, source, run, file)
        for entry in archive.entries():
            yield from run.news()
            yield from _opened(f"{name}{MEMBER}{entry.name}", entry.content, run, level)
    yield from run.news()
