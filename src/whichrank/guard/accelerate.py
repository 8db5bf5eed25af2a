"""Guards for Accelerate (1.15), which has no callbacks: `accelerator = guarded(Accelerator())`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from .flags import PATIENCE
from .place import leave, phase
from .rank_zero import LIMIT, Turn, rank_zero_first
from .same import same_everywhere
from .shards import check_shards

PHASES = (
    "save_state",
    "load_state",
    "save_model",
    "save",
    "clip_grad_norm_",
    "gather_for_metrics",
    "wait_for_everyone",
)


def guarded(accelerator: Any, *, uneven: str = "raise", timeout: float = PATIENCE, limit: float = LIMIT) -> Any:
    """The same accelerator, with guards in its methods; call it once, right after it was made.

    prepare() compares the modules before they are wrapped, and the loaders after it: uneven is what check_shards does.
    main_process_first() (and local_main_process_first(), on one node) is rank_zero_first: the others wait on gloo, up
    to `limit` seconds. What saves, loads and gathers is a phase of the recorder. For exceptions put `with
    whichrank.guard.process_group():` around the training.
    """

    def first() -> Turn:
        return rank_zero_first(limit=limit, timeout=timeout)

    accelerator.main_process_first = first
    if os.environ.get("LOCAL_WORLD_SIZE", "") == str(accelerator.num_processes):
        accelerator.local_main_process_first = first
    for name in PHASES:
        if hasattr(accelerator, name):
            setattr(accelerator, name, _as_phase(name, getattr(accelerator, name)))
    accelerator.prepare = _prepare(accelerator.prepare, uneven, timeout)
    return accelerator


def _as_phase(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def within(*args: Any, **kwargs: Any) -> Any:
        entered = phase(name)
        try:
            return method(*args, **kwargs)
        finally:
            leave(entered)

    return within


def _prepare(method: Callable[..., Any], uneven: str, timeout: float) -> Callable[..., Any]:
    @functools.wraps(method)
    def prepare(*args: Any, **kwargs: Any) -> Any:
        import torch

        modules = [arg for arg in args if isinstance(arg, torch.nn.Module)]
        if modules:
            same_everywhere(modules, "prepare", timeout=timeout)
        entered = phase("prepare")
        try:
            prepared = method(*args, **kwargs)
        finally:
            leave(entered)
        for made in prepared if isinstance(prepared, tuple) else (prepared,):
            if isinstance(made, torch.utils.data.DataLoader):
                check_shards(made, uneven=uneven, timeout=timeout)
        return prepared

    return prepare
