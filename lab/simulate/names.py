"""Where dumps lie: file names and folders as jobs leave them. The rank is nowhere else."""

from __future__ import annotations

SCHEMES = ("nccl_trace", "comm_lib_trace", "plain", "nodes", "attempts", "prefix")


def path(scheme: str, rank: int, host: str, attempt: int, json: bool) -> str:
    """Of one rank's dump, relative to the folder of the incident's dumps."""
    end = ".json" if json else ""
    if scheme == "comm_lib_trace":
        return f"comm_lib_trace_rank_{rank}{end}"
    if scheme == "plain":
        return f"_dump_{rank}{end}"
    if scheme == "nodes":
        return f"{host}/nccl_trace_rank_{rank}{end}"
    if scheme == "attempts":
        return f"attempt_{attempt}/nccl_trace_rank_{rank}{end}"
    if scheme == "prefix":
        return f"run7_fr_{rank}{end}"
    return f"nccl_trace_rank_{rank}{end}"
