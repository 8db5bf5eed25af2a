"""The same work for many files, by other processes where that pays."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from typing import TypeVar

# An executor, or what makes one once it is needed (and which is then shut down here).
Workers = Executor | Callable[[], Executor] | None
T = TypeVar("T")
R = TypeVar("R")


def per_thread(make: Callable[[], T]) -> Callable[[], T]:
    """`make`, called once by each thread that asks: for what learns while it is used, without a lock."""
    made = threading.local()

    def mine() -> T:
        if not hasattr(made, "it"):
            made.it = make()
        return made.it  # type: ignore[no-any-return]

    return mine


def processes() -> Executor:
    """A process for each core that this process may use."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Forked, a worker has the readers' tables at once. Elsewhere than on Linux that is not safe.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    return ProcessPoolExecutor(cores, context, _quiet)


# Of a process of processes(): is it at work, was it told to end?
_working, _ending = threading.Event(), threading.Event()


def _quiet() -> None:
    """Ctrl-C reaches every process of the terminal: the first one says so, the others go without a word.

    Where the first one is killed, Linux ends the others with it.
    """
    signal.signal(signal.SIGINT, _end)
    if sys.platform == "linux":
        try:
            import ctypes

            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        except (ImportError, OSError, AttributeError):  # a C library without it: they end with their file
            pass


def _end(*_: object) -> None:
    """Ends the process while it works, not while it sends: of half a result the pool would await the rest for ever."""
    _ending.set()
    if _working.is_set():
        os._exit(130)


def _batch(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    _working.set()
    if _ending.is_set():
        os._exit(130)
    try:
        return [work(item) for item in items]
    finally:
        _working.clear()


def each(work: Callable[[T], R], items: Sequence[T], workers: Workers) -> Iterator[R]:
    """`work` of each item, in their order. What workers cannot finish (killed, out of memory) is done here."""
    if workers is None:
        yield from map(work, items)
        return
    executor = workers if isinstance(workers, Executor) else workers()
    done = 0
    futures: deque[Future[list[R]]] = deque()
    try:
        try:
            size = 1 + len(items) // 64
            # Not by executor.map: interrupted, it cancels what the thread of a pool then takes for running.
            for at in range(0, len(items), size):
                futures.append(executor.submit(_batch, work, items[at : at + size]))
            while futures:
                for result in futures.popleft().result():
                    yield result
                    done += 1
        except BrokenExecutor:
            yield from map(work, items[done:])
            done = len(items)
    finally:
        if isinstance(workers, Executor):
            for future in futures:
                future.cancel()
        else:
            started = list((getattr(executor, "_processes", None) or {}).values())
            executor.shutdown(wait=False, cancel_futures=True)
            if done < len(items):  # interrupted: at exit Python would wait for what they are reading now
                for process in started:
                    with suppress(OSError):  # it has ended by itself
                        os.kill(process.pid, signal.SIGINT)
