"""Hosts with other versions: what counts, whom it points at, and what a difference does not explain."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.diagnosis import diagnose
from whichrank.model import Verdict

HOSTS = ("titan", "rhea", "kronos")
FAILED = (
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, "
    "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version {nccl}"
)


def launched(nccl: dict[str, str], *, steps: int = 0) -> str:
    """DeepSpeed's launcher over pdsh: each line behind its host's name, which holds no digit."""
    listed = ", ".join(f"'{host}': [0, 1]" for host in HOSTS)
    lines = []
    for number, host in enumerate(HOSTS):
        stamp = f"[2026-03-02 08:00:0{number},120] [INFO]"
        lines.append(f"{host}: {stamp} [launch.py:146:main] WORLD INFO DICT: {{{listed}}}")
        lines.append(f"{host}: {stamp} [launch.py:152:main] nnodes=3, num_local_procs=2, node_rank={number}")
        lines += [
            f"{host}: Loading checkpoint shards:  {done * 5:2d}%|##        | {done}/19 [00:0{done % 10}<00:38,  2.01s/it]"
            for done in range(19)
        ]
    for step in range(steps):
        lines += [
            f"{host}: [2026-03-02 08:0{1 + step // 60}:{step % 60:02d},001] step {step} loss 2.1" for host in HOSTS
        ]
    for host in HOSTS:
        lines.append(f"{host}: {host}:7100:7100 [0] NCCL INFO Bootstrap : Using eno1:192.168.5.{len(host)}<0>")
        lines += [
            f"{host}: Traceback (most recent call last):",
            f'{host}:   File "/srv/tune.py", line 88, in main',
            f"{host}:     dist.broadcast(flag, 0)",
            f"{host}: {FAILED.format(nccl=nccl[host])}",
            f"{host}: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
        ]
    return "\n".join(lines) + "\n"


def judged(folder: Path, nccl: dict[str, str], torch: dict[str, str] | None = None, *, steps: int = 0) -> Verdict:
    folder.joinpath("launch.log").write_text(launched(nccl, steps=steps))
    for host, value in nccl.items():
        folder.joinpath(f"{host}.pip.txt").write_text(
            f"numpy==1.26.4\nnvidia-nccl-cu12=={value}\ntorch=={(torch or {}).get(host, '2.3.0')}\n"
        )
    return diagnose([str(folder)]).verdicts[0]


@pytest.mark.parametrize("odd", HOSTS)
def test_the_host_that_differs_from_most(odd: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, {host: "2.20.5" if host == odd else "2.19.3" for host in HOSTS})

    assert (verdict.cause, verdict.hosts) == ("version_mismatch", (odd,)), verdict.says
    assert verdict.mechanism == "dead", "the ranks raised and left"


def test_equal_versions_are_no_mismatch(tmp_path: Path) -> None:
    verdict = judged(tmp_path, dict.fromkeys(HOSTS, "2.20.5"))

    assert verdict.cause != "version_mismatch", verdict.says


def test_a_host_that_takes_no_part(tmp_path: Path) -> None:
    """A login node's list of packages lies beside the others."""
    tmp_path.joinpath("login1.pip.txt").write_text("nvidia-nccl-cu12==2.14.3\ntorch==2.0.1\n")

    verdict = judged(tmp_path, dict.fromkeys(HOSTS, "2.20.5"))

    assert verdict.grade not in ("proven", "likely") or verdict.cause != "version_mismatch", verdict.says


def test_steps_show_that_versions_fitted(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path,
        dict.fromkeys(HOSTS, "2.20.5"),
        {"titan": "2.3.0", "rhea": "2.3.1", "kronos": "2.3.0"},
        steps=90,
    )

    assert verdict.cause != "version_mismatch", verdict.says
