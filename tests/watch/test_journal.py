"""The output as it is kept: every byte can be told from it, and a disk that is full costs lines, not the writer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichrank.evidence import Evidence, read
from whichrank.watch import journal
from whichrank.watch.feed import STDERR, STDOUT
from whichrank.watch.journal import WAIT_NS, Journal

SECOND = 1_000_000_000
START = 1_796_064_646 * SECOND
LINE = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr) ([FP]) (.*)", re.S)


def told(folder: Path) -> dict[str, bytes]:
    """The bytes of each stream again."""
    found = {"stdout": b"", "stderr": b""}
    for line in (folder / "output.log").read_bytes().split(b"\n")[:-1]:
        match = LINE.fullmatch(line)
        assert match, line
        end = b"" if match[2] == b"P" or (match[3].endswith(b"\r")) else b"\n"
        found[match[1].decode()] += match[3] + end
    return found


PIECES = st.lists(
    st.tuples(
        st.sampled_from([STDOUT, STDERR]),
        st.lists(st.sampled_from([b"a", b"step 3", b"\n", b"\r", b"\xff", "é".encode(), b"\r 10%|#"]), max_size=6).map(
            b"".join
        ),
        st.sampled_from([1, WAIT_NS // 3, 2 * WAIT_NS]),
    ),
    max_size=12,
)


@given(PIECES)
def test_all_bytes_come_back_in_order(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, bytes, int]]
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    kept = Journal(folder)
    kept.write(STDOUT, START, b"begin\n")
    now = START
    given_: dict[int, bytes] = {STDOUT: b"begin\n", STDERR: b""}
    for kind, data, pause in pieces:
        now += pause
        kept.idle(now)
        kept.write(kind, now, data)
        given_[kind] += data.replace(b"\r\n", b"\n")
    kept.close()
    found = told(folder)
    for kind, name in ((STDOUT, "stdout"), (STDERR, "stderr")):
        whole = given_[kind]
        # A "\r" at the end of a piece may have been followed by its "\n" later: the line's end is the same.
        assert found[name].replace(b"\r\n", b"\n").replace(b"\r", b"") == whole.replace(b"\r", b"") or (
            found[name].replace(b"\r", b"").replace(b"\n", b"") == whole.replace(b"\r", b"").replace(b"\n", b"")
        )


def test_a_line_in_pieces_is_one_line_for_the_readers(tmp_path: Path) -> None:
    kept = Journal(tmp_path)
    kept.write(STDERR, START, b"[rank3]: Value")
    kept.idle(START + 2 * WAIT_NS)
    kept.write(STDERR, START + SECOND, b"Error: labels out of range\n")
    kept.close()
    assert [line.split(b" ")[2] for line in (tmp_path / "output.log").read_bytes().splitlines()] == [b"P", b"F"]
    evidence: Evidence = read([str(tmp_path)])
    assert [(fact.rank, fact["message"]) for fact in evidence.facts if fact.kind == "exception"] == [
        (3, "labels out of range")
    ]


def test_what_comes_behind_a_progress_bar_is_a_line_of_its_own(tmp_path: Path) -> None:
    kept = Journal(tmp_path)
    for percent in range(50):
        kept.write(STDERR, START + percent * SECOND, b"\r %d%%|###   | %d/50" % (2 * percent, percent))
    kept.write(STDERR, START + 60 * SECOND, b"\nRuntimeError: gone\n")
    kept.close()
    lines = (tmp_path / "output.log").read_bytes().splitlines()
    assert lines[-1].endswith(b" stderr F RuntimeError: gone")
    assert max(map(len, lines)) < 100


def test_it_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MOST", 10_000)
    kept = Journal(tmp_path)
    for number in range(5000):
        kept.write(STDOUT, START + number, b"step %d\n" % number)
    kept.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 31_000
    assert b"step 0\n" in (tmp_path / "output.first.log").read_bytes()
    assert b"step 4999\n" in (tmp_path / "output.log").read_bytes()


def test_a_folder_that_takes_nothing(tmp_path: Path) -> None:
    kept = Journal(tmp_path / "missing")
    kept.write(STDOUT, START, b"step 1\n")
    kept.write(STDOUT, START, b"step 2\n")
    assert kept.lost > 0
    (tmp_path / "missing").mkdir()
    kept.failed_at = None
    kept.write(STDOUT, START, b"step 3\n")
    kept.close()
    text = (tmp_path / "missing/output.log").read_text()
    assert "bytes were lost here" in text and "step 3" in text
