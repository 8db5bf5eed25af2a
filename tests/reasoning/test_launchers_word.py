"""What a launcher's word on ends is worth by itself, and what can no longer be looked at after an end."""

from __future__ import annotations

from pathlib import Path

import pytest
from incident import Incident

from whichrank import diagnose
from whichrank.model import Report

SUMMARY = """\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_06:01:45
  host      : box9
  rank      : 13 (local_rank: 5)
  exitcode  : {code} (pid: 436)
  error_file: <N/A>
  traceback : {traceback}
============================================================
"""
HINT = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


def alone(folder: Path, code: int, traceback: str = HINT) -> Report:
    path = folder / "launcher.log"
    path.write_text(SUMMARY.format(code=code, traceback=traceback))
    return diagnose([str(path)])


def commands(report: Report) -> str:
    return " | ".join(check.command for check in report.verdicts[0].checks)


def says(report: Report) -> str:
    return " | ".join(check.says for check in report.verdicts[0].checks)


@pytest.mark.parametrize(("code", "signal"), [(-6, "SIGABRT"), (-15, "SIGTERM")])
def test_a_rank_that_was_ended_may_be_a_victim(code: int, signal: str, tmp_path: Path) -> None:
    verdict = alone(tmp_path, code, f"Signal {-code} ({signal}) received by PID 436").verdicts[0]

    assert "Rank 13 on box9" in verdict.says and signal in verdict.says
    assert not verdict.culprits and verdict.mechanism == "undecided"
    assert any("rank 13" in proof.says for proof in verdict.because)


@pytest.mark.parametrize("code", [1, -11, -7])
def test_a_rank_that_crashed_is_possible(code: int, tmp_path: Path) -> None:
    verdict = alone(tmp_path, code).verdicts[0]

    assert [(culprit.rank, culprit.host) for culprit in verdict.culprits] == [(13, "box9")]
    assert (verdict.cause, verdict.rank_grade) == ("undecided", "possible")


def test_sigkill_is_no_proof_of_memory(tmp_path: Path) -> None:
    verdict = alone(tmp_path, -9, "Signal 9 (SIGKILL) received by PID 436").verdicts[0]

    assert verdict.cause == "killed" and [culprit.rank for culprit in verdict.culprits] == [13]
    assert verdict.rank_grade == "likely", "another node's launcher may have seen an earlier failure"


def test_the_error_in_the_summary_is_the_ranks_own(tmp_path: Path) -> None:
    traceback = """Traceback (most recent call last):
    File "/opt/venv/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355, in wrapper
      return f(*args, **kwargs)
    File "/work/train.py", line 88, in main
      batch = next(it)
    FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-3'
  """
    verdict = alone(tmp_path, 1, traceback).verdicts[0]

    assert verdict.cause == "exception" and [culprit.rank for culprit in verdict.culprits] == [13]
    assert "FileNotFoundError" in verdict.because[0].excerpt and "/work/train.py:88" in verdict.fix[0]


def test_an_error_that_says_no_more_than_that_a_peer_left_names_nobody(tmp_path: Path) -> None:
    traceback = """Traceback (most recent call last):
    File "/work/train.py", line 190, in main
      loss.backward()
    torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error
  """
    assert not alone(tmp_path, 1, traceback).verdicts[0].culprits


# ---- what can still be looked at


@pytest.mark.parametrize("code", [1, -6, -9])
def test_no_stack_is_asked_of_processes_that_have_ended(code: int, tmp_path: Path) -> None:
    report = alone(tmp_path, code)

    assert "py-spy" not in commands(report)
    if code != -9:
        assert "the job has ended (" in says(report) and "launcher.log:" in says(report)
        assert "TORCH_NCCL_DUMP_ON_TIMEOUT" in commands(report) and "dmesg" in commands(report)


def test_a_rank_that_may_still_run_is_asked_with_a_word_on_the_others(tmp_path: Path) -> None:
    """Those who waited were ended by their watchdogs; who did not come may stand there yet."""
    job = Incident(ranks=8, hosts=2)
    job.init()
    end = job.steps(1, 60, until={5: 40})
    job.time_out(end + 600, seq=61, but=[5])
    report = job.report(tmp_path)

    assert "py-spy" in commands(report)
    assert "if it still runs" in says(report)


def test_after_the_launchers_end_of_all_nodes_no_stack_is_asked(tmp_path: Path) -> None:
    job = Incident(ranks=8, hosts=2)
    job.init()
    end = job.steps(1, 60, until={5: 40})
    job.time_out(end + 600, seq=61, but=[5])
    job.exits(end + 605, 0, -6)
    report = job.report(tmp_path)

    assert "py-spy" not in commands(report), commands(report)
    assert "no stack can be taken any more" in says(report)
