"""The circle of a group of the training: made when a guard is first used on it, by all its ranks."""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
import warnings
import weakref
from datetime import timedelta
from typing import Any

from .circle import Circle, store_gone
from .clerk import STORE_SECONDS
from .errors import GuardError
from .place import caller

_circles: dict[tuple[int, ...], Circle] = {}
_made: dict[tuple[int, ...], int] = {}
_world: weakref.ref[Any] | None = None  # held weakly: once destroyed, its connections and threads have to go
_owner = 0  # the process that made them
_warned: set[str] = set()


def find(group: Any, call: str, seconds: float) -> Circle | None:
    """The circle of a group (the whole world by default), connected. None where there is nobody to talk to: not
    initialised, one rank, not a member, a child of a rank."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        _say_if_alone(call)
        return None
    if _in_a_child():
        return None
    ranks = _members(dist, group, call)
    if len(ranks) < 2:
        return None
    _forget_other_worlds(dist)
    circle = _circles.get(ranks)
    if circle is None:
        circle = _new(dist, ranks, call)
        circle.calls = 1
        circle.connect(call, seconds)
        _circles[ranks] = circle
    if circle.broken:
        raise GuardError(f"{call}: {circle.broken}; nothing can be agreed on after that. End this rank.")
    if circle.busy:
        raise GuardError(f"{call} inside of {circle.busy}: not all ranks are here at this moment. Move it out.")
    return circle


def standing(group: Any) -> Circle | None:
    """The circle of a group, if there is one by now."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.group.WORLD is not _known_world():
        return None
    if group is None:
        return _circles.get(tuple(range(dist.get_world_size())))
    if group is dist.GroupMember.NON_GROUP_MEMBER or dist.get_rank(group) < 0:
        return None
    return _circles.get(tuple(sorted(dist.get_process_group_ranks(group))))


def _in_a_child() -> bool:
    """A DataLoader's worker, made by fork, has all that its rank has, but is none."""
    data = sys.modules.get("torch.utils.data")
    if data is not None and data.get_worker_info() is not None:
        return True
    return bool(_circles) and _owner != os.getpid()


def _say_if_alone(call: str) -> None:
    world = os.environ.get("WORLD_SIZE", "1")
    if world not in ("", "0", "1"):
        text = (
            f"whichrank.guard: {call}: WORLD_SIZE is {world}, but torch.distributed is not initialised yet: it guards"
        )
        warn(text + " nothing. Call init_process_group first.")


def _members(dist: Any, group: Any, call: str) -> tuple[int, ...]:
    if group is None:
        return tuple(range(dist.get_world_size()))
    if group is dist.GroupMember.NON_GROUP_MEMBER or dist.get_rank(group) < 0:
        warn(f"whichrank.guard: {call}: this rank is no member of the group: nothing is done here")
        return ()
    return tuple(sorted(dist.get_process_group_ranks(group)))


def warn(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        frame = caller()
        name, line = (frame.f_code.co_filename, frame.f_lineno) if frame else ("?", 0)
        warnings.warn_explicit(text, RuntimeWarning, name, line)


def _new(dist: Any, ranks: tuple[int, ...], call: str) -> Circle:
    store = dist.distributed_c10d._get_default_store()
    try:
        store.check(["whichrank guard"])  # another connection to a store that is gone would be tried for minutes
    except RuntimeError as error:
        raise store_gone(call) from error
    number = _made[ranks] = _made.get(ranks, 0) + 1
    name = hashlib.sha1(repr(ranks).encode(), usedforsecurity=False).hexdigest()[:16]
    own = own_store(store, f"whichrank guard/{name}/{number}")
    return Circle(ranks, ranks.index(dist.get_rank()), own)


def own_store(store: Any, prefix: str) -> Any:
    """The store under a prefix, over a connection of its own where torch can make one: whoever waits on a connection
    keeps all other users of it out."""
    import torch.distributed as dist

    try:
        store = store.clone()
        store.set_timeout(timedelta(seconds=STORE_SECONDS))
    except (AttributeError, RuntimeError, NotImplementedError):
        pass
    return dist.PrefixStore(prefix, store)


def _forget_other_worlds(dist: Any) -> None:
    global _world, _owner
    if dist.group.WORLD is not _known_world():
        forget()
        _world, _owner = weakref.ref(dist.group.WORLD), os.getpid()


def _known_world() -> Any:
    return _world and _world()


@atexit.register
def forget() -> None:
    """The group is destroyed, or about to be: no connection of ours stays open."""
    global _world
    for circle in list(_circles.values()):
        if circle._errand:
            circle._errand.stop()
        circle.gloo = None
    _circles.clear()
    _world = None


def cut_all(why: str) -> None:
    for circle in list(_circles.values()):
        circle.close(why)
