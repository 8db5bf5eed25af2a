"""How the recorder gets into a process, and out of everybody's way."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import INJECT, RANK, RECORD, environment, only, program, rings, torch_like

from whichrank.record import identity

SOURCES = sorted(RECORD.rglob("*.py"))
SEE = "import sys; print('_whichrank_record' in sys.modules)"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run directory that is not there yet: in memory, where the file itself is mapped, if there is such a place."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path / "run"
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="whichrank-test-") as folder:
        yield Path(folder) / "run"


def test_a_rank_is_recorded_from_its_first_line_on(run: Path) -> None:
    done = program(run, "import os; print(os.environ['WHICHRANK_RANK_PID'] == str(os.getpid()))")
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    (name,) = rings(run)
    ring = only(run)
    assert name == f"rank-000003-a0-p{ring.pid}.ring"
    assert (ring.rank, ring.identity["local_rank"], ring.identity["world"]) == (3, 1, 4)
    assert ring.beat is not None
    assert ring.beat.exiting
    assert (run / "ring").stat().st_mode & 0o777 == 0o700


def test_without_a_run_nothing_happens(run: Path, tmp_path: Path) -> None:
    settings = environment(run, **RANK)
    del settings["WHICHRANK_RUN"]
    found = subprocess.run([sys.executable, "-c", SEE], env=settings, capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


@pytest.mark.parametrize("options", [("-I",), ("-S",), ("-E",)])
def test_an_isolated_interpreter_goes_unrecorded_and_unharmed(run: Path, options: tuple[str, ...]) -> None:
    done = program(run, "print('done')", options=options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert not run.exists()


def test_the_users_own_sitecustomize_comes_as_before(run: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import sys\nsys.theirs = __file__\n", encoding="utf-8")
    done = program(run, "import sys, sitecustomize; print(sys.theirs == sitecustomize.__file__, *sys.path)", theirs)
    assert done.stderr == ""
    assert done.stdout.startswith("True ")
    assert str(INJECT) not in done.stdout
    assert rings(run)


def test_a_sitecustomize_that_fails_says_so_as_before(run: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import none_such\n", encoding="utf-8")
    done = program(run, "print('done')", theirs)
    settings = {**environment(run, **RANK), "PYTHONPATH": str(theirs)}
    alone = subprocess.run([sys.executable, "-c", "print('done')"], env=settings, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (alone.stdout, alone.stderr)
    assert rings(run)


def test_children_of_a_rank_are_no_ranks(run: Path) -> None:
    done = program(
        run,
        f"""
import os, subprocess, sys, multiprocessing
print(subprocess.run([sys.executable, "-c", "{SEE}; print(sys.modules['_whichrank_record'].hooks.active)"],
    capture_output=True, text=True).stdout)
record = sys.modules["_whichrank_record"]
before = record.hooks.active.ring.changes
if (pid := os.fork()) == 0:
    with record.phase("child"):
        os._exit(record.hooks.active is not None)
print(os.waitpid(pid, 0)[1])
work = multiprocessing.get_context("fork").Process(target=lambda: None)
work.start(); work.join(); print(work.exitcode)
with record.phase("parent"):
    os._exit(0)
""",
    )
    assert done.stdout.split() == ["True", "None", "0", "0"], done.stderr
    ring = only(run)
    assert ring.state is not None
    assert ring.state.name == "parent"


def test_a_launcher_is_no_rank_though_its_node_has_a_number(run: Path, tmp_path: Path) -> None:
    script = tmp_path / "torchrun"
    script.write_text(SEE + "; print(sys.modules['_whichrank_record'].hooks.active)", encoding="utf-8")
    found = subprocess.run([sys.executable, script], env=environment(run, **RANK), capture_output=True, text=True)
    assert found.stdout.split() == ["True", "None"]
    assert not run.exists()


def test_a_rank_of_a_scheduler_begins_with_init_process_group(run: Path, tmp_path: Path) -> None:
    code = """
import sys
import torch.distributed as dist
active = lambda: sys.modules["_whichrank_record"].hooks.active
print(active())
dist.init_process_group(work=lambda: print(active() is not None))
print(active().ring.changes > 0)
"""
    done = program(run, code, torch_like(tmp_path / "like"), told={"SLURM_PROCID": "4", "SLURM_LOCALID": "0"})
    assert done.stdout.split() == ["None", "True", "True"], done.stderr
    (name,) = rings(run)
    ring = only(run)
    assert name.startswith("rank-000005-a0-p"), "torch's word on the rank counts"
    assert (ring.rank, ring.identity["world"], ring.identity["torch"], ring.identity["backend"]) == (
        5,
        8,
        "9.9",
        "gloo",
    )
    assert ring.identity["groups"] == {"0": "5-7"}


def test_exec_begins_anew_with_the_same_rank(run: Path) -> None:
    code = """
import os, sys
if "again" not in sys.argv:
    os.execv(sys.executable, [sys.executable, __file__, "again"])
print(sys.modules["_whichrank_record"].hooks.active is not None)
"""
    done = program(run, code)
    assert done.stdout == "True\n", done.stderr
    assert only(run).rank == 3


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm: on a disk up to a second is lost")
@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "os.abort()"])
def test_a_hard_end_leaves_the_phase_it_was_in(run: Path, end: str) -> None:
    program(run, f"import os, sys\nwith sys.modules['_whichrank_record'].phase('tokenise'):\n    {end}")
    ring = only(run)
    assert ring.state is not None
    assert (ring.state.phase, ring.state.name) == ("own", "tokenise")
    assert ring.beat is not None
    assert not ring.beat.exiting


def test_on_a_disk_the_sampler_carries_it_there(tmp_path: Path) -> None:
    """Forced, since the temporary folder may lie in memory too: all but the last second is there after a SIGKILL."""
    code = f"""
import os, sys, time
sys.path.insert(0, {str(RECORD.parent.parent)!r})
import whichrank.record.ring as ring
ring.in_memory = lambda fd: False
import whichrank
whichrank.watch()
with whichrank.phase("tokenise"):
    time.sleep(1.5)
    os.kill(os.getpid(), 9)
"""
    settings = {**environment(tmp_path / "run", **RANK), "PYTHONPATH": ""}
    subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, check=False)
    ring = only(tmp_path / "run")
    assert ring.state is not None
    assert ring.state.name == "tokenise"
    assert ring.samples


def test_an_exception_is_kept_and_printed_as_ever(run: Path) -> None:
    done = program(run, "def main():\n    raise ValueError('bad batch')\nmain()\n")
    assert done.returncode == 1
    ring = only(run)
    assert ring.exception is not None
    assert ring.exception.text == done.stderr
    assert "record" not in done.stderr


def test_hooks_of_the_training_are_called_and_those_that_replace_ours_do_not_hide_it(run: Path) -> None:
    code = "import sys\nsys.excepthook = lambda *error: print('theirs')\nraise ValueError('bad batch')\n"
    done = program(run, code)
    assert done.stdout == "theirs\n"
    ring = only(run)
    assert ring.exception is not None
    assert ring.exception.text.endswith("ValueError: bad batch\n")


def test_an_exception_of_a_thread_is_told_apart(run: Path) -> None:
    code = "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='saver')\nt.start()\nt.join()\n"
    done = program(run, code)
    assert "ZeroDivisionError" in done.stderr
    ring = only(run)
    assert ring.exception is None
    assert [(raised.main, raised.thread) for raised in ring.exceptions] == [(False, "saver")]


def test_no_room_no_right_no_folder_no_word(run: Path, tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));"
    start = f"{limit} import sys; sys.path.insert(0, {str(INJECT)!r}); import sitecustomize; print('done')"
    settings = {**environment(run, **RANK), "PYTHONPATH": ""}
    full = subprocess.run([sys.executable, "-c", start], env=settings, capture_output=True, text=True, check=False)
    assert (full.returncode, full.stdout, full.stderr) == (0, "done\n", "")
    assert not list((run / "ring").iterdir())
    file = tmp_path / "file"
    file.touch()
    settings = environment(file, **RANK)
    done = subprocess.run([sys.executable, "-c", "print(1)"], env=settings, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_somebody_without_rights_is_not_bothered(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    code = f"""
import atexit, os, sys
sys.path.insert(0, {str(RECORD.parent.parent)!r})
import whichrank.record.errors, whichrank.record.sampler
os.setgid(65534)
os.setuid(65534)
whichrank.watch()
print(whichrank.record.hooks.active)
"""
    settings = {**environment(run, **RANK), "PYTHONPATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")
    assert not list(run.iterdir())


@pytest.mark.parametrize("mode", [0o777, 0o730])
def test_a_folder_that_others_may_write_to_is_not_trusted(run: Path, mode: int) -> None:
    (run / "ring").mkdir(parents=True)
    (run / "ring").chmod(mode)
    assert program(run, "print('done')").stderr == ""
    assert not rings(run)


def test_a_folder_that_vanishes_does_no_harm(run: Path) -> None:
    code = """
import shutil, sys, time, os
record = sys.modules["_whichrank_record"]
shutil.rmtree(os.environ["WHICHRANK_RUN"])
for _ in range(1000):
    with record.phase("on"):
        pass
time.sleep(1.2)
print("done")
"""
    done = program(run, code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert not run.exists()


def test_a_folder_that_does_not_answer_does_not_hold_the_training_up(run: Path) -> None:
    """The sampler hangs where it makes the file: the main thread goes on after a moment, and ends without it."""
    code = f"""
import sys, time, os
sys.path.insert(0, {str(RECORD.parent.parent)!r})
import whichrank.record.ring as ring
ring.Ring.attach = lambda *args: time.sleep(600)
import whichrank
begin = time.monotonic()
print(whichrank.watch(os.environ["WHICHRANK_RUN"]) is not None)
for _ in range(50_000):
    with whichrank.phase("on"):
        pass
print(time.monotonic() - begin < 20)
"""
    settings = {**environment(run, **RANK), "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=settings, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("True\nTrue\n", "")


def test_signals_end_the_process_as_ever(run: Path) -> None:
    code = "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)"
    assert program(run, code).returncode == -signal.SIGTERM


def test_watch_starts_it_from_code(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(RECORD.parent.parent)!r})
import whichrank
print(type(whichrank.phase("x")).__name__)
print(whichrank.watch())
with whichrank.phase("tokenise") as none:
    import os
    os._exit(0)
"""
    run = tmp_path / "run"
    settings = {**environment(run, **RANK), "PYTHONPATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["_Nothing", str(run)], done.stderr
    assert len(rings(run)) == 1


def test_watch_without_a_launcher_keeps_to_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHICHRANK_RUN", raising=False)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a/../b c")
    place = Path(identity.directory())
    assert place.parent.name == f"whichrank-{os.getuid()}"
    assert place.name == f"a----b-c-{os.getppid()}"


def test_ranks_are_written_as_ranges() -> None:
    assert identity.ranges([0, 1, 2, 3, 8, 10, 11]) == "0-3,8,10-11"
    assert identity.ranges([]) == ""


# --- Pythons


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_it_is_python_3_8_of_the_standard_library(source: Path) -> None:
    tree = ast.parse(source.read_text(encoding="utf-8"), feature_version=(3, 8))
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        for name in names:
            assert name.split(".")[0] in {*sys.stdlib_module_names, "sitecustomize"}, name


def pythons() -> list[Path]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return sorted(path / "bin" / "python" for path in root.glob("[23].*")) if root.is_dir() else []


@pytest.mark.skipif(not pythons(), reason="no other Pythons (pyenv)")
@pytest.mark.parametrize("python", pythons(), ids=lambda path: path.parts[-3])
def test_other_pythons_record_or_pass_by(run: Path, python: Path) -> None:
    version = tuple(int(part) for part in python.parts[-3].split(".")[:2])
    code = "import time\nprint('done')\nraise ValueError('end')"
    done = program(run, code, python=str(python))
    assert done.stdout == "done\n"
    assert done.stderr.endswith("ValueError: end\n")
    assert "sitecustomize" not in done.stderr
    if version >= (3, 8):
        ring = only(run)
        assert ring.exception is not None
        assert ring.identity["python"].startswith(f"{version[0]}.{version[1]}.")
    else:
        assert not run.exists()
