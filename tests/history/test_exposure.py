"""`whichrank run --history` with jobs that run: what is kept of healthy ones, of incidents, of what was killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import PYTHON, clear, environment, session, standin, start, wait_for

from whichrank.history.store import Store

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
pytest.importorskip("sqlalchemy")
HOST = socket.gethostname().split(".")[0].lower()
DOWN = "postgresql://u:secret@127.0.0.1:1/db"


def add(url: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    words = [PYTHON, "-m", "whichrank", "history", "add", *map(str, paths), "--history", url]
    return subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=120)


SMI = """#!/bin/sh
case "$*" in *query-compute-apps*) ;; *) exit 1 ;; esac
for file in "$RUN"/ring/*.ring; do pid=${file##*-p}; pid=${pid%.ring}; echo "$pid, GPU-$pid"; done
echo "1, GPU-other"
"""


def test_a_healthy_run_is_kept_with_its_hours_ranks_and_gpus(tmp_path: Path, url: str) -> None:
    here, tools = tmp_path / "run", tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(SMI)
    (tools / "nvidia-smi").chmod(0o755)
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "RUN": str(here)}
    began = time.time()
    run = start(here, standin(2, 12), "--history", url, env=env)
    try:
        first = wait_for(here, "history", 40)
        with Store(url) as store:
            ((_, open_),) = store.nodes()
        _, err = run.communicate(timeout=90)
    finally:
        clear(run.pid)
    assert (run.returncode, err) == (0, b"") and first["kept"] and not first["last"]
    assert open_.outcome == "open" and open_.host == HOST and [seat.rank for seat in open_.seats] == [0, 1]
    with Store(url) as store:
        ((id_, node),) = store.nodes()
        assert node.outcome == "healthy" and node.exit_code == 0 and node.key == open_.key
        assert began <= node.began and 12 <= node.ended - node.began < 60
        assert "standin.py 2 12" in node.command and node.world_size == 2
        pids = {path.name[:11]: path.stem.rpartition("-p")[2] for path in (here / "ring").iterdir()}
        assert [seat.gpu for seat in node.seats] == [f"GPU-{pids[f'rank-{rank:06}']}" for rank in (0, 1)]
        (kept,) = store.runs()
        assert (kept.id, kept.placement, kept.hours) == (id_, ((HOST, 2),), (node.ended - node.began) / 3600)
        assert store.incidents() == []
    assert json.loads((here / "history.json").read_text())["kept"]


def test_what_went_wrong_is_kept_once_though_it_is_diagnosed_again(tmp_path: Path, url: str) -> None:
    here = tmp_path / "run"
    run = start(here, standin(2, 30, "1:10:compute:raise"), env={"WHICHRANK_HISTORY": url})
    try:
        run.communicate(timeout=90)
    finally:
        clear(run.pid)
    with Store(url) as store:
        (first,), (kept,), ((_, node),) = store.incidents(), store.runs(), store.nodes()
    assert run.returncode == 1 and node.outcome == "incident"
    assert (first.rank, first.host, first.run) == (1, HOST, kept.id)
    assert first.source is not None and first.source.startswith(str(here))

    words = [PYTHON, "-m", "whichrank", str(here), "--history", url]
    again = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=90)
    assert "1 known already" in again.stderr and add(url, here).returncode == 0
    with Store(url) as store:
        assert [one.key for one in store.incidents()] == [first.key] and store.runs() == [kept]


def test_two_nodes_of_a_job_are_one_run(tmp_path: Path, url: str) -> None:
    env = {"SLURM_JOB_ID": "881", "STANDIN_WORLD": "4"}
    nodes = [
        start(
            tmp_path / name,
            standin(2, 6),
            "--history",
            url,
            env={**env, "NODE_NAME": name, "STANDIN_FIRST": str(2 * at)},
        )
        for at, name in enumerate(("gn-1", "gn-2"))
    ]
    for one in nodes:
        try:
            _, err = one.communicate(timeout=90)
        finally:
            clear(one.pid)
        assert (one.returncode, err) == (0, b"")
    with Store(url) as store:
        (run,) = store.runs()
    assert (run.placement, run.world_size, run.label) == ((("gn-1", 2), ("gn-2", 2)), 4, "slurm 881")


def test_a_database_that_is_down_is_one_line_and_the_run_is_added_later(tmp_path: Path) -> None:
    here = tmp_path / "run"
    run = start(here, ["sh", "-c", "echo out; exit 3"], "--history", DOWN)
    out, err = run.communicate(timeout=90)
    lines = [line for line in err.decode().splitlines() if "history" in line]
    assert (run.returncode, out, len(lines)) == (3, b"out\n", 1)
    assert "127.0.0.1" in lines[0] and f"whichrank history add {here}" in lines[0] and "secret" not in err.decode()
    assert json.loads((here / "history.json").read_text())["kept"] is False
    assert b"secret" not in b"".join(path.read_bytes() for path in here.iterdir() if path.is_file())

    url = str(tmp_path / "h.db")
    assert add(url, here).returncode == 0
    with Store(url) as store:
        ((_, node),) = store.nodes()
    assert (node.exit_code, node.host) == (3, HOST) and node.outcome != "healthy"


def test_a_database_that_hangs_holds_nothing_up_but_the_end(tmp_path: Path) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        url = f"postgresql://u:secret@127.0.0.1:{deaf.getsockname()[1]}/db"
        began = time.monotonic()
        run = start(tmp_path / "run", ["sh", "-c", "exit 3"], "--history", url)
        _, err = run.communicate(timeout=90)
    assert run.returncode == 3 and time.monotonic() - began < 45
    assert err.decode().count("whichrank: ") == 1 and b"history add" in err and b"secret" not in err


def test_what_was_killed_counts_up_to_its_last_sign(tmp_path: Path) -> None:
    here, url = tmp_path / "run", str(tmp_path / "h.db")
    run = start(here, standin(2, 120))
    wait_for(here, "rank")
    time.sleep(4)
    for pid in session(run.pid):  # the node is gone: launcher, watcher, ranks
        os.kill(pid, signal.SIGKILL)
    killed = time.time()
    run.communicate(timeout=30)
    shutil.move(here, tmp_path / "moved")
    assert "1 run directory" in add(url, tmp_path).stdout
    with Store(url) as store:
        ((_, node),), (kept,) = store.nodes(), store.runs()
    assert kept.placement == ((HOST, 2),) and node.exit_code is None and node.outcome != "healthy"
    assert killed - 5 < node.ended <= killed and node.ended - node.began > 3


def test_an_archive_of_keep_is_a_run_too(tmp_path: Path) -> None:
    here, keep, url = tmp_path / "run", tmp_path / "kept", str(tmp_path / "h.db")
    run = start(here, standin(2, 30, "1:10:compute:kill"), "--keep", str(keep))
    try:
        run.communicate(timeout=90)
    finally:
        clear(run.pid)
    assert add(url, keep).returncode == 0
    with Store(url) as store:
        (kept,), (found,) = store.runs(), store.incidents()
    assert (kept.placement, found.rank, found.host) == (((HOST, 2),), 1, HOST)
    assert add(url, here).returncode == 0
    with Store(url) as store:
        assert len(store.runs()) == len(store.incidents()) == 1


def test_no_logs_are_taken_for_runs_and_a_command_for_no_database(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text("step 1\n")
    told = add(str(tmp_path / "h.db"), tmp_path)
    assert told.returncode == 2 and "no directory of a `whichrank run`" in told.stderr
    words = [PYTHON, "-m", "whichrank", "run", "--history", "torchrun", "t.py"]
    told = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60)
    assert told.returncode == 2 and "comes after --" in told.stderr


def test_nothing_is_kept_where_nobody_asked(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run = start(tmp_path / "run", ["true"], env={"XDG_DATA_HOME": str(home), "WHICHRANK_HISTORY": ""})
    assert run.communicate(timeout=60) == (b"", b"") and not home.exists()
    run = start(tmp_path / "run2", ["true"], "--history", env={"XDG_DATA_HOME": str(home), "WHICHRANK_HISTORY": ""})
    run.communicate(timeout=60)
    with Store(str(home / "whichrank" / "history.db"), create=False) as store:
        assert [node.outcome for _, node in store.nodes()] == ["healthy"]
