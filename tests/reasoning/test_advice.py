"""What a library advises is no evidence: the verdict is the same with and without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from incident import LAYOUTS, Incident, core, told

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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
@pytest.mark.parametrize("advice", ADVICE)
def test_advice_changes_nothing(advice: str, story: Callable[[Incident, float], None], layout: str, tmp_path: Path) -> None:
    reports = []
    for name in ("without", "with"):
        job = Incident(layout=layout)
        job.init()
        end = job.steps(100, 130)
        if name == "with":
            for at in (12.5, end - 3, end + 601.5):
                for rank in (0, 2):
                    job.raw(at + 0.1 * rank, job.file_of(rank), ADVICE[advice])
        story(job, end)
        reports.append(job.report(tmp_path / name))

    assert core(reports[1])[:7] == core(reports[0])[:7], f"{told(reports[0].verdicts[0])}\n{told(reports[1].verdicts[0])}"


@pytest.mark.parametrize("advice", ADVICE)
def test_advice_is_no_proof(advice: str, tmp_path: Path) -> None:
    job = Incident(layout="merged")
    job.init()
    end = job.steps(100, 130)
    job.raw(end + 0.5, "train.log", ADVICE[advice])
    silent(job, end)

    verdict = job.verdict(tmp_path)

    assert not any(ADVICE[advice][:40] in proof.excerpt for proof in (*verdict.because, *verdict.against)), told(verdict)
