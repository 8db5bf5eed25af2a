"""Files that hold nothing known: said in few lines, however many they are, and whatever they are called."""

from __future__ import annotations

import base64
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from whichrank.__main__ import run

Said = pytest.CaptureFixture[str]


def filled(folder: Path, names: list[str], content: Callable[[int], bytes]) -> str:
    folder.mkdir()
    for number, name in enumerate(names):
        (folder / name).write_bytes(content(number))
    return str(folder)


@pytest.mark.parametrize("count", [4, 1500])
def test_alike_files_are_one_line(tmp_path: Path, count: int, capsys: Said) -> None:
    folder = filled(tmp_path / "big", [f"r{n}.log" for n in range(count)], lambda n: b"hello %d\n" % n)
    assert run([folder]) == 2
    assert capsys.readouterr().err == (
        f"whichrank: {count:,} files: nothing in them is a log that is known here: big/r0.log, big/r1.log, big/r2.log, …\n"
    )


def test_a_few_are_named(tmp_path: Path, capsys: Said) -> None:
    folder = filled(tmp_path / "few", ["a.log", "b.log"], lambda n: b"hello\n")
    assert run([folder]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"whichrank: few/{name}.log: nothing in it is a log that is known here" for name in "ab"
    ]


def test_gaps_of_all_sorts(tmp_path: Path, capsys: Said) -> None:
    """Empty, binary and unknown files together: a line for each sort."""
    content = [b"", b"\0\1\2\3" * 999, b"hello\n"]
    folder = filled(tmp_path / "all", [f"r{n}" for n in range(900)], lambda n: content[n % 3])
    assert run([folder]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and all(line.startswith("whichrank: 300 files: ") for line in lines)


def test_digest_too(tmp_path: Path, capsys: Said) -> None:
    folder = filled(tmp_path / "links", ["r.log"], lambda n: b"hello\n")
    for number in range(500):
        (tmp_path / "links" / f"gone{number}").symlink_to("nowhere")
    run(["digest", folder, "-o", str(tmp_path / "a.digest")])
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.parametrize("options", [[], ["--all"], ["--markdown"]])
def test_beside_evidence(tmp_path: Path, options: list[str], capsys: Said) -> None:
    line = b"[rank1]:[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=7, NumelOut=7, Timeout(ms)=1800000) ran for 1800518 milliseconds before timing out.\n"
    names = [f"{chr(97 + n % 26)}{chr(97 + n // 26)}.bin" for n in range(600)]
    folder = filled(tmp_path / "mixed", [*names, "rank1.log"], lambda n: line if n == 600 else b"\0\1\2\3" * 99)
    assert run([folder, *options]) == 1
    said = capsys.readouterr().out
    assert said.count(".bin") <= 8 and "597 more" in said


DUMPS: dict[str, Callable[[int], bytes]] = {
    "a line of a log": lambda n: b"step 10 loss\nstep 11 loss\n",
    "text that is no log": lambda n: base64.encodebytes(os.urandom(3000)),
    "garbage": lambda n: b"\0" + os.urandom(3000),
    "nothing": lambda n: b"",
    "other JSON": lambda n: b'{"a": 1}',
    "another pickle": lambda n: pickle.dumps({"a": n}, 2),
    "a hostile pickle": lambda n: b"\x80\x02cos\nsystem\nX\x02\0\0\0id\x85R.",
    "the beginning of a pickle": lambda n: b"\x80\x02}q\0(X\x07\0\0\0versi",
    "the beginning of JSON": lambda n: b'{"version":"2.10","pg_config":{',
}


@pytest.mark.parametrize("name", DUMPS)
@pytest.mark.parametrize("suffix", ["", ".json"])
def test_files_that_are_only_called_like_dumps(tmp_path: Path, name: str, suffix: str, capsys: Said) -> None:
    """Nothing at all could be read: exit 2, and each file is accounted for."""
    folder = filled(tmp_path / "dumps", [f"nccl_trace_rank_{n}{suffix}" for n in range(4)], DUMPS[name])
    assert run([folder]) == 2
    said = capsys.readouterr()
    assert not said.out and said.err.startswith("whichrank: 4 files: ")


def test_a_log_that_is_called_like_a_dump_is_read_as_a_log(tmp_path: Path, capsys: Said) -> None:
    line = b"[rank%d]:[E ProcessGroupNCCL.cpp:523] [Rank %d] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=7, NumelOut=7, Timeout(ms)=1800000) ran for 1800518 milliseconds before timing out.\n"
    folder = filled(tmp_path / "dumps", [f"nccl_trace_rank_{n}" for n in range(4)], lambda n: line % (n, n))
    assert run([folder]) == 1
    assert "ALLREDUCE #57" in capsys.readouterr().out
