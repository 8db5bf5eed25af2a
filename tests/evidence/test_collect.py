"""Files as they come: cut, packed twice, closed, endless, too large."""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichrank.diagnosis import diagnose
from whichrank.evidence.collect import Piece, collect
from whichrank.facts import Gap

LOG = "".join(f"2026-03-02 09:{step // 60:02d}:{step % 60:02d} step {step} loss 2.{step:03d}\n" for step in range(600))


def read(*paths: Path | str, **more: int) -> tuple[dict[str, bytes], list[Gap]]:
    found = list(collect([str(path) for path in paths], **more))
    return (
        {entry.name: entry.data for entry in found if isinstance(entry, Piece)},
        [entry for entry in found if isinstance(entry, Gap)],
    )


@given(share=st.floats(0.1, 0.99))
def test_a_cut_gzip_is_read_as_far_as_it_goes(share: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("cut") / "rank0.log.gz"
    packed = gzip.compress(LOG.encode())
    file.write_bytes(packed[: int(len(packed) * share)])

    pieces, gaps = read(file)

    assert LOG.encode().startswith(next(iter(pieces.values()), b""))
    assert len(gaps) == 1 and "cut off" in gaps[0].why
    if share > 0.5:
        assert len(pieces[str(file)]) > len(LOG) // 4


def test_several_members_and_a_gzip_in_a_gzip(tmp_path: Path) -> None:
    (tmp_path / "two.gz").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    (tmp_path / "twice.gz").write_bytes(gzip.compress(gzip.compress(b"one\n")))

    pieces, gaps = read(tmp_path)

    assert sorted(pieces.values()) == [b"one\n", b"one\ntwo\n"] and not gaps


def test_more_than_the_limit_is_a_gap_with_a_command(tmp_path: Path) -> None:
    (tmp_path / "big log.txt").write_bytes(b"x" * 5000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"\0" * 5000))

    pieces, gaps = read(tmp_path, limit=4096)

    assert not pieces
    assert {gap.what.rpartition("/")[2] for gap in gaps} == {"big log.txt", "bomb.gz"}
    assert any(gap.command.startswith("tail -c") and "'" in gap.command for gap in gaps), "quoted for a shell"


def test_what_is_not_there_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    (tmp_path / "nothing").symlink_to(tmp_path / "gone")
    (tmp_path / "folder").mkdir()
    paths = [
        "",
        tmp_path / "missing.log",
        tmp_path / "empty.log",
        tmp_path / "nothing",
        tmp_path / "folder",
        "x" * 5000,
    ]

    pieces, gaps = read(*paths)

    assert not pieces and len(gaps) == len(paths)
    assert [gap.what for gap in gaps] == [str(path) for path in paths]


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes are POSIX's")
def test_a_pipe_that_is_named_is_read_and_one_in_a_folder_is_not(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = subprocess.Popen([sys.executable, "-c", f"open({str(pipe)!r}, 'w').write('step 1\\n')"])

    pieces, gaps = read(pipe)
    writer.wait(10)
    inside = read(tmp_path)

    assert list(pieces.values()) == [b"step 1\n"] and not gaps
    assert not inside[0] and "regular" in inside[1][0].why


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.system, ("touch /tmp/whichrank-was-here",))


def test_a_pickle_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(Bomb()))

    report = diagnose([str(tmp_path)])

    assert not Path("/tmp/whichrank-was-here").exists()
    assert report.exit_code == 2 and "binary" in report.gaps[0].why


@pytest.mark.parametrize(
    "line",
    ["Ranks 0-99999999 failed to pass monitoredBarrier", "a" * 200_000, "(pid=1) " * 20_000, " " * 100_000 + "x;"],
    ids=["ranks", "letters", "pids", "spaces"],
)
def test_hostile_lines_end_in_a_report(line: str, tmp_path: Path) -> None:
    """Each of them once took minutes, or all memory."""
    (tmp_path / "train.log").write_text(line + "\n")

    assert len(diagnose([str(tmp_path)]).verdicts) == 1
