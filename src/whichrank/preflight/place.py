"""Which rank this process is, as its launcher says: torchrun, Slurm, MPI, or plain environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from whichrank.errors import UsageProblem
from whichrank.evidence.slurm_tables import hosts_of

PORT = 29500  # torch's own default


@dataclass(frozen=True, slots=True)
class Place:
    """run: tells this attempt from others on the same port. nodes: node of each rank, where the launcher tells it."""

    rank: int
    world: int
    local_rank: int
    local_world: int | None
    master: str
    port: int
    launcher: str
    run: str
    agent_store: bool = False
    nodes: tuple[str, ...] = ()

    def node_of(self, rank: int) -> str | None:
        return self.nodes[rank] if rank < len(self.nodes) else None


def place(env: Mapping[str, str]) -> Place | None:
    """None: nobody has launched ranks here.

    Raises:
        UsageProblem: variables that contradict each other, or no numbers.

    >>> place({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1234"})
    Place(rank=1, world=2, local_rank=1, local_world=None, master='a', port=1234, launcher='environment', run='', agent_store=False, nodes=())
    >>> at = place({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "71",
    ...     "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_LOCALID": "1"})
    >>> at.launcher, at.master, at.port, at.nodes
    ('slurm', 'n1', 15071, ('n1', 'n1', 'n2', 'n2'))
    """
    if "RANK" in env and "WORLD_SIZE" in env:
        return _environment(env)
    if "SLURM_PROCID" in env and "SLURM_STEP_ID" in env:
        return _slurm(env)
    if "OMPI_COMM_WORLD_RANK" in env:
        return _mpi(env)
    if "RANK" in env:
        raise UsageProblem("RANK is set and WORLD_SIZE is not: set both, or neither to check this node alone")
    return None


def _number(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = env.get(name, "")
    if not text and default is not None:
        return default
    if not text.isdecimal():
        raise UsageProblem(f"{name}={text!r} is no number: the launcher has to set it for every rank")
    return int(text)


def _master(env: Mapping[str, str]) -> str:
    if not env.get("MASTER_ADDR"):
        raise UsageProblem(
            "MASTER_ADDR is not set: set it to the name or address of the node of rank 0, as for the job itself"
        )
    return env["MASTER_ADDR"]


def _environment(env: Mapping[str, str]) -> Place:
    rank, world = _number(env, "RANK"), _number(env, "WORLD_SIZE")
    if rank >= world:
        raise UsageProblem(f"RANK={rank} is not below WORLD_SIZE={world}: correct what the launcher sets on this node")
    elastic = "TORCHELASTIC_RUN_ID" in env
    nodes = _slurm_nodes(env) if not elastic and "SLURM_STEP_ID" in env else ()
    return Place(
        rank,
        world,
        _number(env, "LOCAL_RANK", rank),
        _number(env, "LOCAL_WORLD_SIZE", 0) or None,
        _master(env),
        _number(env, "MASTER_PORT", PORT),
        "torchrun" if elastic else "environment",
        f"{env.get('TORCHELASTIC_RUN_ID', env.get('SLURM_JOB_ID', ''))}/{env.get('TORCHELASTIC_RESTART_COUNT', '')}".strip(
            "/"
        ),
        env.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        nodes if len(nodes) == world else (),
    )


def _slurm(env: Mapping[str, str]) -> Place:
    job = env.get("SLURM_JOB_ID", "0")
    nodes = _slurm_nodes(env)
    hosts = hosts_of(env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST", ""))
    master = env.get("MASTER_ADDR") or (hosts[0] if hosts else "")
    if not master:
        raise UsageProblem("neither MASTER_ADDR nor SLURM_STEP_NODELIST is set: start this with srun")
    world = _number(env, "SLURM_STEP_NUM_TASKS", _number(env, "SLURM_NTASKS", 1))
    return Place(
        _number(env, "SLURM_PROCID"),
        world,
        _number(env, "SLURM_LOCALID", 0),
        None,
        master,
        _number(env, "MASTER_PORT", 15000 + int(job) % 15000 if job.isdecimal() else PORT),
        "slurm",
        f"{job}.{env['SLURM_STEP_ID']}",
        nodes=nodes if len(nodes) == world else (),
    )


def _slurm_nodes(env: Mapping[str, str]) -> tuple[str, ...]:
    """Of each rank, for Slurm's default order: rank by rank, node after node."""
    if "cyclic" in env.get("SLURM_DISTRIBUTION", ""):
        return ()
    hosts = hosts_of(env.get("SLURM_STEP_NODELIST", ""))
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", env.get("SLURM_STEP_TASKS_PER_NODE", "")):
        counts += [int(count)] * min(int(times or 1), len(hosts))
    if len(counts) != len(hosts):
        return ()
    return tuple(host for host, count in zip(hosts, counts, strict=True) for _ in range(count))


def _mpi(env: Mapping[str, str]) -> Place:
    return Place(
        _number(env, "OMPI_COMM_WORLD_RANK"),
        _number(env, "OMPI_COMM_WORLD_SIZE"),
        _number(env, "OMPI_COMM_WORLD_LOCAL_RANK", 0),
        _number(env, "OMPI_COMM_WORLD_LOCAL_SIZE", 0) or None,
        _master(env),
        _number(env, "MASTER_PORT", PORT),
        "mpi",
        env.get("PMIX_NAMESPACE", ""),
    )
