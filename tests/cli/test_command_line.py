"""The command line as a user and a script meet it: exit codes, streams, forms, and no traceback."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import samples

from whichrank.__main__ import run
from whichrank.errors import UsageProblem
from whichrank.evidence.parallel import processes
from whichrank.model import Report

CALM = {"NO_COLOR": "", "FORCE_COLOR": "", "COLUMNS": "", "WHICHRANK_DEBUG": "", "PYTHONIOENCODING": ""}
WATCHDOG = (
    "[rank1]:[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, "
    "OpType=ALLREDUCE, NumelIn=7411203, NumelOut=7411203, Timeout(ms)=1800000) ran for 1800518 milliseconds before timing out.\n"
)


def whichrank(*args: str, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, **CALM, **env}
    return subprocess.run(
        [sys.executable, "-m", "whichrank", *args],
        input=stdin,
        capture_output=True,
        timeout=120,
        env={name: value for name, value in environment.items() if value},
    )


Fake = Callable[[Report | Exception | type[BaseException]], dict[str, Any]]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Let `diagnose` return a report, or raise; what it was called with is in the dictionary returned."""
    called: dict[str, Any] = {}

    def install(outcome: Report | Exception | type[BaseException]) -> dict[str, Any]:
        def diagnose(paths: tuple[str, ...], **options: Any) -> Report:
            called.update(options, paths=list(paths))
            if isinstance(outcome, Report):
                return outcome
            raise outcome

        monkeypatch.setattr(import_module("whichrank.diagnosis"), "diagnose", diagnose)
        return called

    for name in CALM:
        monkeypatch.delenv(name, raising=False)
    return install


# --- help and version


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from whichrank.__main__ import run\n"
        "assert run(['--help']) == 0\n"
        "heavy = {'numpy', 'rich', 'jinja2', 'msgspec', 'whichrank.evidence', 'whichrank.diagnose'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert "Examples:" in done.stdout


def test_help_of_commands_and_version() -> None:
    for args in (["--help"], ["-h"], [], ["diagnose", "--help"], ["explain", "-h"]):
        done = whichrank(*args)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.startswith(b"Usage: whichrank")
    assert whichrank("--version").stdout == b"whichrank 0.1.0" + os.linesep.encode()


# --- a real log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "error.txt"
    path.write_text(WATCHDOG)
    return path


def test_a_bare_path_is_diagnosed(log: Path) -> None:
    done = whichrank(str(log))

    assert done.returncode == 1
    assert done.stderr == b""
    assert "ALLREDUCE #57" in done.stdout.decode()
    assert whichrank("diagnose", str(log)).stdout == done.stdout


def test_standard_input(log: Path) -> None:
    done = whichrank("-", stdin=log.read_bytes())

    assert done.returncode == 1
    assert "-:1" in done.stdout.decode()


def test_options_may_come_before_the_path(log: Path) -> None:
    done = whichrank("--json", str(log))

    assert json.loads(done.stdout)["verdicts"][0]["seq"] == 57


def test_json_is_utf8_whatever_the_console_is(fake: Fake, log: Path) -> None:
    log.write_text(WATCHDOG.replace("before timing", "日本 … before timing"), encoding="utf-8")
    done = whichrank(str(log), "--json", PYTHONIOENCODING="cp1252")

    assert "日本" in done.stdout.decode("utf-8")


def test_a_console_of_another_encoding_shows_what_it_can(log: Path) -> None:
    log.write_text(WATCHDOG.replace("before timing", "日本 … before timing"), encoding="utf-8")
    for encoding in ("cp1252", "ascii"):
        done = whichrank(str(log), PYTHONIOENCODING=encoding)
        assert (done.returncode, done.stderr) == (1, b"")
        assert "ALLREDUCE #57" in done.stdout.decode(encoding)


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "many.log"
    path.write_text("".join(WATCHDOG.replace("ank1]", f"ank{n}]") for n in range(300)))
    with subprocess.Popen(
        [sys.executable, "-m", "whichrank", str(path), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_plainly(log: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([sys.executable, "-m", "whichrank", str(log)], stdout=full, stderr=subprocess.PIPE)

    assert done.returncode == 2
    assert done.stderr.decode().strip() == "whichrank: cannot write standard output: No space left on device"


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_progress_goes_to_a_terminal_only(log: Path) -> None:
    ours, theirs = os.openpty()
    env = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-m", "whichrank", str(log)], stdout=subprocess.PIPE, stderr=theirs, env=env, timeout=60
    )
    os.close(theirs)
    told = os.read(ours, 10_000).decode()
    os.close(ours)

    assert "reading 1 file: " in told
    assert told.endswith("\r")
    assert b"reading" not in done.stdout


# --- wrong usage


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["diagnose"], "what shall be read?"),
        (["no-such-folder"], "no-such-folder: no such file or folder"),
        (["expalin", "-9"], "Did you mean `whichrank explain`?"),
        (["x.log", "--bogus"], "No such option"),
        (["x.log", "--world-size", "many"], "world-size"),
        (["x.log", "--world-size", "0"], "world-size"),
        (["x.log", "--since", "yesterday"], "is no time; write it as"),
        (["x.log", "--placement", "no-such-file"], "no-such-file"),
        (["explain", "hello there"], "nothing in this text is known"),
        (["explain", "host_om"], "Did you mean host_oom?"),
    ],
)
def test_wrong_usage_is_one_clear_complaint(args: list[str], words: str) -> None:
    done = whichrank(*args)

    assert done.returncode == 2
    assert done.stdout == b""
    assert words in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_names_in_complaints_are_printable() -> None:
    done = whichrank("no\x1b[31m-such\u202e")

    assert done.returncode == 2
    assert b"\x1b" not in done.stderr
    assert "no-such: no such file" in done.stderr.decode()


def test_an_empty_folder(tmp_path: Path) -> None:
    done = whichrank(str(tmp_path))

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"whichrank: ")


# --- in process: what does not depend on the evidence


@pytest.mark.parametrize(
    ("name", "code"), [("healthy", 0), ("oom", 1), ("single_line", 1), ("attempts", 1), ("empty", 2)]
)
def test_exit_codes(fake: Fake, capsys: pytest.CaptureFixture[str], name: str, code: int) -> None:
    fake(samples.SAMPLES[name]())

    assert run(["logs"]) == code
    out, err = capsys.readouterr()
    assert bool(out) == (code != 2)
    assert bool(err) == (code == 2)


def test_json_also_where_nothing_was_readable(fake: Fake, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    fake(samples.empty())

    assert run(["logs", "--json"]) == 2
    out, err = capfdbinary.readouterr()
    assert json.loads(out)["verdicts"] == []
    assert b"no such file" in err


def test_options_reach_diagnose(fake: Fake, tmp_path: Path) -> None:
    placement = tmp_path / "hosts.txt"
    placement.write_text("0 node-1\n")
    called = fake(samples.oom())
    run(
        ["a", "b", "--placement", str(placement), "--world-size", "64", "--attempt", "0", "--since", "2026-11-30T05:00"]
    )

    assert called == {
        "paths": ["a", "b"],
        "placement": str(placement),
        "world_size": 64,
        "attempt": 0,
        "since": "2026-11-30T05:00:00+00:00",
        "progress": None,
        "workers": processes,
    }


def test_nothing_but_paths(fake: Fake) -> None:
    called = fake(samples.oom())
    run(["logs"])

    unset = dict.fromkeys(["placement", "world_size", "attempt", "since", "progress"])
    assert called == unset | {"paths": ["logs"], "workers": processes}


def test_forms_and_files(fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake(samples.oom())
    for name, start in [("r.json", "{"), ("r.md", "**Rank 17"), ("r.txt", "71 files"), ("r", "71 files")]:
        path = tmp_path / name
        assert run(["logs", "-o", str(path)]) == 1
        assert path.read_text(encoding="utf-8").startswith(start)
    assert run(["logs", "-o", str(tmp_path / "x.md"), "--json"]) == 1
    assert (tmp_path / "x.md").read_text(encoding="utf-8").startswith("{")
    assert capsys.readouterr() == ("", "")


def test_a_file_that_cannot_be_written(fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake(samples.oom())

    assert run(["logs", "-o", str(tmp_path / "no" / "r.txt")]) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "env", "coloured"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1", "TERM": "xterm-256color"}, True),
        (["--no-color"], {"FORCE_COLOR": "1", "TERM": "xterm-256color"}, False),
        ([], {"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": "1"}, False),
        ([], {"FORCE_COLOR": "1", "TERM": "dumb"}, False),
    ],
)
def test_colours(
    fake: Fake,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    env: dict[str, str],
    coloured: bool,
) -> None:
    fake(samples.oom())
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    run(["logs", *args])

    assert ("\x1b" in capsys.readouterr().out) == coloured


@pytest.mark.parametrize(
    ("args", "columns", "width"), [([], "", 80), (["--width", "110"], "", 110), ([], "100", 100), ([], "400", 120)]
)
def test_width(
    fake: Fake,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    columns: str,
    width: int,
) -> None:
    fake(samples.oom())
    monkeypatch.setenv("COLUMNS", columns)
    run(["logs", *args])
    widest = max(len(line) for line in capsys.readouterr().out.splitlines() if "$ " not in line)

    assert width - 12 < widest <= width


@pytest.mark.parametrize("error", [KeyboardInterrupt])
def test_interrupted(fake: Fake, capsys: pytest.CaptureFixture[str], error: type[BaseException]) -> None:
    fake(error)

    assert run(["logs"]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("error", [ValueError("bad \x1b[2J thing"), EOFError("short"), MemoryError(), RecursionError()])
def test_an_internal_error_is_one_line(fake: Fake, capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    fake(error)

    assert run(["logs"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.strip().count("\n") == 0
    assert type(error).__name__ in err
    assert "WHICHRANK_DEBUG=1" in err
    assert "\x1b" not in err


def test_an_internal_error_with_its_traceback(
    fake: Fake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(ValueError("bad thing"))
    monkeypatch.setenv("WHICHRANK_DEBUG", "1")

    assert run(["logs"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_usage_problem_is_shown_as_it_is(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake(UsageProblem("the placement file has no ranks"))

    assert run(["logs"]) == 2
    assert capsys.readouterr().err == "whichrank: the placement file has no ranks\n"


# --- explain


def test_explain_takes_a_word_a_number_a_line_a_file_and_input(log: Path) -> None:
    for args, words in [
        (["host_oom"], "OOM killer"),
        (["-9"], "SIGKILL"),
        (["exit", "code", "137"], "SIGKILL"),
        ([WATCHDOG], "a victim"),
        ([str(log)], "a victim"),
        (["-"], "a victim"),
        ([], "a victim"),
    ]:
        done = whichrank("explain", *args, stdin=log.read_bytes())
        assert done.returncode == 0, done.stderr
        assert words in done.stdout.decode()


def test_explain_alone_lists_what_there_is() -> None:
    done = whichrank("explain", stdin=b"")

    assert done.returncode == 0
    assert b"host_oom" in done.stdout and b"nccl_ras" in done.stdout


def test_explain_unpacks_gzip(tmp_path: Path) -> None:
    packed = tmp_path / "rank3.log.gz"
    packed.write_bytes(gzip.compress((WATCHDOG + "\n").encode() * 50)[:-9])  # cut off
    for args in ([str(packed)], ["-"], []):
        done = whichrank("explain", *args, stdin=packed.read_bytes())
        assert done.returncode == 0 and b"a victim" in done.stdout, done.stderr
    done = whichrank("explain", "-", stdin=b"\x1f\x8bnonsense")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and not done.stdout
