"""A job under `whichrank run` behaves as without it: bytes, exit code, signals, terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import PYTHON, clear, command, environment, events, gone, session, start

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")

COUNTS = """
import signal, sys, time
seen = []
for number in (1, 2, 3, 10, 12, 15):
    signal.signal(number, lambda s, frame: seen.append(s))
print("ready", flush=True)
until = time.monotonic() + 1.5
while time.monotonic() < until: time.sleep(0.02)
print(seen, flush=True)
sys.exit(7)
"""


@pytest.mark.parametrize(
    ("job", "code"),
    [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143), ("kill -11 $$", 139)],
)
def test_exit_codes(tmp_path: Path, job: str, code: int) -> None:
    run = start(tmp_path / "run", ["sh", "-c", job])
    out, err = run.communicate(timeout=30)
    assert (run.returncode, out, err) == (code, b"", b"")


@pytest.mark.parametrize(("name", "code"), [("no-such-program", 127), (str(Path(__file__)), 126)])
def test_what_cannot_be_started(tmp_path: Path, name: str, code: int) -> None:
    run = start(tmp_path / "run", [name])
    _, err = run.communicate(timeout=30)
    assert run.returncode == code and name in err.decode()
    assert gone(run.pid)


BYTES = "import os,time\nfor i in range(300):\n os.write(1, bytes([i % 256]) * (i * 37 % 5000)); os.write(2, b'e%d\\r' % i)\n"


def test_every_byte_and_no_other(tmp_path: Path) -> None:
    bare = subprocess.run([PYTHON, "-c", BYTES], capture_output=True, check=True)
    run = start(tmp_path / "run", [PYTHON, "-c", BYTES])
    assert run.communicate(timeout=30) == (bare.stdout, bare.stderr)


def test_order_of_the_two_streams_where_they_are_one(tmp_path: Path) -> None:
    job = [PYTHON, "-c", "import os\nfor i in range(2000): os.write(1 + i % 2, b'%d\\n' % i)"]
    run = start(tmp_path / "run", job, stderr=subprocess.STDOUT)
    out, _ = run.communicate(timeout=30)
    assert out == b"".join(b"%d\n" % number for number in range(2000))


def test_a_slow_reader_gets_all_after_the_jobs_end(tmp_path: Path) -> None:
    run = start(tmp_path / "run", ["sh", "-c", "seq 1 400000"])
    assert run.stdout is not None
    got = b""
    while data := run.stdout.read(200_000):
        got += data
        time.sleep(0.15)
    assert got == b"".join(b"%d\n" % number for number in range(1, 400001))
    assert run.wait(30) == 0


def test_a_reader_that_goes_away_is_the_jobs_to_notice(tmp_path: Path) -> None:
    shell = (
        f"{' '.join(command(tmp_path / 'run', ['sh', '-c', chr(39) + 'while :; do echo x; done' + chr(39)]))} | head -3"
    )
    done = subprocess.run(["sh", "-c", shell], capture_output=True, env=environment(), timeout=30)
    assert done.stdout == b"x\nx\nx\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
@pytest.mark.parametrize("group", [False, True])
def test_a_signal_arrives_once(tmp_path: Path, number: int, group: bool) -> None:
    run = start(tmp_path / "run", [PYTHON, "-c", COUNTS])
    assert run.stdout is not None and run.stdout.readline() == b"ready\n"
    (os.killpg if group else os.kill)(run.pid, number)
    assert run.stdout.read() == f"[{int(number)}]\n".encode()
    assert run.wait(30) == 7


def _on_a_terminal(words: list[str], answer: bytes) -> tuple[int, bytes]:
    """Exit code and output; `answer` is typed once something was printed."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(words[0], words, environment())
    out, typed = b"", False
    while True:
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        out += data
        if not typed and b"ready" in out:
            time.sleep(0.3)
            os.write(fd, answer)
            typed = True
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out


def test_ctrl_c_arrives_once(tmp_path: Path) -> None:
    code, out = _on_a_terminal(command(tmp_path / "run", [PYTHON, "-c", COUNTS]), b"\x03")
    assert code == 7 and out.replace(b"^C", b"") == b"ready\r\n[2]\r\n"


def test_the_job_sees_a_terminal_where_there_is_one(tmp_path: Path) -> None:
    asks = (
        "import sys; print('ready', sys.stdout.isatty(), sys.stderr.isatty(), sys.stdin.isatty()); print(input() * 2)"
    )
    bare = _on_a_terminal([PYTHON, "-c", asks], b"abc\n")
    assert _on_a_terminal(command(tmp_path / "run", [PYTHON, "-c", asks]), b"abc\n") == bare
    assert b"True True True" in bare[1] and b"abcabc" in bare[1]


def test_the_job_sees_none_where_there_is_none(tmp_path: Path) -> None:
    run = start(tmp_path / "run", [PYTHON, "-c", "import sys; print(sys.stdout.isatty(), sys.stderr.isatty())"])
    assert run.communicate(timeout=30)[0] == b"False False\n"


def test_standard_input_is_the_jobs(tmp_path: Path) -> None:
    run = start(tmp_path / "run", ["cat"], stdin=subprocess.PIPE)
    assert run.communicate(b"to cat", timeout=30)[0] == b"to cat"


def test_a_run_directory_that_cannot_be_made_costs_only_the_watching(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = start(tmp_path / "file" / "run", ["echo", "hi"])
    out, err = run.communicate(timeout=30)
    assert (run.returncode, out) == (0, b"hi\n") and b"runs unwatched" in err


def test_a_watcher_that_hangs_does_not_hold_the_job(tmp_path: Path) -> None:
    """As on storage that does not answer: it is stopped while the job writes much more than any pipe holds."""
    job = "import os,sys,time\nprint('ready', flush=True); time.sleep(1)\nfor i in range(4000): os.write(1, b'x' * 4095 + b'\\n')"
    run = start(tmp_path / "run", [PYTHON, "-c", job])
    assert run.stdout is not None and run.stdout.readline() == b"ready\n"
    others = [
        pid for pid in session(run.pid) if pid != run.pid and b"whichrank" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    began = time.monotonic()
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    assert len(run.stdout.read()) == 4000 * 4096
    assert run.wait(30) == 0 and time.monotonic() - began < 15
    assert gone(run.pid)


def test_a_watcher_that_is_killed_does_not_hold_the_job(tmp_path: Path) -> None:
    run = start(
        tmp_path / "run", [PYTHON, "-c", "import time\nfor i in range(30): print(i, flush=True); time.sleep(0.05)"]
    )
    assert run.stdout is not None and run.stdout.readline() == b"0\n"
    for pid in session(run.pid):
        if pid != run.pid and b"whichrank" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    assert run.stdout.read() == b"".join(b"%d\n" % number for number in range(1, 30))
    assert run.wait(30) == 0 and gone(run.pid)


def test_the_front_is_killed_and_the_job_goes_on(tmp_path: Path) -> None:
    job = "import time\nfor i in range(60): print(i, flush=True); time.sleep(0.05)\nopen('done', 'w').close()"
    out = tmp_path / "out"
    with out.open("wb") as file:
        run = start(tmp_path / "run", [PYTHON, "-c", job], stdout=file, cwd=tmp_path)
        while not out.read_bytes():
            time.sleep(0.05)
        run.kill()
        run.wait()
    try:
        until = time.monotonic() + 20
        while not (tmp_path / "done").exists() and time.monotonic() < until:
            time.sleep(0.1)
        assert (tmp_path / "done").exists()
        assert gone(run.pid)
    finally:
        clear(run.pid)
    assert out.read_bytes().split()[-1] == b"59"
    assert events(tmp_path / "run", "front_gone") and events(tmp_path / "run", "ended")
