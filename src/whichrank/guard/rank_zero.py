"""Work of one rank while the others wait: on gloo, told of its progress, out of reach of the training's own timeout."""

from __future__ import annotations

import functools
import json
import pickle
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from . import failure
from . import find as found
from .circle import Circle
from .errors import GuardError
from .flags import PATIENCE
from .meeting import meet
from .place import leave, phase, place
from .working import Work, wait

LIMIT = 6 * 3600.0  # seconds that the work of one rank may take
SILENCE = 300.0  # seconds without a sign of life of the rank that works
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
        self._work: Work | None = None
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
            self._work = Work(self._circle, self._call)
        else:
            wait(self._circle, self._call, limit, silence)
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
            got = wait(around, call, limit, silence)
            return pickle.loads(got) if share else None  # from our own rank 0
        work = Work(around, call)
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


def _nothing(said: list[bytes]) -> bytes:
    """All are there, for the same: rank 0 may begin."""
    return b""


def _first_failure(said: list[bytes]) -> bytes:
    return next((data for data in said if data), b"")
