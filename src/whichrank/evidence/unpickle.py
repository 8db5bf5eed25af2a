"""The only place where a pickle is opened: plain data or nothing.

A pickle is a program. This one may build numbers, text, lists, tuples and dictionaries, and may name no class and no
function: everything that could run code is refused at its name. A program of a few bytes can also ask for any amount
of memory; where the system allows it (not on Windows) it gets a bounded multiple of its own size. And it can ask for any amount of
time, by its keys: see pickle_keys.py.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NoReturn

from whichrank.evidence.pickle_keys import trouble

MOST = 256 << 20  # bytes of one pickle
GROWTH = 40  # bytes of memory for each of its bytes: a dump of Flight Recorder takes about 10
LEAST = 256 << 20
_one_at_a_time = Lock()  # the limit is the whole process's: another thread must not take it for the usual one


class Refused(ValueError):
    """Not plain data: damaged, or made to do something else than to be read."""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        shown = re.sub(r"[^\w.]", "?", f"{module}.{name}")[:80]
        raise Refused(f"it asks for {shown}: more than plain data, so it was not opened")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise Refused("it refers to objects outside of it, so it was not opened")


def unpickle(data: bytes) -> Any:
    """The plain data in `data`.

    Raises Refused for anything else: in that case nothing of it has run.
    """
    if len(data) > MOST:
        raise Refused(f"larger than {MOST >> 20} MiB")
    if (wrong := trouble(data)) is not None:
        raise Refused(wrong)
    try:
        with bounded(LEAST + GROWTH * len(data)):
            # Without `peek`, which BytesIO has not, the unpickler reads each few bytes by a call: three times slower.
            return _Plain(io.BufferedReader(io.BytesIO(data), 1 << 18)).load()
    except Refused:
        raise
    except MemoryError:
        raise Refused("it asks for far more memory than its size explains, so it was not opened") from None
    except EOFError:
        raise Refused("it breaks off: the file is cut") from None
    except (pickle.UnpicklingError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        cut = "truncated" in str(error)
        raise Refused("it breaks off: the file is cut" if cut else f"damaged ({type(error).__name__})") from None
    except (RecursionError, OverflowError, UnicodeError, ImportError, BufferError, SystemError):
        raise Refused("damaged") from None


@contextmanager
def bounded(more: int) -> Iterator[None]:
    """While it is open, this process can take only so many bytes more."""
    try:
        import resource

        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
            now = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        yield
        return
    with _one_at_a_time:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = now + more if soft == resource.RLIM_INFINITY else min(soft, now + more)
        try:
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
