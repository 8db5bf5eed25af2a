"""The run directory: private, somebody else's is not used, and old ones go."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from whichrank.diagnosis import diagnose
from whichrank.errors import UsageProblem
from whichrank.watch.environment import for_job, torch_version
from whichrank.watch.rundir import DAYS, PREFIX, RunDir, clear, default


def made(path: Path) -> RunDir:
    run = RunDir(path)
    run.make(("torchrun", "train.py"))
    return run


def test_it_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        run = made(tmp_path / "run")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o077 for path in (run.path, *run.path.iterdir()) if path.is_dir()} == {0}
    assert json.loads((run.path / "run.json").read_text())["command"] == ["torchrun", "train.py"]


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"{PREFIX}7").symlink_to(elsewhere)
    with pytest.raises(UsageProblem):
        made(tmp_path / f"{PREFIX}7" / "run")
    assert not list(elsewhere.iterdir())


def test_two_runs_do_not_share_a_default() -> None:
    assert default(0.0) != default(0.0)


def test_an_earlier_run_is_put_aside(tmp_path: Path) -> None:
    """As where a batch script with a fixed --dir is started again."""
    for number in range(3):
        run = made(tmp_path / "run")
        assert not (run.path / "events.jsonl").exists()
        (run.path / "events.jsonl").write_text(str(number), encoding="utf-8")
        run.save(ended={"wall_ns": 1})
    assert [(tmp_path / name / "events.jsonl").read_text() for name in ("run.1", "run.2", "run")] == ["0", "1", "2"]


def test_the_place_of_a_run_that_goes_on_is_not_taken(tmp_path: Path) -> None:
    made(tmp_path / "run").save(launcher=os.getpid())
    with pytest.raises(UsageProblem, match="has not ended"):
        made(tmp_path / "run")
    assert (tmp_path / "run" / "run.json").exists()


def test_the_place_of_another_nodes_run_is_not_taken(tmp_path: Path) -> None:
    """One --dir on shared storage: whether that node's launcher lives is not to be seen from here."""
    made(tmp_path / "run").save(host="node-elsewhere", launcher=2**22 + 1)
    with pytest.raises(UsageProblem, match="has not ended"):
        made(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_old_ones_go_and_one_that_runs_stays(tmp_path: Path) -> None:
    now = time.time()
    ended, running, fresh = (made(tmp_path / name) for name in ("ended", "running", "fresh"))
    ended.save(ended={"wall_ns": 1})
    running.save(launcher=os.getpid())
    fresh.save(ended={"wall_ns": 1})
    for run in (ended, running):
        for path in (*run.path.rglob("*"), run.path):
            os.utime(path, (now - (DAYS + 1) * 86400,) * 2)
    (tmp_path / "not-ours").mkdir()
    clear(tmp_path, now)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh", "not-ours", "running"]


@pytest.mark.parametrize("own", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_what_the_user_has_set_stays_by_either_name(own: str) -> None:
    made_ = for_job({own: "7"}, "/r")
    sizes = {name: value for name, value in made_.items() if name.endswith("_BUFFER_SIZE")}
    assert sizes == {own: "7"}


def test_the_version_of_torch_is_told_from_files(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.11/site-packages/torch"
    site.mkdir(parents=True)
    (site / "version.py").write_text("__version__ = '2.6.0+cu124'\n")
    tool = tmp_path / "bin/torchrun"
    tool.parent.mkdir()
    tool.write_text(f"#!{tmp_path}/bin/python3.11\nimport sys\n")
    tool.chmod(0o755)
    assert torch_version([str(tool)]) == (2, 6)


def test_what_the_watcher_said_among_the_jobs_lines_is_no_evidence(tmp_path: Path) -> None:
    """A scheduler's file of the job's output holds both."""
    said = (
        "whichrank: rank 2 has kept 3 ranks waiting for 11 s",
        "whichrank:   why    Rank 2 on vm waited for its input data: its worker 31 in __getitem__ (train.py:6)",
        "whichrank:   proof  run/stacks/pid-31.txt:10  _try_get_data (torch/utils/data/dataloader.py:1291)",
    )
    lines = [f"2026-11-30 05:00:{second:02d} step {second} loss 2.0" for second in range(40)]
    (tmp_path / "slurm-1.out").write_text("\n".join((*lines, *said, "")), encoding="utf-8")
    (tmp_path / "slurm-2.out").write_text("\n".join((*lines, "")), encoding="utf-8")
    first, second = (diagnose([str(tmp_path / name)]).verdicts[0] for name in ("slurm-1.out", "slurm-2.out"))
    assert (first.cause, first.culprits, first.confidence) == (second.cause, second.culprits, second.confidence)
