"""The lines around a line: the right ones, also in archives, and never too many bytes."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from whichrank.evidence import around as module
from whichrank.evidence.around import _lines, around


def numbered(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(1, count + 1))


def test_three_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(numbered(100))
    found = around([str(tmp_path)], {f"{tmp_path.name}/a.log": [50]})
    assert found == {f"{tmp_path.name}/a.log": {number: f"line {number}" for number in range(47, 54)}}


def test_at_the_ends_there_are_fewer(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(numbered(5)[:-1])
    found = around([str(tmp_path / "a.log")], {str(tmp_path / "a.log"): [1, 5]})
    assert sorted(found[str(tmp_path / "a.log")]) == [1, 2, 3, 4, 5]


def test_packed_and_in_an_archive(tmp_path: Path) -> None:
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(numbered(40)))
    (tmp_path / "inner.log").write_bytes(numbered(40))
    with tarfile.open(tmp_path / "c.tar", "w") as archive:
        archive.add(tmp_path / "inner.log", "x/inner.log")
    packed, inner = str(tmp_path / "b.log.gz"), f"{tmp_path / 'c.tar'}!x/inner.log"
    found = around([packed, str(tmp_path / "c.tar")], {packed: [20], inner: [30]})
    assert found[packed][20] == "line 20" and found[inner][30] == "line 30"


def test_what_cannot_be_read_again_is_left_out(tmp_path: Path) -> None:
    assert around(["-", str(tmp_path / "gone.log")], {"-": [3], str(tmp_path / "gone.log"): [3]}) == {}


def test_a_file_is_read_no_further_than_needed() -> None:
    def endless():  # type: ignore[no-untyped-def]
        while True:
            yield numbered(1000)

    found, read = _lines(endless(), {10}, module.MOST)
    assert found == {10: "line 10"} and read < 20_000
    assert _lines(endless(), {10**9}, 100_000)[0] == {}


@given(st.lists(st.binary(max_size=40), max_size=30), st.sets(st.integers(1, 40), min_size=1))
def test_blocks_may_end_anywhere(blocks: list[bytes], wanted: set[int]) -> None:
    lines = b"".join(blocks).split(b"\n")
    found, _ = _lines(blocks, wanted, module.MOST)
    for number in wanted:
        there = number < len(lines) or (number == len(lines) and lines[-1] != b"")
        assert (number in found) == there
        if there:
            assert found[number] == lines[number - 1].decode("utf-8", "replace").rstrip("\r")
