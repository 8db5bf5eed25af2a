"""Small files that would unpack to more than a machine holds: seconds, less than 100 MB, and a gap that says why.

Each is read in a process of its own, whose peak of memory is then known; plain Python takes 10 MB of it.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from whichrank.evidence.unpack import Budget, Limits, members
from whichrank.facts import Gap

MIB = 1 << 20
READ = """
import json, resource, sys
from whichrank.evidence.unpack import Budget, members
sizes, gaps = {}, []
with open(sys.argv[1], "rb") as file:
    for found in members("x", file, Budget()):
        if hasattr(found, "blocks"):
            sizes[found.name] = sum(map(len, found.blocks))
        else:
            gaps.append(found.why)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)
try:  # Linux counts the parent's memory before exec into ru_maxrss
    peak = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
except OSError:
    pass
print(json.dumps([sizes, gaps, peak]))
"""


def read(file: Path) -> tuple[dict[str, int], list[str]]:
    """Sizes of the members and the gaps' words; within limits of time and memory."""
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", READ, file], capture_output=True, timeout=100, check=True)
    sizes, gaps, peak_kib = json.loads(done.stdout)
    assert time.monotonic() - begun < 40, "a slow machine under load may take a few times what mine does"
    assert peak_kib < 100 * 1024
    return sizes, gaps


def zstd_of(blocks: int) -> bytes:
    """A frame of zeros, by hand: four bytes stand for 128 KiB."""
    run = (1 << 1 | (1 << 17) << 3).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x38" + run * blocks + b"\1\0\0"


FORMS: dict[str, Callable[[], bytes]] = {
    "gzip": lambda: gzip.compress(bytes(50 * MIB)) * 200,
    "bzip2": lambda: bz2.compress(bytes(50 * MIB)) * 200,
    "xz": lambda: lzma.compress(bytes(50 * MIB), preset=0) * 200,
    "zstd": lambda: zstd_of(80_000),
}


@pytest.mark.parametrize("form", FORMS)
def test_zeros(form: str, tmp_path: Path) -> None:
    if form == "zstd" and sys.version_info < (3, 14):
        pytest.importorskip("zstandard")
    (tmp_path / "bomb").write_bytes(FORMS[form]())

    sizes, gaps = read(tmp_path / "bomb")

    assert 250 * MIB < sizes["x"] < 300 * MIB
    assert len(gaps) == 1 and "256 MiB and 1,000 times" in gaps[0]


def test_a_bomb_in_a_zip_leaves_the_others(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "z", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", bytes(400 * MIB))
        archive.writestr("twice.gz", gzip.compress(gzip.compress(bytes(50 * MIB)) * 8))
        archive.writestr("rank0.log", "step 1\n")

    sizes, gaps = read(tmp_path / "z")

    assert sizes["x!rank0.log"] == 7 and max(sizes.values()) < 300 * MIB
    assert len(gaps) == 2


def test_all_together_have_a_limit(tmp_path: Path) -> None:
    one = gzip.compress(bytes(250 * MIB))
    with zipfile.ZipFile(tmp_path / "z", "w", zipfile.ZIP_DEFLATED) as archive:
        for at in range(200):
            archive.writestr(f"{at}.gz", one)

    sizes, gaps = read(tmp_path / "z")

    assert sum(sizes.values()) < 1100 * MIB
    assert len(gaps) == 1 and "1 GiB and 1,000 times its size; what comes after" in gaps[0]


def test_members_that_overlap(tmp_path: Path) -> None:
    """All entries of the directory show the same kernel, as in "A better zip bomb" (Fifield, 2019)."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0", bytes(20 * MIB))
    data = out.getvalue()
    at = data.index(b"PK\1\2")
    end = data.index(b"PK\5\6")
    count = 50_000
    tail = data[end : end + 8] + struct.pack("<HHLLH", count, count, (end - at) * count, at, 0)
    (tmp_path / "z").write_bytes(data[:at] + data[at:end] * count + tail)

    sizes, gaps = read(tmp_path / "z")

    assert sizes == {"x!0": 20 * MIB}
    assert "overlaps" in gaps[0] and len(gaps) <= 21 and "49,9" in gaps[-1]


def test_a_zip_of_zips_of_zips(tmp_path: Path) -> None:
    data = b"step 1\n"
    for _ in range(5):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for at in range(16):
                archive.writestr(f"{at}.zip", data)
        data = out.getvalue()
    (tmp_path / "z").write_bytes(data)

    sizes, gaps = read(tmp_path / "z")

    assert not sizes and len(gaps) == 21 and "more than 3 archives" in gaps[0] and "4,076 more" in gaps[-1]


def test_a_tar_with_a_million_members(tmp_path: Path) -> None:
    file = tmp_path / "t.gz"
    for kind in (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE):
        info = tarfile.TarInfo("rank0.log")
        info.type, info.linkname = kind, "x"
        file.write_bytes(gzip.compress(info.tobuf() * 10_000) * 100)

        sizes, gaps = read(file)

        assert len(sizes) == (10_000 if kind == tarfile.REGTYPE else 0)
        assert (len(gaps) == 1 and "10,000 files" in gaps[0]) or "100,000 entries" in gaps[0]


def test_huge_headers_and_holes(tmp_path: Path) -> None:
    """A pax header, a name and a sparse file, each of 8 GiB by its own word."""
    whole = []
    for kind in (b"x", b"L", b"S"):
        info = tarfile.TarInfo("rank0.log")
        info.size, info.type = 1 << 33, kind
        head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
        head[386:410] = b"00000000000\0" + b"00000000007\0"
        head[483:494] = b"77777777777"
        head[148:156] = b"%06o\0 " % (sum(head) - sum(head[148:156]) + 256)
        whole.append(gzip.compress(head) + gzip.compress(b"a=b\n" * (MIB // 4)) * 300)
    for packed in whole:
        (tmp_path / "t.gz").write_bytes(packed)

        _, gaps = read(tmp_path / "t.gz")

        assert gaps


def test_large_dictionaries(tmp_path: Path) -> None:
    """What `xz -9` and `zstd --ultra -21` write is read; what asks for 1.5 GiB is not."""
    log = b"step 1\n" * 1000
    big = [{"id": lzma.FILTER_LZMA2, "dict_size": 1536 * MIB, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3, "nice_len": 8}]
    (tmp_path / "9.xz").write_bytes(lzma.compress(log, preset=9))
    assert read(tmp_path / "9.xz") == ({"x": 7000}, [])

    packed = bytearray(lzma.compress(log, filters=[{**big[0], "dict_size": MIB}]))
    at = 12  # the block's header: size, flags, filter 0x21, its one byte of properties, padding, CRC32
    assert packed[at + 2 : at + 4] == b"\x21\x01"
    packed[at + 4] = 37
    end = at + (packed[at] + 1) * 4 - 4
    packed[end : end + 4] = zlib.crc32(packed[at:end]).to_bytes(4, "little")
    (tmp_path / "big.xz").write_bytes(packed)
    sizes, gaps = read(tmp_path / "big.xz")
    assert not sizes and "more memory than 64 MiB" in gaps[0]

    (tmp_path / "big.zst").write_bytes(b"\x28\xb5\x2f\xfd\x00\xa8" + bytes(100))
    sizes, gaps = read(tmp_path / "big.zst")
    assert not sizes and ("more memory than 64 MiB" in gaps[0] or "needs a package" in gaps[0])


def test_many_empty_streams(tmp_path: Path) -> None:
    for packed in (gzip.compress(b""), bz2.compress(b""), lzma.compress(b"")):
        (tmp_path / "e").write_bytes(packed * 300_000)

        sizes, gaps = read(tmp_path / "e")

        assert not any(sizes.values()) and "empty streams" in gaps[0]


def test_a_log_of_equal_lines_is_no_bomb(tmp_path: Path) -> None:
    line = b"2026-05-12 09:00:00 [rank3] step 7 loss 2.31\n" * 1000
    (tmp_path / "r.gz").write_bytes(gzip.compress(line * 90) * 100)

    sizes, gaps = read(tmp_path / "r.gz")

    assert sizes == {"x": 9000 * len(line)} and not gaps, "405 MB, 300:1"


def test_the_limit_is_one_file_s_own() -> None:
    budget = Budget(Limits(total=1000))
    first = list(members("a", io.BytesIO(gzip.compress(bytes(999))), budget))
    for member in first:
        assert not isinstance(member, Gap) and len(b"".join(member.blocks)) == 999
    assert budget.made == 999
