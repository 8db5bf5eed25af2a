"""Archives and compressed files as they come: every format, in each other, cut off, damaged, encrypted."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whichrank.evidence.unpack import BLOCK, Budget, Limits, Member, is_packed, members
from whichrank.facts import Gap

LOG = "".join(f"[rank3]: step {step} loss {random.Random(step).random():.6f}\n" for step in range(60_000)).encode()
SHORT = LOG[:3000]


def zstd(data: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd as module

        return bytes(module.compress(data))
    return bytes(pytest.importorskip("zstandard").compress(data))


PACK: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}


class Pipe(io.RawIOBase):
    """A stream that cannot seek."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self._data.read(size)


def read(data: bytes | BinaryIO, name: str = "file", **limits: int) -> tuple[dict[str, bytes], list[Gap]]:
    stream = io.BytesIO(data) if isinstance(data, bytes) else data
    files, gaps = {}, []
    for found in members(name, stream, Budget(Limits(**limits))):
        if isinstance(found, Gap):
            gaps.append(found)
            continue
        blocks = list(found.blocks)
        assert all(0 < len(block) <= BLOCK for block in blocks)
        assert found.name not in files
        files[found.name] = b"".join(blocks)
    return files, gaps


def tar(files: dict[str, bytes], **options: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED, to: Any = None) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(to or out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


class OneWay(io.RawIOBase):
    """What zipfile takes for a pipe: sizes go behind the members."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += bytes(data)
        return len(data)


FILES = {"logs/rank0.log": LOG[:100_000], "logs/rank1.log": b"", "dmesg.txt": SHORT}


def under(name: str, files: dict[str, bytes] = FILES) -> dict[str, bytes]:
    return {f"{name}!{inner}": data for inner, data in files.items()}


def test_a_plain_file_is_itself_and_blocks_are_short() -> None:
    assert read(LOG, "rank3.log") == ({"rank3.log": LOG}, [])
    assert read(b"") == ({"file": b""}, [])
    assert not is_packed(LOG[:512])


@pytest.mark.parametrize("form", PACK)
def test_compressed_files_keep_their_names(form: str) -> None:
    packed = PACK[form](LOG)

    assert is_packed(packed[:512])
    assert read(packed, f"rank3.log.{form}") == ({f"rank3.log.{form}": LOG}, [])
    assert read(Pipe(packed), "-") == ({"-": LOG}, [])
    assert read(PACK[form](b"")) == ({"file": b""}, [])


@pytest.mark.parametrize("form", PACK)
def test_streams_one_after_the_other_are_one_file(form: str) -> None:
    parts = [LOG[at : at + 1000] for at in range(0, 2_000_000, 1000)] + [b""]

    packed = b"".join(map(PACK[form], parts))

    assert read(packed) == ({"file": b"".join(parts)}, [])
    assert read(packed + bytes(2048)) == ({"file": b"".join(parts)}, []), "padded"
    files, gaps = read(packed + b"and something else")
    assert files == {"file": b"".join(parts)} and "something else" in gaps[0].why


@pytest.mark.parametrize("form", ["", *PACK])
@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar(form: str, kind: int) -> None:
    packed = PACK.get(form, bytes)(tar(FILES, format=kind))

    assert read(packed, "job.tgz") == (under("job.tgz"), [])
    assert read(Pipe(packed), "-") == (under("-"), [])


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_names_that_are_not_ascii(kind: int) -> None:
    files = {"deep/" * 60 + "rank0.log": SHORT, "größe/日志.log": SHORT, "x" * 150: b"one\n"}

    assert read(tar(files, format=kind), "a") == (under("a", files), [])


def test_an_old_tar_without_magic() -> None:
    data = bytearray(tar({"rank0.log": SHORT}, format=tarfile.USTAR_FORMAT))
    data[257:345] = bytes(88)
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])

    assert read(bytes(data), "a") == ({"a!rank0.log": SHORT}, [])


@pytest.mark.parametrize("version", ["gnu", "0.0", "0.1", "1.0"])
def test_sparse_files(version: str, tmp_path: Path) -> None:
    """A log that was truncated under its writer begins with a hole, of which 64 KiB are given."""
    with (tmp_path / "rank0.log").open("wb") as file:
        for piece in range(1, 12):
            file.seek(piece * 10_000_000)
            file.write(b"step %d\n" % piece * 600)
    form = ["--format=gnu"] if version == "gnu" else ["--format=posix", f"--sparse-version={version}"]
    made = subprocess.run(["tar", "-cS", *form, "-C", tmp_path, "rank0.log"], capture_output=True)
    if made.returncode or len(made.stdout) > 1_000_000:
        pytest.skip("no GNU tar, or a file system without holes")

    files, gaps = read(made.stdout + tar({"after.log": SHORT}), "a")

    assert list(files) == ["a!rank0.log", "a!after.log"] and not gaps
    assert files["a!rank0.log"].replace(b"\0", b"") == b"".join(b"step %d\n" % piece * 600 for piece in range(1, 12))
    assert len(files["a!rank0.log"]) < 1_000_000


def test_links_devices_and_pipes_are_passed_over() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind, link in [
            ("logs", tarfile.DIRTYPE, ""),
            ("logs/latest", tarfile.SYMTYPE, "../logs/./rank0.log"),
            ("hard", tarfile.LNKTYPE, "logs/rank0.log"),
            ("folder", tarfile.SYMTYPE, "logs"),
            ("gone", tarfile.SYMTYPE, "/var/log/gone.log"),
            ("fifo", tarfile.FIFOTYPE, ""),
            ("null", tarfile.CHRTYPE, ""),
        ]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            archive.addfile(info)
        info = tarfile.TarInfo("logs/rank0.log")
        info.size = len(SHORT)
        archive.addfile(info, io.BytesIO(SHORT))

    files, gaps = read(out.getvalue(), "a")

    assert files == {"a!logs/rank0.log": SHORT}
    assert len(gaps) == 1 and "gone -> var/log/gone.log" in gaps[0].why and "latest" not in gaps[0].why


def test_names_that_lead_out_are_cleaned_and_told() -> None:
    names = ["../../etc/cron.d/x", "/abs/rank0.log", "C:\\logs\\rank1.log", "./fine/rank2.log", "a\x1b[31m\u202eb.log"]
    for packed in (tar(dict.fromkeys(names, SHORT)), zipped(dict.fromkeys(names, SHORT))):
        files, gaps = read(packed, "a")

        assert set(files) == {
            "a!etc/cron.d/x",
            "a!abs/rank0.log",
            "a!logs/rank1.log",
            "a!fine/rank2.log",
            r"a!a\x1b[31m\u202eb.log",
        }
        assert {gap.what for gap in gaps} == {"a!etc/cron.d/x", "a!abs/rank0.log", "a!logs/rank1.log"}
        assert all("\x1b" not in gap.what + gap.why for gap in gaps)


def test_a_name_that_comes_twice_is_two_files() -> None:
    files, gaps = read(tar({"rank0.log": b"old\n"})[:1024] + tar({"rank0.log": b"new\n"}), "a")

    assert files == {"a!rank0.log": b"old\n", "a!rank0.log (2)": b"new\n"} and not gaps


def test_mac_forks_are_left_out() -> None:
    files = {
        "logs/._rank0.log": b"\0\5\x16\7",
        "__MACOSX/x": b"",
        "logs/.DS_Store": b"\0\0\0\1Bud1",
        "logs/r.log": b"a",
    }

    assert read(tar(files), "a") == read(zipped(files), "a") == ({"a!logs/r.log": b"a"}, [])


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip(method: int) -> None:
    packed = zipped(FILES, method)

    assert read(packed, "a.zip") == (under("a.zip"), [])
    assert read(Pipe(packed), "-") == (under("-"), [])
    assert read(Pipe(packed), "-", spool=1000) == (under("-"), []), "too large to be kept: in the order of its members"


def test_zip_with_sizes_behind_the_members() -> None:
    out = OneWay()
    zipped(FILES, to=out)
    packed = bytes(out.data)

    assert read(packed, "a.zip") == (under("a.zip"), [])
    assert read(Pipe(packed), "-", spool=1000) == (under("-"), [])

    out = OneWay()
    zipped(FILES, zipfile.ZIP_STORED, to=out)
    assert read(bytes(out.data), "a.zip") == (under("a.zip"), [])
    files, gaps = read(Pipe(bytes(out.data)), "-", spool=1000)
    assert not files and "behind it" in gaps[0].why


@pytest.mark.parametrize("pipe", [False, True])
def test_zip64(pipe: bool) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in FILES.items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(data)
    packed = out.getvalue()

    files = read(Pipe(packed), "a", spool=1000) if pipe else read(packed, "a")

    assert files == (under("a"), [])


def test_more_members_than_zip_without_64_can_count() -> None:
    packed = zipped({f"{rank}.log": b"" for rank in range(65_600)}, zipfile.ZIP_STORED)

    files, gaps = read(packed, "a", members=70_000)

    assert len(files) == 65_600 and not gaps


def test_zips_own_zstd_and_what_is_not_read() -> None:
    packed = zstd(SHORT)
    data = bytearray(zipped({"a.log": packed, "b.log": SHORT}, zipfile.ZIP_STORED))
    for at in (8, data.index(b"PK\1\2") + 10):
        data[at] = 93
    head = data.index(b"PK\1\2")
    for at in (14, head + 16):
        data[at : at + 4] = zlib.crc32(SHORT).to_bytes(4, "little")
    for at in (22, head + 24):
        data[at : at + 4] = len(SHORT).to_bytes(4, "little")
    assert read(bytes(data), "a") == ({"a!a.log": SHORT, "a!b.log": SHORT}, [])

    for at in (8, head + 10):
        data[at] = 9
    files, gaps = read(bytes(data), "a")
    assert files == {"a!b.log": SHORT} and "Deflate64" in gaps[0].why

    for at in (6, head + 8):
        data[at] |= 1
    files, gaps = read(bytes(data), "a")
    assert files == {"a!b.log": SHORT} and gaps[0].why == "encrypted"


def test_archives_in_each_other_up_to_three() -> None:
    deep = tar({"b.zip": zipped({"rank0.log.gz": gzip.compress(SHORT)})})

    assert read(deep, "a.tar") == ({"a.tar!b.zip!rank0.log.gz": SHORT}, [])
    assert read(gzip.compress(deep), "a.tgz") == ({"a.tgz!b.zip!rank0.log.gz": SHORT}, [])
    files, gaps = read(zipped({"c.tar": deep, "r.log": SHORT}), "d.zip")
    assert files == {"d.zip!r.log": SHORT}
    assert [gap.what for gap in gaps] == ["d.zip!c.tar!b.zip!rank0.log.gz"]


def test_what_is_refused_says_so() -> None:
    for magic in (b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07\x01\0", b"\x04\x22\x4d\x18"):
        files, gaps = read(magic + bytes(range(256)))
        assert not files and gaps[0].would_help
    torch = zipped({"ckpt/data.pkl": b"\x80\2", "ckpt/data/0": bytes(1000)}, zipfile.ZIP_STORED)
    files, gaps = read(torch)
    assert not files and len(gaps) == 1 and "tensors" in gaps[0].why


@pytest.mark.parametrize(
    "first", ["[Content_Types].xml", "_rels/.rels", "docProps/app.xml", "xl/workbook.xml", "word/document.xml"]
)
def test_an_office_document_is_one_gap(first: str) -> None:
    parts = {first: b"<?xml?>", **{f"xl/worksheets/sheet{number}.xml": b"<worksheet/>" for number in range(9)}}

    files, gaps = read(zipped(parts), "nodes.xlsx")

    assert not files and [gap.what for gap in gaps] == ["nodes.xlsx"]
    assert "office" in gaps[0].why and "CSV" in gaps[0].would_help


def test_an_archive_that_holds_a_documents_part_further_on_is_an_archive() -> None:
    files, gaps = read(zipped({"rank0.log": SHORT, "xl/workbook.xml": SHORT}), "job.zip")

    assert set(files) == {"job.zip!rank0.log", "job.zip!xl/workbook.xml"} and not gaps


def test_zstd_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)

    files, gaps = read(zipped({"a.log.zst": b"\x28\xb5\x2f\xfd" + bytes(50), "b.log": SHORT}), "x")

    assert files == {"x!b.log": SHORT}
    assert gaps[0].command == "pip install zstandard" and "zstd -dc" in gaps[0].would_help


def samples() -> Iterator[tuple[str, bytes, bytes]]:
    """(what, packed, all that may come out of it one after the other)"""
    rng = random.Random(0)
    noisy = b"".join(b"[rank%d]: %x\n" % (rng.randrange(8), rng.getrandbits(200)) for _ in range(20_000))
    for form, pack in PACK.items():
        if form != "zst":
            yield form, pack(noisy[:400_000]) + pack(noisy[400_000:]), noisy
    halves = {"a.log": noisy[:400_000], "b.log": noisy[400_000:]}
    yield "tar", tar(halves), noisy
    yield "tar.gz", gzip.compress(tar(halves)), noisy
    yield "zip", zipped(halves), noisy
    yield "stored zip", zipped(halves, zipfile.ZIP_STORED), noisy


SAMPLES = list(samples())


def whole() -> list[tuple[str, bytes, bytes]]:
    try:
        return [*SAMPLES, ("zst", zstd(SAMPLES[0][2]) + zstd(LOG), SAMPLES[0][2] + LOG)]
    except pytest.skip.Exception:
        return SAMPLES


@settings(max_examples=60, deadline=None)
@given(which=st.integers(0, 7), share=st.floats(0.02, 0.999))
def test_what_is_cut_off_is_read_as_far_as_it_goes(which: int, share: float) -> None:
    what, packed, text = whole()[which % len(whole())]
    cut = packed[: int(len(packed) * share)]
    for stream in (io.BytesIO(cut), Pipe(cut)):
        files, gaps = read(stream, spool=100_000)

        assert gaps or b"".join(files.values()) == text, "it is said"
        assert text.startswith(b"".join(files.values()))
        if share > 0.5 and what != "xz":
            assert len(b"".join(files.values())) > len(text) // 10


@settings(max_examples=100, deadline=None)
@given(which=st.integers(0, 7), seed=st.integers(0, 1 << 30), bytes_=st.integers(1, 40))
def test_damage_never_raises_and_what_is_whole_before_it_is_read(which: int, seed: int, bytes_: int) -> None:
    what, packed, text = whole()[which % len(whole())]
    rng = random.Random(seed)
    data = bytearray(packed)
    first = rng.randrange(10, len(data))
    data[first] ^= 1 << rng.randrange(8)
    for _ in range(bytes_ - 1):
        data[rng.randrange(first, len(data))] = rng.randrange(256)

    files, gaps = read(bytes(data))

    out = b"".join(files.values())
    assert len(out) < 3 * len(text)
    if what in ("gz", "bz2", "xz", "tar.gz") and out != text:
        assert gaps
    if what in ("tar", "stored zip") and first > 300_000:
        assert out[:200_000] == text[:200_000]


@given(
    st.binary(max_size=2000),
    st.sampled_from(
        [b"\x1f\x8b\x08", b"BZh91AY&SY", b"\xfd7zXZ\0", b"PK\3\4", b"PK\5\6", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"]
    ),
)
def test_any_bytes_behind_a_magic_end_without_an_exception(data: bytes, magic: bytes) -> None:
    read(magic + data)


@given(st.data())
def test_any_tar_header_ends_without_an_exception(data: st.DataObject) -> None:
    """Valid checksums over wild fields: sizes, types, sparse maps, pax records."""
    wild = bytearray(tar({"a.log": SHORT, "b.log": b"x" * 700}, format=tarfile.PAX_FORMAT))
    at = data.draw(st.sampled_from([0, 512 + 3072]))
    for _ in range(data.draw(st.integers(1, 4))):
        field = data.draw(st.sampled_from([0, 124, 135, 156, 157, 257, 345, 386, 398, 482, 483]))
        new = data.draw(
            st.sampled_from([b"x", b"S", b"L", b"g", b"\x80" + b"\xff" * 8, b"7777777777", b"\0", b"-1", b"1"])
        )
        wild[at + field : at + field + len(new)] = new
    wild[at + 148 : at + 156] = b" " * 8
    wild[at + 148 : at + 156] = b"%06o\0 " % sum(wild[at : at + 512])
    wild[at + 512 : at + 512] = data.draw(
        st.sampled_from([b"", b"30 GNU.sparse.map=1,2,3,4,5,\n".ljust(512, b"\0"), b"9\n1\n2\n".ljust(512, b"\0")])
    )

    read(bytes(wild), "a")


def test_a_damaged_tar_header_costs_its_member_only() -> None:
    data = bytearray(tar({"a.log": SHORT, "b.log": SHORT, "c.log": SHORT}))
    second = data.index(b"b.log\0")
    data[second + 150] ^= 1

    files, gaps = read(bytes(data), "x")

    assert files == {"x!a.log": SHORT, "x!c.log": SHORT}
    assert len(gaps) == 1 and f"{second:,}" in gaps[0].why


def test_a_stream_that_fails_is_read_up_to_there() -> None:
    class Failing(Pipe):
        def read(self, size: int = -1) -> bytes:
            found = super().read(1000)
            if not found:
                raise OSError(116, "Stale file handle")
            return found

    files, gaps = read(Failing(gzip.compress(LOG)[:5000]), "nfs.log.gz")

    assert LOG.startswith(files["nfs.log.gz"]) and files["nfs.log.gz"]
    assert [gap.why for gap in gaps] == ["cannot be read further: Stale file handle"]


def test_a_member_that_nobody_reads_is_dropped() -> None:
    for packed in (tar(FILES), gzip.compress(tar(FILES)), zipped(FILES)):
        found = [entry.name for entry in members("a", io.BytesIO(packed), Budget()) if isinstance(entry, Member)]
        assert found == list(under("a"))
