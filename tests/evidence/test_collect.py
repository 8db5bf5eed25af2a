"""Files as they come: missing, closed, endless, growing, hostile."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from whichrank.diagnosis import diagnose
from whichrank.evidence.collect import Found, collect, opened
from whichrank.facts import Gap


def read(*paths: Path | str) -> tuple[dict[str, bytes], list[Gap]]:
    found: dict[str, bytes] = {}
    gaps: list[Gap] = []
    for entry in collect([str(path) for path in paths]):
        for member in opened(entry) if isinstance(entry, Found) else (entry,):
            if isinstance(member, Gap):
                gaps.append(member)
            else:
                found[member.name] = b"".join(member.blocks)
    return found, gaps


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


def test_each_file_once_however_often_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("one\n")
    (tmp_path / "b.log").symlink_to("a.log")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)

    pieces, gaps = read(tmp_path, tmp_path / "a.log", str(tmp_path / "*.log"))

    assert pieces == {f"{tmp_path.name}/a.log": b"one\n"} and not gaps


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


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a device without an end")
def test_a_device_is_never_read() -> None:
    pieces, gaps = read("/dev/zero")

    assert not pieces and "regular" in gaps[0].why


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_says_how_to_see_why(tmp_path: Path) -> None:
    (tmp_path / "closed.log").write_text("one\n")
    (tmp_path / "closed.log").chmod(0)

    pieces, gaps = read(tmp_path)

    assert not pieces and "denied" in gaps[0].why and gaps[0].command.startswith("ls -l")


def test_a_file_that_grows_is_read_as_it_was(tmp_path: Path) -> None:
    log = tmp_path / "growing.log"
    log.write_bytes(b"x" * 79 + b"\n")
    (entry,) = collect([str(log)])
    assert isinstance(entry, Found)
    read_so_far = 0

    for member in opened(entry):
        assert not isinstance(member, Gap)
        for block in member.blocks:
            read_so_far += len(block)
            with log.open("ab") as file:  # as fast as it is read
                file.write(b"y" * 2 * len(block))

    assert read_so_far == 80


def test_a_file_that_is_gone_in_the_meantime_says_so(tmp_path: Path) -> None:
    log = tmp_path / "short.log"
    log.write_text("one\n")
    (entry,) = collect([str(log)])
    log.unlink()

    assert isinstance(entry, Found)
    assert [gap.why for gap in opened(entry) if isinstance(gap, Gap)] == ["gone before it could be read"]


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.system, ("touch /tmp/whichrank-was-here",))


def test_a_pickle_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(Bomb()))

    report = diagnose([str(tmp_path)])

    assert not Path("/tmp/whichrank-was-here").exists()
    assert report.exit_code == 2 and "more than plain data, so it was not opened" in report.gaps[0].why


@pytest.mark.parametrize(
    "line",
    ["Ranks 0-99999999 failed to pass monitoredBarrier", "a" * 200_000, "(pid=1) " * 20_000, " " * 100_000 + "x;"],
    ids=["ranks", "letters", "pids", "spaces"],
)
def test_hostile_lines_end_in_a_report(line: str, tmp_path: Path) -> None:
    """Each of them once took minutes, or all memory."""
    (tmp_path / "train.log").write_text(line + "\n")

    assert len(diagnose([str(tmp_path)]).verdicts) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="pipes, and Linux' /proc")
def test_what_may_never_end_is_left_in_a_folder_whatever_the_folder_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    os.mkfifo(tmp_path / "logs" / "pipe")
    (tmp_path / "logs" / "kernel").symlink_to("/proc/kmsg")
    monkeypatch.chdir(tmp_path)

    pieces, gaps = read("logs")

    assert not pieces and [gap.why for gap in gaps] == ["not a regular file"] * 2
