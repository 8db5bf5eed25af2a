"""Work of one rank while the others wait: on gloo, told of its progress, out of reach of the training's own timeout."""

from __future__ import annotations

import functools
import json
import math
import pickle
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from . import circle as circles
from . import clerk, failure
from . import find as found
from .circle import Circle
from .errors import GuardError
from .flags import PATIENCE
from .meeting import meet, opened
from .place import leave, phase, place

LIMIT = 6 * 3600.0  # seconds that the work of one rank may take
SILENCE = 300.0  # seconds without a sign of life of the rank that works
BEAT = 1.0  # seconds between two signs
AT_ONCE = 5.0  # seconds in which those that wait already are told of a failure
SHARED = 64 << 20  # bytes of a result that all get

P = ParamSpec("P")
T = TypeVar("T")


class Turn:
    """`with rank_zero_first() as turn:` first rank 0 does what is within, then all others do it.

    `turn.progress("42 %")` is what the others, and the log, are told. What rank 0 raises within is raised on all.
    """

    def __init__(self, group: Any = None, limit: float = LIMIT, silence: float = SILENCE, timeout: float = PATIENCE):
        self._how = (group, limit, silence, timeout)
        self._circle: Circle | None = None
        self._outer: Circle | None = None
        self._work: _Work | None = None
        self._call = ""
        self._phase: Any = None

    @property
    def first(self) -> bool:
        """Is this the rank that goes first, or is there no other?"""
        around = self._circle or self._outer
        return around is None or around.me == 0

    def progress(self, text: str) -> None:
        if self._work:
            self._work.note = str(text)

    def __enter__(self) -> Turn:
        group, limit, silence, timeout = self._how
        self._call = f"rank_zero_first() at {place()}"
        if _nested(group):
            self._outer = found.standing(group)  # that one keeps the order already
            return self
        self._circle = found.find(group, self._call, timeout)
        if self._circle is None:
            return self
        meet(self._circle, "rank_zero_first", self._call, b"", _nothing, timeout)
        if self._circle.me == 0:
            self._work = _Work(self._circle, self._call)
        else:
            _wait(self._circle, self._call, limit, silence)
            self._circle.busy = self._call
        self._phase = phase("rank_zero_first")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(self._phase)
        around, self._circle = self._circle, None
        if around is None:
            return
        _, limit, _, timeout = self._how
        around.busy = ""
        if self._work is not None:
            work, self._work = self._work, None
            if error is not None:
                work.failed(error)
                return
            work.done(b"", timeout)
        said = b"" if error is None else json.dumps(around.tell_failure(error)).encode()
        try:
            failed = meet(around, "rank_zero_first: its end", self._call, said, _first_failure, limit)
        except GuardError:
            if error is None:
                raise
            return
        if failed and error is None:
            raise failure.peer_failed(json.loads(failed))


def rank_zero_first(
    group: Any = None, *, limit: float = LIMIT, silence: float = SILENCE, timeout: float = PATIENCE
) -> Turn:
    """Rank 0 of the group does the body of the `with` first, then all others, at once: they find what it left.

    group: the world by default; a group of the ranks of one node gives one first rank per node. limit: seconds that the
    work may take. silence: seconds without any sign of life of rank 0 after which the others give up (a process that
    ends is noticed at once; one that keeps the GIL gives no sign). timeout: seconds for all to come here, before which the
    work does not begin. All leave together. Outside of a distributed job the body just runs.
    """
    return Turn(group, limit, silence, timeout)


@overload
def rank_zero_only(function: Callable[P, T], /) -> Callable[P, T]: ...


@overload
def rank_zero_only(
    *, group: Any = ..., share: bool = ..., limit: float = ..., silence: float = ..., timeout: float = ...
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def rank_zero_only(
    function: Callable[..., Any] | None = None,
    /,
    *,
    group: Any = None,
    share: bool = True,
    limit: float = LIMIT,
    silence: float = SILENCE,
    timeout: float = PATIENCE,
) -> Any:
    """A function that only rank 0 runs, while the others wait for it; all return what it returned, raise what it raised.

    share=False: the others return None, for results that cannot or need not be pickled. The limits are those of
    rank_zero_first. All ranks must call it.
    """
    if function is None:
        return functools.partial(_decorated, group=group, share=share, limit=limit, silence=silence, timeout=timeout)
    return _decorated(function, group=group, share=share, limit=limit, silence=silence, timeout=timeout)


def _decorated(
    function: Callable[..., Any], *, group: Any, share: bool, limit: float, silence: float, timeout: float
) -> Callable[..., Any]:
    name = getattr(function, "__name__", "work")

    @functools.wraps(function)
    def alone(*args: Any, **kwargs: Any) -> Any:
        call = f"rank_zero_only {name}() at {place()}"
        if _nested(group, only=True):
            return function(*args, **kwargs)
        around = found.find(group, call, timeout)
        if around is None:
            return function(*args, **kwargs)
        meet(around, f"rank_zero_only {name}", call, b"", _nothing, timeout)
        if around.me != 0:
            got = _wait(around, call, limit, silence)
            return pickle.loads(got) if share else None  # from our own rank 0
        work = _Work(around, call)
        entered = phase(name)
        try:
            result = function(*args, **kwargs)
            packed = _packed(result, call) if share else b""
        except BaseException as error:
            work.failed(error)
            raise
        finally:
            leave(entered)
        work.done(packed, timeout)
        return result

    return alone


def _packed(result: Any, call: str) -> bytes:
    try:
        packed = pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        text = f"{call}: what it returns cannot be pickled for the others ({error}): return a path, or use share=False"
        raise GuardError(text) from error
    if len(packed) > SHARED:
        text = (
            f"{call}: what it returns is {len(packed) >> 20} MiB, too much to send to all (64 MiB): return a path, or"
        )
        raise GuardError(text + " use share=False")
    return packed


def _nested(group: Any, only: bool = False) -> bool:
    """Is this rank within such work of the same ranks? Then the outer one has ordered it already."""
    around = found.standing(group)
    if around is None or not around.busy:
        return False
    return not only or (around.me == 0 and around.busy.startswith("rank_zero_only"))


class _Work:
    """Rank 0 at work: the clerk says that it lives and how far it is."""

    def __init__(self, around: Circle, call: str) -> None:
        self.note = ""
        self._circle = around
        self._call = around.busy = call
        self._begun = time.monotonic()
        self._beats = 0
        self._errand = clerk.every(BEAT, self._beat)

    def _beat(self) -> None:
        self._beats += 1
        said = {"calls": self._circle.calls, "beat": self._beats, "note": self.note[:200]}
        said["seconds"] = round(time.monotonic() - self._begun)
        self._circle.store.set("beat", json.dumps(said))

    def done(self, result: bytes, seconds: float) -> None:
        """All others get it; who is not there yet is waited for."""
        self._send(b"+" + result, seconds)

    def failed(self, error: BaseException) -> None:
        said = self._circle.tell_failure(error)
        try:
            self._send(b"!" + json.dumps(said).encode(), AT_ONCE)
        except GuardError:  # who comes later finds it in the store
            pass

    def _send(self, answer: bytes, seconds: float) -> None:
        around = self._circle
        self._errand.stop()
        around.busy = ""
        around.begin_wait(self._call)
        end = time.monotonic() + seconds
        try:
            works = [work for index in range(1, len(around.ranks)) for work in around.start_send(index, answer)]
            for work in works:
                work.wait(circles.left(end))
        except RuntimeError as error:
            raise around.failed(error, seconds) from None
        finally:
            if not around.broken:
                around.end_wait()


class _Watch:
    """Those who wait: the clerk listens for rank 0's signs, passes them on, and ends the wait when there are none."""

    def __init__(self, around: Circle, call: str, silence: float) -> None:
        self._circle = around
        self._call = call
        self._silence = silence
        self._last: Any = None
        self._heard = time.monotonic()
        self._told = circles.TELL
        self.silent = False
        self._errand = clerk.every(BEAT, self._listen)
        self._over = threading.Event()
        threading.Thread(target=self._limit, name="whichrank-guard-watch", daemon=True).start()

    def stop(self) -> None:
        self._errand.stop()
        self._over.set()

    def _listen(self) -> None:
        around = self._circle
        said = json.loads(around.store.get("beat")) if around.store.check(["beat"]) else {}
        if said.get("calls") != around.calls or said["beat"] == self._last:
            return
        self._last, self._heard = said["beat"], time.monotonic()
        around.tell_at(math.inf)
        if around.me == 1 and said["seconds"] >= self._told:
            self._told = said["seconds"] + circles.TELL
            note = f": {said['note']}" if said["note"] else ""
            text = f"rank {around.ranks[0]} is at work in {self._call} for {said['seconds']} s{note}"
            around.say(f"{text}; {len(around.ranks) - 1} wait for it")

    def _limit(self) -> None:
        """Not the clerk's: rank 0 may be the one that keeps the store, and the clerk then waits for its answer."""
        while not self._over.wait(0.5):
            if time.monotonic() - self._heard > self._silence:
                self.silent = True
                self._circle.close(f"no sign of life of rank {self._circle.ranks[0]} in {self._call}")
                return


def _wait(around: Circle, call: str, limit: float, silence: float) -> bytes:
    """Until rank 0 has done its work: what it sent."""
    around.begin_wait(call)
    watch = _Watch(around, call, silence)
    entered = phase("waits for rank 0")
    try:
        return opened(around.receive(0, limit))
    except GuardError:
        raise
    except RuntimeError as error:
        if watch.silent:
            text = f"{call}: no sign of life of rank {around.ranks[0]} for {silence:.0f} s: its host is gone, it is"
            raise GuardError(text + " stopped, or holds the GIL all the time (then: silence=…).") from None
        raise around.failed(error, limit) from None
    except BaseException as error:  # Ctrl-C, or SIGTERM made an exception
        around.close(f"{type(error).__name__} in {call}")
        raise
    finally:
        leave(entered)
        watch.stop()
        if not around.broken:
            around.end_wait()


def _nothing(said: list[bytes]) -> bytes:
    """All are there, for the same: rank 0 may begin."""
    return b""


def _first_failure(said: list[bytes]) -> bytes:
    return next((data for data in said if data), b"")
