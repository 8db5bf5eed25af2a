"""Run a program that may hang, within a hard limit: what it printed until then, and it is left behind.

A process that waits for a dead mount cannot be killed: it is told to die and not waited for.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MOST = 8 << 20  # bytes of output


@dataclass(frozen=True, slots=True)
class Ran:
    """`code` is None if it did not end in time, or could not be started (then `error` says why)."""

    out: bytes
    code: int | None
    seconds: float
    error: str = ""

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace")


def run(command: Sequence[str], seconds: float, env: Mapping[str, str] | None = None, quiet: bool = True) -> Ran:
    """quiet: what it says on standard error is thrown away, else it comes with the output."""
    began = time.monotonic()
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else subprocess.STDOUT,
            env=env,
            start_new_session=True,
            preexec_fn=_plain,
        )
    except OSError as error:
        return Ran(b"", None, 0.0, error.strerror or str(error))
    out = _read(child, began + seconds)
    code = _end(child, began + seconds)
    return Ran(out, code, time.monotonic() - began)


def _plain() -> None:
    """In the child: signals as usual, and after the job in the queue for the processor."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.nice(5)


def _read(child: subprocess.Popen[bytes], until: float) -> bytes:
    assert child.stdout is not None
    fd = child.stdout.fileno()
    out = bytearray()
    while (left := until - time.monotonic()) > 0:
        if not select.select([fd], [], [], left)[0]:
            break
        data = os.read(fd, 1 << 16)
        if not data:
            break
        if len(out) < MOST:
            out += data
    child.stdout.close()
    return bytes(out)


def _end(child: subprocess.Popen[bytes], until: float) -> int | None:
    while time.monotonic() < until:
        if (code := child.poll()) is not None:
            return code
        time.sleep(0.005)
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    time.sleep(0.02)
    child.poll()
    return None


def all_at_once(seconds: float, *work: Callable[[], None]) -> None:
    """Each in a thread of its own, waited for up to so long each."""
    threads = [threading.Thread(target=one, daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
