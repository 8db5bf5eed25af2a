"""--dask: a real scheduler and two workers on loopback read the evidence, and the answer is the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest
from test_command_line import WATCHDOG, whichrank

from whichrank.errors import UsageProblem

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    settings = {"distributed.worker.memory.spill": False, "distributed.admin.tick.limit": "30s"}
    import dask

    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None, host="127.0.0.1"
        ) as made,
    ):
        yield made


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    for rank in range(6):
        text = WATCHDOG.replace("rank1", f"rank{rank}").replace("Rank 1", f"Rank {rank}")
        (folder / f"rank{rank}.log").write_text(text, encoding="utf-8")
    return folder


def test_the_same_report_as_alone(cluster: object, logs: Path) -> None:
    alone = whichrank(str(logs), "--json")
    there = whichrank(str(logs), "--json", "--dask", cluster.scheduler_address)  # type: ignore[attr-defined]
    assert there.returncode == alone.returncode == 1, there.stderr
    assert there.stdout == alone.stdout


def test_relative_paths_and_standard_input(cluster: object, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers run elsewhere, and standard input is here alone."""
    monkeypatch.chdir(logs.parent)
    there = whichrank("logs", "-", "--json", "--dask", cluster.scheduler_address, stdin=WATCHDOG.encode())  # type: ignore[attr-defined]
    alone = whichrank("logs", "-", "--json", stdin=WATCHDOG.encode())
    assert there.stdout == alone.stdout and there.returncode == 1


def test_what_workers_cannot_see_is_read_here(cluster: object, logs: Path) -> None:
    """No file system in common: the workers' answer is that there is no such file."""
    from whichrank import diagnose

    class Blind(Executor):
        def submit(self, work, /, read, batch):  # type: ignore[no-untyped-def,override]
            found: Future[list[None]] = Future()
            found.set_result([None] * len(batch))
            return found

    assert diagnose([str(logs)], workers=Blind()).verdicts == diagnose([str(logs)]).verdicts


def test_nobody_at_the_address(logs: Path) -> None:
    found = whichrank(str(logs), "--dask", "tcp://127.0.0.1:9")
    assert found.returncode == 2
    assert b"no Dask scheduler answers at tcp://127.0.0.1:9" in found.stderr


def test_without_dask_the_extra_is_named(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whichrank.cli.cluster import dask

    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageProblem, match=r"whichrank\[cluster\]"), dask("tcp://127.0.0.1:9"):
        pass
