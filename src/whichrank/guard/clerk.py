"""One thread of each rank that does what must go on while the main thread waits or works: short talks with the store."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
TICK = 0.25  # seconds
STORE_SECONDS = 10.0  # how long one talk with the store may take


class Errand:
    """Something to be done again and again, `every` seconds, until `stop`."""

    __slots__ = ("every", "next", "run")

    def __init__(self, every: float, run: Callable[[], object]) -> None:
        self.every = every
        self.run = run
        self.next = time.monotonic() + every

    def stop(self) -> None:
        if self in _errands:
            _errands.remove(self)


_errands: list[Errand] = []
_ended = threading.Event()
_thread: threading.Thread | None = None
_pid = 0


def every(seconds: float, run: Callable[[], object]) -> Errand:
    global _thread, _pid
    if _pid != os.getpid():  # a child of fork has no thread, and other errands
        _errands.clear()
        _ended.clear()
        _pid, _thread = os.getpid(), threading.Thread(target=_work, name="whichrank-guard", daemon=True)
        _thread.start()
        atexit.register(_end)
    errand = Errand(seconds, run)
    _errands.append(errand)
    return errand


def _work() -> None:
    while not _ended.wait(TICK):
        for errand in list(_errands):
            now = time.monotonic()
            if errand.next <= now:
                errand.next = now + errand.every
                try:
                    errand.run()
                except Exception:  # the store is gone, or slow: whoever waits has a limit of its own
                    pass


def _end() -> None:
    """Before the interpreter goes: a thread that comes back from C++ later would end the process with a crash."""
    _ended.set()
    if _thread is not None and _pid == os.getpid():
        _thread.join(STORE_SECONDS)


def within(seconds: float, act: Callable[[], T], otherwise: Exception) -> T:
    """What `act` returns or raises; `otherwise` raised if that takes longer: a store on a host that is stopped, or gone
    without a word, does not answer, and torch's client waits for it without a limit."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.extend((True, act()))
        except BaseException as error:
            found.extend((False, error))

    thread = threading.Thread(target=run, name="whichrank-guard-talk", daemon=True)
    thread.start()
    thread.join(seconds)
    if len(found) < 2:
        raise otherwise
    if not found[0]:
        raise found[1]
    value: T = found[1]
    return value
