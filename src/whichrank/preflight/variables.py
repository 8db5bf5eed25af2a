"""Environment variables of the communication libraries: misspelt, without effect, or not the same on every rank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

_KEPT = re.compile(
    r"(?:NCCL|TORCH|TORCHELASTIC|GLOO|PYTORCH|CUDA|UCX|FI|OFI|TP|OMP|MKL|KMP|RCCL|HSA|HIP|ROCR)_[A-Z0-9_]+$"
    r"|MASTER_(?:ADDR|PORT)$|WORLD_SIZE$|LD_PRELOAD$"
)
_JUDGED = re.compile(r"(?:NCCL|GLOO|TORCH_NCCL|TORCH_FR|TORCH_GLOO)_")
# What differs from rank to rank or node to node by right.
OWN = re.compile(
    r"TORCHELASTIC_ERROR_FILE$|TORCHELASTIC_TIMER_FILE$|CUDA_VISIBLE_DEVICES$|(?:HIP|ROCR)_VISIBLE_DEVICES$|.*_IFNAME$"
    r"|.*_DEBUG_FILE$|.*_DUMP_TEMP_FILE$|.*_DEBUG_INFO_TEMP_FILE$|NCCL_HOSTID$|NCCL_IB_HCA$|NCCL_TOPO_FILE$"
    r"|TORCH_WORKER_SERVER_SOCKET$|UCX_NET_DEVICES$|TORCHELASTIC_HEALTH_CHECK_PORT$|CUDA_MPS_.*|GLOO_DEVICE_.*"
)
# Names that look as if they did something, and what does
WITHOUT_EFFECT = {
    "NCCL_TIMEOUT": "NCCL does not read it. The limit of a collective is the process group's: "
    "init_process_group(…, timeout=timedelta(minutes=…))",
    "TORCH_NCCL_TIMEOUT": "PyTorch does not read it: init_process_group(…, timeout=timedelta(minutes=…))",
    "TORCH_DISTRIBUTED_TIMEOUT": "PyTorch does not read it: init_process_group(…, timeout=timedelta(minutes=…))",
    "GLOO_TIMEOUT": "gloo does not read it: init_process_group(…, timeout=timedelta(minutes=…))",
    "GLOO_IFNAME": "gloo reads GLOO_SOCKET_IFNAME",
    "NCCL_IFNAME": "NCCL reads NCCL_SOCKET_IFNAME",
    "NCCL_HEARTBEAT_TIMEOUT_SEC": "PyTorch reads TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    "NCCL_DUMP_ON_TIMEOUT": "PyTorch reads TORCH_NCCL_DUMP_ON_TIMEOUT",
    "NCCL_TRACE_BUFFER_SIZE": "PyTorch reads TORCH_FR_BUFFER_SIZE (TORCH_NCCL_TRACE_BUFFER_SIZE before 2.7)",
}
# PyTorch's own names until 2.1; newer ones read them with a warning, or not at all.
RENAMED = ("NCCL_BLOCKING_WAIT", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING")


@dataclass(frozen=True, slots=True)
class Doubt:
    """A variable that does not do what whoever set it believes. near: the name that was meant, if one is close."""

    name: str
    says: str
    near: str | None = None


def kept(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value[:400] for name, value in env.items() if _KEPT.match(name)}


@cache
def known() -> tuple[frozenset[str], tuple[str, ...]]:
    """Names, and beginnings of names."""
    lines = (Path(__file__).parent / "known_variables.txt").read_text().splitlines()
    names = [line for line in lines if not line.startswith("#")]
    return frozenset(name for name in names if not name.endswith("_")), tuple(name for name in names if name[-1] == "_")


def doubts(names: Iterable[str]) -> list[Doubt]:
    """
    >>> [(each.name, each.near) for each in doubts(["NCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAMES", "NCCL_TIMEOUT"])]
    [('NCCL_SOCKET_IFNAMES', 'NCCL_SOCKET_IFNAME'), ('NCCL_TIMEOUT', None)]
    """
    read, families = known()
    found = []
    for name in sorted(names):
        if name in WITHOUT_EFFECT:
            found.append(Doubt(name, WITHOUT_EFFECT[name]))
        elif name in RENAMED:
            found.append(Doubt(name, f"PyTorch calls it TORCH_{name} since 2.2", f"TORCH_{name}"))
        elif _JUDGED.match(name) and name not in read and not name.startswith(families):
            near = get_close_matches(name, read, 1, 0.88)
            if near:
                found.append(Doubt(name, f"nobody reads it; {near[0]} is read", near[0]))
    return found


def differing(by_rank: Mapping[int, Mapping[str, str]]) -> dict[str, dict[str | None, list[int]]]:
    """Variables that are not the same on every rank: name -> value (None: not set) -> ranks."""
    names = {name for env in by_rank.values() for name in env if not OWN.match(name)}
    found: dict[str, dict[str | None, list[int]]] = {}
    for name in sorted(names):
        values: dict[str | None, list[int]] = {}
        for rank, env in sorted(by_rank.items()):
            values.setdefault(env.get(name), []).append(rank)
        if len(values) > 1:
            found[name] = values
    return found
