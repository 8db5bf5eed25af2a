"""Which rank a process is, by what launchers set; what they set wrongly is said."""

from __future__ import annotations

import pytest

from whichrank.errors import UsageProblem
from whichrank.preflight.place import place

SLURM = {
    "SLURM_PROCID": "5", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "123456", "SLURM_STEP_NUM_TASKS": "6", "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "gpu[07-08],login", "SLURM_STEP_TASKS_PER_NODE": "3,2,1",
}  # fmt: skip
TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "n0", "MASTER_PORT": "29400",
    "TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_USE_AGENT_STORE": "True",
}  # fmt: skip


def test_nobody_has_launched_anything() -> None:
    assert place({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) is None  # a batch script, not a step


def test_torchrun() -> None:
    at = place(TORCHRUN)
    assert at is not None
    assert (at.rank, at.world, at.local_rank, at.local_world, at.port) == (3, 4, 1, 2, 29400)
    assert (at.launcher, at.agent_store, at.run) == ("torchrun", True, "job/2")


def test_slurm_knows_every_ranks_node() -> None:
    at = place(SLURM)
    assert at is not None
    assert (at.rank, at.world, at.master, at.launcher) == (5, 6, "gpu07", "slurm")
    assert [at.node_of(rank) for rank in range(6)] == ["gpu07"] * 3 + ["gpu08"] * 2 + ["login"]


def test_slurm_with_another_distribution_does_not() -> None:
    at = place({**SLURM, "SLURM_DISTRIBUTION": "cyclic"})
    assert at is not None and at.node_of(1) is None


def test_variables_of_the_job_outweigh_slurms_own() -> None:
    at = place({**SLURM, "MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "12345"})
    assert at is not None and (at.master, at.port) == ("10.0.0.9", 12345)


def test_the_same_port_for_every_rank_of_a_job_and_within_bounds() -> None:
    ports = [at.port for job in ("1", "123456", "99999999") if (at := place({**SLURM, "SLURM_JOB_ID": job}))]
    assert all(1024 < port < 32768 for port in ports) and len(set(ports)) == 3


def test_open_mpi() -> None:
    at = place({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "MASTER_ADDR": "a"})
    assert at is not None and (at.rank, at.world, at.port, at.launcher) == (1, 2, 29500, "mpi")


@pytest.mark.parametrize(
    "env",
    [
        {"RANK": "0"},
        {"RANK": "-1", "WORLD_SIZE": "2", "MASTER_ADDR": "a"},
        {"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "a"},
        {"RANK": "0", "WORLD_SIZE": "2"},
        {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "http"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
    ],
)
def test_what_contradicts_itself(env: dict[str, str]) -> None:
    with pytest.raises(UsageProblem):
        place(env)
