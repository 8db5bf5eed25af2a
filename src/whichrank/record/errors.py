"""The last exception that nobody caught, kept before the hook of the training, or Python's own, prints it."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from types import TracebackType
from typing import Any

from .ring import Ring

FRAMES = 60
ring: Ring | None = None
_told = False


def install(target: Ring) -> None:
    """Chained: whatever hook was there is called as before."""
    global ring
    if ring is None:
        sys.excepthook = _chained(sys.excepthook)
        if hasattr(threading, "excepthook"):
            threading.excepthook = _thread_chained(threading.excepthook)
    ring = target


def _chained(before: Any) -> Any:
    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        _keep(kind, error, trace, True, "MainThread")
        return before(kind, error, trace)

    return excepthook


def _thread_chained(before: Any) -> Any:
    def excepthook(args: Any) -> Any:
        if args.exc_type is not SystemExit:
            name = getattr(args.thread, "name", None) or "a thread"
            _keep(args.exc_type, args.exc_value, args.exc_traceback, False, name)
        return before(args)

    return excepthook


def _keep(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None, main: bool, thread: str
) -> None:
    global _told
    if ring is None:
        return
    try:
        text = "".join(traceback.format_exception(kind, error, trace, limit=-FRAMES))
        ring.raised(time.time_ns(), main, thread, text)
        _told = _told or main
    except Exception:
        pass


def at_exit() -> None:
    """Where the training put a hook of its own in place of ours: Python keeps the last exception all the same."""
    if _told or ring is None:
        return
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, BaseException):
        _keep(type(error), error, error.__traceback__, True, "MainThread")
