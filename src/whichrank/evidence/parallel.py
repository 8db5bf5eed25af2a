"""The same work for many files, by other processes where that pays."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor
from functools import partial
from typing import TypeVar

# An executor, or what makes one once it is needed (and which is then shut down here).
Workers = Executor | Callable[[], Executor] | None
T = TypeVar("T")
R = TypeVar("R")


def processes() -> Executor:
    """A process for each core that this process may use."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Forked, a worker has the readers' tables at once. Elsewhere than on Linux that is not safe.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    return ProcessPoolExecutor(cores, context, _quiet)


def _quiet() -> None:
    """Ctrl-C reaches every process of the terminal: the first one says so, the others go without a word.

    Where the first one is killed, Linux ends the others with it.
    """
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    if sys.platform == "linux":
        try:
            import ctypes

            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        except (ImportError, OSError, AttributeError):  # a C library without it: they end with their file
            pass


def _batch(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    return [work(item) for item in items]


def each(work: Callable[[T], R], items: Sequence[T], workers: Workers) -> Iterator[R]:
    """`work` of each item, in their order. What workers cannot finish (killed, out of memory) is done here."""
    if workers is None:
        yield from map(work, items)
        return
    executor = workers if isinstance(workers, Executor) else workers()
    done = 0
    try:
        try:
            size = 1 + len(items) // 64
            batches = [items[at : at + size] for at in range(0, len(items), size)]
            for results in executor.map(partial(_batch, work), batches):
                for result in results:
                    yield result
                    done += 1
        except BrokenExecutor:
            yield from map(work, items[done:])
            done = len(items)
    finally:
        if not isinstance(workers, Executor):
            if done < len(items):  # interrupted: at exit Python would wait for what they are reading now
                for process in list((getattr(executor, "_processes", None) or {}).values()):
                    process.kill()
            executor.shutdown(wait=False)
