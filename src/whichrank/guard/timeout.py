"""step_timeout(group, seconds): a longer limit for one operation that is long and right, and the old one after it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from .place import leave, phase


@contextmanager
def step_timeout(group: Any, seconds: float) -> Iterator[None]:
    """Collectives that are started within have `seconds` to finish on this group; those after it the group's own limit.

    group: None for the world. It is each rank's own affair and waits for nobody: all ranks that will wait must be within
    it, not only the one that takes long. What was started before keeps its limit; with NCCL what was started within
    keeps the longer one. Works on gloo and NCCL; other backends warn, and keep their limit.

    Outside of a distributed job, or on a rank that is no member, it does nothing.
    """
    if seconds <= 0:
        raise ValueError(f"step_timeout: {seconds} seconds")
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        yield
        return
    group = dist.group.WORLD if group is None else group
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        yield
        return
    before = [(backend, limit_of(backend)) for backend in backends(group)]
    entered = phase("step_timeout")
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)
    try:
        yield
    finally:
        for backend, limit in before:
            backend._set_default_timeout(limit)
        leave(entered)


def backends(group: Any) -> list[Any]:
    """Those of a group whose limit can be set, one for each kind of device."""
    found: list[Any] = []
    for device in group._device_types:
        try:
            backend = group._get_backend(device)
        except RuntimeError:  # none for this device
            continue
        if hasattr(backend, "_set_default_timeout") and limit_of(backend) and backend not in found:
            found.append(backend)
    return found


def limit_of(backend: Any) -> timedelta | None:
    limit = getattr(getattr(backend, "options", None), "_timeout", None)
    return limit if isinstance(limit, timedelta) else None
