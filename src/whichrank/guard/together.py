"""process_group(...): the group exists within the `with`; when one rank leaves it by an exception, all do, at once.

The first failure is written to the store, once. Each rank's clerk looks there. Who finds another rank's failure closes
its own connections, so that a pending collective ends, then interrupts the main thread, and, should that be stuck
where nothing reaches it, ends the process: with the first rank's traceback on stderr in each case.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from . import clerk, failure, find
from .circle import store_gone
from .clerk import STORE_SECONDS
from .errors import GuardError, PeerFailed
from .failure import First, in_short, peer_failed
from .line import cut

LOOK = 0.5  # seconds between two looks into the store, with up to 500 ranks
INTERRUPT = 2.0  # seconds from closed connections to an interrupt
FAREWELL = 5.0  # seconds in which all have to hear of a failure, before the process (which may keep the store) ends
AFTER = 2.0  # seconds that the others let the first one end before them: launchers call that one the cause
BOUND = 5.0  # seconds for destroying the group

_runs = 0  # of process_group in this process: the same on all ranks


class Together:
    """See `process_group`."""

    def __init__(self, backend: str | None = None, *, grace: float | None = 30.0, **how: Any) -> None:
        self._backend = backend
        self._grace = grace
        self._how = how
        self._made = False
        self._first: First | None = None
        self._errand: clerk.Errand | None = None
        self._rank = 0
        self._said = False
        self._left = threading.Event()
        self._main = threading.current_thread() is threading.main_thread()

    # --- in

    def __enter__(self) -> Together:
        if failure.active is not None:
            return self  # within another one: that one does all
        there: Any = sys.modules.get("torch.distributed")
        if there is not None and there.is_available() and there.is_initialized():
            self._listen(there.distributed_c10d._get_default_store(), there.get_rank(), there.get_world_size())
            return self
        if not self._told():
            return self  # no distributed job
        import torch.distributed as dist

        how = dict(self._how)
        store = self._rendezvous(dist, how)
        try:
            dist.init_process_group(self._backend, store=store, **how)
            self._made = True
        except BaseException as error:
            first = self._fail(error)
            if first is not None:
                raise peer_failed(first, in_short(error)) from None
            raise
        return self

    def _told(self) -> bool:
        said = any(self._how.get(name) not in (None, -1) for name in ("rank", "world_size", "store", "init_method"))
        return said or ("RANK" in os.environ and "WORLD_SIZE" in os.environ)

    def _rendezvous(self, dist: Any, how: dict[str, Any]) -> Any:
        """As init_process_group does it (torch 2.13), but a step before: who fails in there is to be heard, too."""
        store = how.pop("store", None)
        if store is None:
            timeout = how.get("timeout") or dist.distributed_c10d._get_default_timeout(
                dist.Backend(self._backend or "undefined")
            )
            method, rank, size = how.pop("init_method", None), how.pop("rank", -1), how.pop("world_size", -1)
            found = dist.rendezvous(method or "env://", rank, size, timeout=timeout)
            store, how["rank"], how["world_size"] = next(iter(found))
            store.set_timeout(timeout)
            self._listen(store, how["rank"], how["world_size"])
            # another one each time: keys of an earlier group of this process would be taken for the new ones (torch 2.13)
            return dist.PrefixStore(f"default_pg {_runs}", store)
        self._listen(store, how["rank"], how["world_size"])
        return store

    def _listen(self, store: Any, rank: int, size: int) -> None:
        global _runs
        _runs += 1
        self._rank = rank
        if size > 1:
            self._first = failure.active = First(find.own_store(store, f"whichrank guard/run/{_runs}"), size)
            self._errand = clerk.every(max(LOOK, size / 1000), self._look)

    # --- the clerk's

    def _look(self) -> None:
        if self._first is not None and not self._left.is_set() and self._first.look():
            if self._errand:
                self._errand.stop()
            threading.Thread(target=self._leave, name="whichrank-guard-end", daemon=True).start()

    def _leave(self) -> None:
        """Another rank failed, and the main thread is somewhere. Bring it out."""
        assert self._first is not None and self._first.known is not None
        first = self._first.known
        if self._left.is_set():
            return
        self._follow(first)
        quietly(self._first.acknowledge)
        bounded(cut_all_groups, BOUND)
        if self._left.wait(INTERRUPT):
            return
        if self._main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # wakes a sleep, too
        if self._grace is None or self._left.wait(self._grace):
            return
        self._say(f"did not come out of what it does within {self._grace:.0f} s, and ends now")
        self._say(str(peer_failed(first)))
        os._exit(1)

    def _follow(self, first: dict[str, Any]) -> None:
        if not self._said:
            self._said = True
            self._say(f"rank {first['rank']} failed: this one ends its work, too")

    def _say(self, text: str) -> None:
        print(f"whichrank.guard: rank {self._rank}: {text}", file=sys.stderr, flush=True)

    # --- out

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._first is None:
            if self._made:
                self._destroy()
            return
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            self._end()
            return
        first = self._fail(error)
        if first is not None:
            raise peer_failed(first, in_short(error)) from None

    def _end(self) -> None:
        self._stop()
        if self._first is not None:
            bounded(self._first.acknowledge, BOUND)
        if self._made:
            self._destroy()

    def _fail(self, error: BaseException) -> dict[str, Any] | None:
        """What another rank published before, if one did."""
        self._left.set()
        first = self._first
        if first is None:
            return None
        ours = isinstance(error, GuardError)  # says it all already, and all the ranks that met raise it
        try:
            if not isinstance(error, PeerFailed):
                gone = store_gone("process_group()")
                ours = clerk.within(STORE_SECONDS, lambda: first.publish(self._rank, error), gone) or ours
        except Exception:  # the store is gone: nobody can be told
            ours = True
        self._stop()
        bounded(cut_all_groups, BOUND)
        bounded(self._farewell, FAREWELL)
        self._destroy()
        if ours or first.known is None:
            return None
        self._follow(first.known)
        time.sleep(AFTER)
        return first.known

    def _farewell(self) -> None:
        """Until all know: this process may keep the store."""
        first, end = self._first, time.monotonic() + FAREWELL
        assert first is not None
        first.acknowledge()
        while not first.all_know() and time.monotonic() < end:
            time.sleep(0.05)

    def _stop(self) -> None:
        self._left.set()
        if self._errand:
            self._errand.stop()
        failure.active = None

    def _destroy(self) -> None:
        import torch.distributed as dist

        find.forget()
        if dist.is_initialized():
            bounded(dist.destroy_process_group, BOUND)


def process_group(backend: str | None = None, *, grace: float | None = 30.0, **how: Any) -> Together:
    """`with process_group("nccl", timeout=…):` the process group within, made and destroyed.

    Takes what init_process_group takes. An exception on any rank, in init_process_group too, is published, the rank's
    groups are closed, and all other ranks leave at once with PeerFailed, which holds the first rank's traceback. A rank
    whose main thread does not come out in `grace` seconds (None: never) is ended by os._exit(1).

    Where a group exists already (a library made it), `process_group()` watches over that one, and destroys it only on an
    exception. Outside of a distributed job (no RANK and WORLD_SIZE, nothing told) it makes none, and does nothing.
    """
    return Together(backend, grace=grace, **how)


def cut_all_groups() -> None:
    """Whatever waits for a collective, here or on another rank, fails now."""
    dist = sys.modules["torch.distributed"]
    find.cut_all("another rank failed")
    groups = list(dist.distributed_c10d._world.pg_names)
    for group in groups:
        quietly(partial(cut, group))
    abort_nccl(dist, groups)


def abort_nccl(dist: Any, groups: list[Any]) -> None:
    """All communicators within one ncclGroup, newest first, as torch 2.13 does it (_abort_process_group)."""
    backends = []
    for group in groups:
        try:
            backend = group._get_backend(sys.modules["torch"].device("cuda"))
        except RuntimeError:
            continue
        if type(backend).__name__ == "ProcessGroupNCCL":
            backends.append(backend)
    if backends:
        backends[0]._group_start()
        for backend in reversed(backends):
            quietly(backend.abort)
        backends[0]._group_end()


def quietly(act: Callable[[], Any], otherwise: Any = None) -> Any:
    try:
        return act()
    except Exception:
        return otherwise


def bounded(act: Callable[[], Any], seconds: float) -> None:
    """Done, or left to itself after `seconds`."""
    thread = threading.Thread(target=lambda: quietly(act), name="whichrank-guard-bounded", daemon=True)
    thread.start()
    thread.join(seconds)
