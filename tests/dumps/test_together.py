"""Dumps beside logs, kernel lines and stacks of the same incident: one verdict from all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import Incident, named, surely_named, told
from recorded import Job, report_on

LAYOUTS = ("per-rank", "merged", "per-node")


def incident(layout: str = "per-rank", culprit: int = 5, *, watchdog: bool = True) -> tuple[Incident, Job, float]:
    """Eight ranks on two nodes; one never makes the collective after step 130."""
    logs = Incident(layout=layout)
    logs.init()
    end = logs.steps(100, 130)
    dumps = Job(8)
    dumps.wait(end - 3)
    dumps.steps(20)
    dumps.call("all_reduce", but=[culprit], ended=False)
    if watchdog:
        logs.time_out(end + 602, seq=21, numel=1024, but=[culprit])
    return logs, dumps, end


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_victims_watchdogs_and_the_dumps_name_one_rank(layout: str, tmp_path: Path) -> None:
    logs, dumps, _ = incident(layout)
    logs.write(tmp_path)
    dumps.write(tmp_path, names="fr/nccl_trace_rank_{rank}")

    report = report_on(tmp_path)

    verdict = report.verdicts[0]
    assert not report.incidents, "logs and dumps are of one incident"
    assert surely_named(verdict) == [5], told(verdict)
    assert (verdict.mechanism, verdict.hosts) == ("host_stuck", ("node-02",)), told(verdict)
    assert set(verdict.victims) == {0, 1, 2, 3, 4, 6, 7}
    sources = " ".join(proof.source for proof in verdict.because)
    assert "nccl_trace_rank_5" in sources, verdict.because


def test_the_dumps_of_one_node_and_the_logs_of_the_other(tmp_path: Path) -> None:
    logs, dumps, _ = incident(culprit=2)
    logs.entries = [entry for entry in logs.entries if "rank" not in entry.file or int(entry.file[-5]) >= 4]
    logs.write(tmp_path)
    dumps.write(tmp_path, but=[4, 5, 6, 7])

    verdict = report_on(tmp_path).verdicts[0]

    assert named(verdict) == [2], told(verdict)


@pytest.mark.parametrize("watchdog", [True, False])
def test_the_kernels_line_for_the_culprits_process_proves_the_cause(watchdog: bool, tmp_path: Path) -> None:
    """The dumps say who, the kernel says why: its process is gone, so is its dump."""
    logs, dumps, end = incident(watchdog=watchdog)
    logs.oom(end + 1, "node-02", logs.pid(5))
    logs.write(tmp_path)
    dumps.write(tmp_path, but=[5])

    verdict = report_on(tmp_path).verdicts[0]

    assert (verdict.cause, verdict.grade) == ("host_oom", "proven"), told(verdict)
    assert surely_named(verdict) == [5] and verdict.hosts == ("node-02",), told(verdict)
    assert verdict.mechanism == "dead", told(verdict)


def test_a_stack_says_what_the_rank_of_the_dumps_does(tmp_path: Path) -> None:
    logs, dumps, end = incident(watchdog=False)
    stack = f"""\
Process {logs.pid(5)}: python3 train.py
Python v3.11.7 (/opt/venv/bin/python3.11)

Thread {logs.pid(5)} (idle): "MainThread"
    read (data/shards.py:88)
    __getitem__ (data/shards.py:131)
    next_batch (train.py:120)
    main (train.py:200)
"""
    logs.raw(end + 300, "stacks/node-02-rank5.txt", stack)
    logs.write(tmp_path)
    dumps.write(tmp_path)

    verdict = report_on(tmp_path).verdicts[0]

    assert surely_named(verdict) == [5], told(verdict)
    assert verdict.mechanism == "host_stuck", told(verdict)
    assert verdict.cause in ("slow_storage", "slow_dataloader", "undecided"), told(verdict)
    if verdict.cause != "undecided":
        assert any("shards.py" in proof.excerpt for proof in verdict.because)


def test_an_exception_of_the_culprit_explains_what_its_dump_shows(tmp_path: Path) -> None:
    logs, dumps, end = incident()
    logs.crash(end + 1, 5)
    logs.write(tmp_path)
    dumps.write(tmp_path)

    verdict = report_on(tmp_path).verdicts[0]

    assert verdict.cause == "exception" and surely_named(verdict) == [5], told(verdict)


def test_a_mismatch_is_explained_though_the_logs_show_only_waiting(tmp_path: Path) -> None:
    logs = Incident()
    logs.init()
    end = logs.steps(100, 130)
    dumps = Job(8)
    dumps.wait(end - 3)
    dumps.steps(20)
    dumps.call("all_reduce", but=[3], ended=False, at="train.py:88")
    dumps.call("all_reduce", only=[3], sizes=[[1000]], ended=False, at="train.py:88")
    logs.time_out(end + 602, seq=21, numel=1024, ranks=[0, 1, 2])
    logs.write(tmp_path)
    dumps.write(tmp_path)

    verdict = report_on(tmp_path).verdicts[0]

    assert verdict.cause == "desync_mismatch" and surely_named(verdict) == [3], told(verdict)
    assert verdict.mechanism == "mismatch"


def test_dumps_of_a_job_that_ended_well_do_not_contradict_its_log(tmp_path: Path) -> None:
    logs = Incident()
    logs.init()
    end = logs.steps(100, 130)
    logs.finishes(end + 5)
    dumps = Job(8)
    dumps.wait(end - 3)
    dumps.steps(20)
    logs.write(tmp_path)
    dumps.write(tmp_path)

    verdict = report_on(tmp_path).verdicts[0]

    assert verdict.cause == "none" and verdict.mechanism == "no_hang", told(verdict)


def test_dumps_that_are_there_are_not_asked_for(tmp_path: Path) -> None:
    dumps = Job(4)
    dumps.steps(6)
    dumps.call("broadcast", but=[2], ended=False, at="train.py:95")
    dumps.call("all_reduce", only=[2], ended=False)

    verdict = dumps.verdict(tmp_path)

    assert verdict.cause == "desync_conditional" and verdict.checks, told(verdict)
    assert not any("TORCH_FR_BUFFER_SIZE" in check.command for check in verdict.checks)
