"""What a library advises is no evidence: the verdict is the same with and without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from incident import LAYOUTS, Incident, core, told

from whichrank.model import Report

ADVICE = {
    "nccl-hint": "HINT: This could be due to a bad network cable or a congested switch. Check the InfiniBand link and consider raising NCCL_IB_TIMEOUT.",
    "raise-timeout": "Consider raising the timeout: init_process_group(timeout=timedelta(hours=2)) may help if a collective takes longer.",
    "unused": "RuntimeWarning: If your model has parameters that did not receive grad, you can enable unused parameter detection by passing the keyword argument `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`.",
    "unused-overhead": "Warning: find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters in the forward pass. This flag results in an extra traversal of the autograd graph every iteration, which can adversely affect performance.",
    "incorrect-use": "This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks, the order of collectives is not same for all ranks or the scheduled collective, for some reason, didn't run. Additionally, this can be caused by GIL deadlock or other reasons such as network errors or bugs in the communications library (e.g. NCCL), etc.",
    "p2p": "If the job hangs, try NCCL_P2P_DISABLE=1 or NCCL_SHM_DISABLE=1, and increase --shm-size if the container's shared memory is too small.",
    "oom": "If you run out of memory try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation. A killed process (exit code -9) usually means that the host ran out of memory.",
    "loader": "UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number of worker in current system is 12, which is smaller than what this DataLoader is going to create. Please be aware that excessive worker creation might get DataLoader running slow or even freeze, lower the worker number to avoid potential slowness/freeze if necessary.",
    "store": "It may help to increase the timeout of the TCPStore, or to check that the master address is reachable from all nodes.",
    "nccl-timeout": "Hint: set NCCL_TIMEOUT=7200 or TORCH_NCCL_BLOCKING_WAIT=1 to get a Python exception instead of a hang.",
    "checkpoint": "FutureWarning: use_reentrant parameter should be passed explicitly. In version 2.4 we will raise an exception if use_reentrant is not passed. use_reentrant=False is recommended.",
}


def silent(job: Incident, end: float) -> None:
    job.time_out(end + 602, seq=131, but=[5])


def killed(job: Incident, end: float) -> None:
    job.killed(end + 2, 5)
    job.time_out(end + 602, seq=131, ranks=[0, 1, 2, 3])


def all_waited(job: Incident, end: float) -> None:
    job.time_out(end + 602, seq=131)


def raised(job: Incident, end: float) -> None:
    job.crash(end + 1, 5)
    job.time_out(end + 602, seq=131, but=[5])


def other_size(job: Incident, end: float) -> None:
    job.time_out(end + 602, seq=131, but=[5], numel=8192)
    job.time_out(end + 603, seq=131, ranks=[5], numel=7936)


def well(job: Incident, end: float) -> None:
    job.finishes(end + 5)


STORIES = (silent, killed, all_waited, raised, other_size, well)


def told_with(story: Callable[[Incident, float], None], layout: str, folder: Path, advice: Sequence[str]) -> Report:
    """The story, its lines of advice at the start, before the end and among the watchdogs' blocks."""
    job = Incident(layout=layout)
    job.init()
    end = job.steps(100, 130)
    for at in (12.5, end - 3, end + 601.5):
        for rank in (0, 2):
            for number, text in enumerate(advice):
                job.raw(at + 0.1 * rank + 0.001 * number, job.file_of(rank), text)
    story(job, end)
    return job.report(folder)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_advice_changes_nothing(story: Callable[[Incident, float], None], layout: str, tmp_path: Path) -> None:
    usual = told_with(story, layout, tmp_path / "without", ())

    report = told_with(story, layout, tmp_path / "with", list(ADVICE.values()))

    assert core(report) == core(usual), f"{told(usual.verdicts[0])}\n{told(report.verdicts[0])}"


@pytest.mark.parametrize("story", [silent, all_waited, well], ids=lambda story: story.__name__)
@pytest.mark.parametrize("advice", ADVICE)
def test_no_piece_of_advice_changes_anything(
    advice: str, story: Callable[[Incident, float], None], tmp_path: Path
) -> None:
    usual = told_with(story, "per-rank", tmp_path / "without", ())

    report = told_with(story, "per-rank", tmp_path / "with", [ADVICE[advice]])

    assert core(report) == core(usual), f"{told(usual.verdicts[0])}\n{told(report.verdicts[0])}"


@pytest.mark.parametrize("advice", ADVICE)
def test_advice_is_no_proof(advice: str, tmp_path: Path) -> None:
    job = Incident(layout="merged")
    job.init()
    end = job.steps(100, 130)
    job.raw(end + 0.5, "train.log", ADVICE[advice])
    silent(job, end)

    verdict = job.verdict(tmp_path)

    assert not any(ADVICE[advice][:40] in proof.excerpt for proof in (*verdict.because, *verdict.against)), told(
        verdict
    )
