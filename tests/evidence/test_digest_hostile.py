"""Digests that somebody made up: a gap each, in bounded time and memory, and the rest is still diagnosed."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import rings
from rings import culprits, written

from whichrank import diagnose
from whichrank.evidence import read
from whichrank.evidence.digest import joined, split
from whichrank.evidence.reduce import reduce
from whichrank.report import json_report

HEAD = b"WHICHRANK DIGEST 1\n"
SOURCES, PEOPLE, FACTS, SAID, GAPS, RINGS = range(4, 10)
JUNK = (None, -1, 10**18, 1.5, float("nan"), "x", b"\xff", [], {}, [1], {"a": 1}, True, [[[]]])
Change = Callable[[list[Any]], None]


@pytest.fixture
def blocks(tmp_path: Path) -> list[bytes]:
    """Of three ranks' dumps and a log."""
    folder = written(tmp_path / "run", world=3, stuck=1)
    lines = [f"2025-11-30 05:{minute:02}:00 [rank{minute % 3}] step {minute}" for minute in range(9)]
    lines.append("[rank0]:[E ProcessGroupNCCL.cpp:523] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=7, NumelOut=7, Timeout(ms)=1800000) ran for 1800518 milliseconds before timing out.")  # fmt: skip
    (folder / "node.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return split(reduce([str(folder)]).data)


def changed(block: bytes, change: Change) -> bytes:
    content = msgspec.msgpack.decode(block, ext_hook=lambda code, data: msgspec.msgpack.Ext(code, bytes(data)))
    change(content)
    return msgspec.msgpack.encode(content)


def places(content: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = enumerate(content) if isinstance(content, list) else content.items() if isinstance(content, dict) else ()
    return [place for key, item in items for place in ((*above, key), *places(item, (*above, key)))]


def put(content: Any, place: tuple[Any, ...], value: Any) -> None:
    for key in place[:-1]:
        content = content[key]
    content[place[-1]] = value


def test_parts_of_any_other_type(blocks: list[bytes], tmp_path: Path) -> None:
    """Each part of a block in turn becomes something else: said, or harmless, and nothing is raised."""
    rng = random.Random(5)
    made = tmp_path / "made.digest"
    for number, block in enumerate(blocks):
        for place in places(msgspec.msgpack.decode(block, ext_hook=lambda code, data: bytes(data))):
            if (len(place) < 4 and rng.random() < 0.7) or rng.random() < 0.05:
                other = changed(block, lambda content, place=place: put(content, place, rng.choice(JUNK)))  # type: ignore[misc]
                made.write_bytes(joined([*blocks[:number], other, *blocks[number + 1 :]]))
                json_report.render(diagnose([str(made)]))
                reduce([str(made)])


def ranks(*members: Any) -> Change:
    return lambda content: content[RINGS][0][5][0].__setitem__(2, [*members])


UNBELIEVABLE: dict[str, Change] = {
    "a group of millions": ranks(0, 200_000_000, 1, None),
    "a group of negative ranks": ranks(-5, 10, 1, None),
    "a group of texts": ranks("a", "b"),
    "a group without members": ranks(),
    "a rank that no job has": lambda content: content[RINGS][0].__setitem__(1, 10**9),
    "a negative rank": lambda content: content[RINGS][0].__setitem__(1, -1),
    "columns of floats": lambda content: content[RINGS][0].__setitem__(9, "d" * 16),
    "too many calls": lambda content: content[RINGS][0].__setitem__(8, 10**9),
    "a negative number of calls": lambda content: content[RINGS][0].__setitem__(8, -1),
    "another version": lambda content: content.__setitem__(0, 2),
    "lists of nothing": lambda content: content.__setitem__(FACTS, [[]] * 1_000_000),
}


@pytest.mark.parametrize("name", UNBELIEVABLE)
def test_a_ring_that_cannot_be_is_a_gap_and_the_others_count(blocks: list[bytes], name: str, tmp_path: Path) -> None:
    ring = next(block for block in blocks if b"comm_lib_trace_rank_2" in block)
    made = tmp_path / "made.digest"
    made.write_bytes(joined([block for block in blocks if block is not ring] + [changed(ring, UNBELIEVABLE[name])]))
    report = diagnose([str(made)])
    assert culprits(report) == [1]
    assert any(gap.what.endswith("made.digest") and "cannot be read" in gap.why for gap in report.gaps)


def test_values_that_no_reader_makes(blocks: list[bytes], tmp_path: Path) -> None:
    """Only its readers know which values a fact has: a digest on which nobody can reason is left out, and said to be."""
    log = next(block for block in blocks if b"ALLREDUCE" in block)

    def change(content: list[Any]) -> None:
        for fact in content[FACTS]:
            fact[9] = {name: [[{}]] for name in fact[9]}

    (tmp_path / "made.digest").write_bytes(joined([changed(log, change)]))
    (tmp_path / "good.digest").write_bytes(joined([block for block in blocks if block is not log]))
    report = diagnose([str(tmp_path / "made.digest"), str(tmp_path / "good.digest")])
    assert culprits(report) == [1]
    assert [gap.what for gap in report.gaps if "no reader of logs makes" in gap.why] == [str(tmp_path / "made.digest")]


def test_blocks_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    (tmp_path / "made.digest").write_bytes(joined([b"junk%d" % number for number in range(900)]))
    gaps = read([str(tmp_path / "made.digest")]).gaps
    assert len(gaps) == 1 and gaps[0].why.startswith("900 blocks of it cannot be read: ")


def array(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big")


BOMBS = {
    "millions of empty blocks": zlib.compress(array(30 << 20) + b"\xc4\x00" * (30 << 20), 9),
    "more blocks than bytes": zlib.compress(array(2**31), 9),
    "zeros": zlib.compress(b"\xdd\x3f\xff\xff\xff" + bytes(1 << 28), 9),
    "empty lists": joined([b"\x9a\x01\xa1h\xa1n\x92\x00\x00\x90\x90" + array(29 << 20) + b"\x90" * (29 << 20)])[19:],
    "empty lists among the values of a fact": joined([
        b"\x9a\x01\xa1h\xa1n\x92\x00\x00\x90\x91\x80\x91\x9a\xa1k\x00\x01\xa1x\xc0\xa4none\x00\xc0\xc0\x81\xa1v"
        + array(29 << 20) + b"\x90" * (29 << 20)
    ])[19:],
    "a list in a list in a list": joined([b"\x91" * 1_000_000 + b"\xc0"])[19:],
}  # fmt: skip
PEAK = "import resource, sys; from whichrank.evidence import read; [print(gap.why) for gap in read(sys.argv[1:]).gaps]; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits of memory are Linux's")
@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str, tmp_path: Path) -> None:
    (tmp_path / "bomb.digest").write_bytes(HEAD + BOMBS[name])
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "bomb.digest")],
        capture_output=True, text=True, timeout=60, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    *gaps, kilobytes = done.stdout.splitlines()
    assert len(gaps) == 1 and int(kilobytes) < 700 << 10, done


def test_numbers_that_collide_as_keys_are_refused(blocks: list[bytes], tmp_path: Path) -> None:
    """A set of 20,000 numbers whose hashes are the same would be made for a minute."""
    numbers = [msgspec.msgpack.Ext(3, b"%d" % (n * (2**61 - 1))) for n in range(20_000)]
    same = msgspec.msgpack.Ext(2, msgspec.msgpack.encode(numbers))
    log = next(block for block in blocks if b"ALLREDUCE" in block)
    other = changed(log, lambda content: content[FACTS][0][9].__setitem__("v", same))
    (tmp_path / "made.digest").write_bytes(joined([other]))
    assert any("large numbers" in gap.why for gap in read([str(tmp_path / "made.digest")]).gaps)


def test_what_no_digest_can_hold_is_left_out_of_it(tmp_path: Path) -> None:
    """Numbers of more than 64 bits, halves of characters: in shapes, sequence numbers, names."""
    folder = written(tmp_path / "run", world=3, stuck=1)
    content = rings.content(2, world=3, stuck=1)
    content["entries"][0]["input_sizes"] = [[2**70, 5]]
    content["entries"][1]["profiling_name"] = "nccl:half of a character, \ud800"
    (folder / "comm_lib_trace_rank_2").write_bytes(pickle.dumps(content, protocol=2))
    line = f"[rank0]:[E ProcessGroupNCCL.cpp:523] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={10**25}, OpType=ALLREDUCE, NumelIn=7, NumelOut=7, Timeout(ms)=1800000) ran for 1800518 milliseconds before timing out.\n"
    (folder / "node.log").write_text(line, encoding="utf-8")
    (tmp_path / "a.digest").write_bytes(reduce([str(folder)]).data)
    evidence = read([str(tmp_path / "a.digest")])
    assert {dump.rank for dump in evidence.dumps} == {0, 1, 2} and any(
        fact.kind == "timeout" for fact in evidence.facts
    )
