"""`sbatch` with `srun whichrank run -- torchrun …` over two nodes of a real Slurm, a fault on one: one verdict, the right one.

Needs Debian's slurm-wlm and munge, and torch (WHICHRANK_TORCH names an interpreter that has it).
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
import time
from pathlib import Path

import pytest
from own_slurm import free_ports, missing, slurm
from running import ROOT, events, wait_for

PYTHON = os.environ.get("WHICHRANK_TORCH") or sys.executable
TORCH = importlib.util.find_spec("torch") is not None or "WHICHRANK_TORCH" in os.environ
JOB = Path(__file__).with_name("watched_job.py")
pytestmark = [
    pytest.mark.skipif(not TORCH, reason="needs torch"),
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]
BATCH = """\
#!/bin/bash
#SBATCH -N2 -n2 --ntasks-per-node=1 -J train
srun --kill-on-bad-exit=0 bash -c {each}
"""


def script(here: Path, *words: str) -> Path:
    port = free_ports(1)[0]
    run = [sys.executable, "-m", "whichrank", "run", "--dir", f"{here}/run-NODE", "--"]
    launch = [
        *(PYTHON, "-m", "torch.distributed.run", "--nnodes=2", "--node-rank=ID", "--nproc-per-node=2"),
        *("--master-addr=127.0.0.1", f"--master-port={port}", str(JOB), *words),
    ]
    line = shlex.join([*run, *launch]).replace("NODE", "$SLURMD_NODENAME").replace("=ID", "=$SLURM_NODEID")
    path = here / "batch.sh"
    path.write_text(BATCH.format(each=shlex.quote(line.replace("'", ""))))
    return path


def left(here: Path) -> list[str]:
    """Processes of the job that are still there."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(here) in words or f"{JOB} 100000" in words:
                found.append(f"{path.name} {words}")
    return found


def test_one_verdict_for_both_nodes(tmp_path: Path) -> None:
    base, here = tmp_path / "slurm", tmp_path / "job"
    base.mkdir()
    here.mkdir()
    os.mkfifo(here / "pipe")
    env = {
        "PYTHONPATH": str(ROOT / "src"),
        "PIPE": str(here / "pipe"),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    with slurm(base) as cluster:
        path = script(here, "100000", "2:60:worker")
        said = here / "job.out"
        number = cluster.run("sbatch", "--parsable", "-o", str(said), str(path), **env).strip()
        wait_for(here / "run-n1", "rank", 90)
        verdict = wait_for(here / "run-n1", "verdict", 240)
        assert (verdict["cause"], verdict["ranks"], verdict["rank_grade"]) == ("slow_data", [2], "proven")
        stall = events(here / "run-n1", "stall")[-1]
        # On a busy machine one that waits in the backward pass may be counted with it; the verdict names one.
        assert 2 in stall["ranks"] and "n2" in stall["hosts"] and stall["nodes"] == 2
        noticed = wait_for(here / "run-n2", "stall", 5)
        assert noticed["seconds"] < 15 and (verdict["wall_ns"] - noticed["wall_ns"]) / 1e9 < 15
        assert wait_for(here / "run-n2", "told_by", 20)["host"] == "n1"
        cluster.run("scancel", number)
        wait_for(here / "run-n1", "ended", 60)
        wait_for(here / "run-n2", "ended", 60)
        until = time.monotonic() + 60
        while left(here) and time.monotonic() < until:
            time.sleep(0.3)
        assert not left(here)
    lines = [line for line in said.read_text().splitlines() if line.startswith("whichrank: ")]
    heads = [line for line in lines if not line.startswith("whichrank:   ")]
    assert len(heads) == 1 and "n2" in heads[0] and "waiting for" in heads[0], said.read_text()
    assert not events(here / "run-n2", "nobody_heard")
