"""All causes. Adding one is a new module and a line here."""

from __future__ import annotations

from whichrank.causes import (
    cuda_oom,
    desync_conditional,
    desync_mismatch,
    desync_order,
    desync_uneven_data,
    evicted,
    exception,
    gpu_fault,
    gradient_checkpointing,
    host_oom,
    init_rendezvous,
    killed,
    network,
    none,
    p2p_shm,
    rank0_only_work,
    shared_infrastructure,
    slow_checkpoint,
    slow_compute,
    slow_data,
    slow_storage,
    stopped,
    timeout_not_applied,
    timeout_too_short,
    version_mismatch,
)
from whichrank.causes.base import Cause

CAUSES: tuple[Cause, ...] = tuple(
    module.CAUSE
    for module in (
        slow_data,
        slow_storage,
        slow_checkpoint,
        rank0_only_work,
        slow_compute,
        stopped,
        host_oom,
        cuda_oom,
        exception,
        evicted,
        killed,
        desync_conditional,
        desync_uneven_data,
        desync_mismatch,
        desync_order,
        timeout_too_short,
        timeout_not_applied,
        network,
        init_rendezvous,
        version_mismatch,
        p2p_shm,
        gpu_fault,
        gradient_checkpointing,
        shared_infrastructure,
        none,
    )
)
BY_ID = {cause.id: cause for cause in CAUSES}

__all__ = ["BY_ID", "CAUSES", "Cause"]
