"""Work within a time limit. What does not come back is left behind in a thread or process of its own."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

LARGEST = 1 << 20  # characters of output that are read


def within(seconds: float, work: Callable[[], Any]) -> dict[str, Any]:
    """{"value": …}, {"error": "…"} or {"late": seconds}."""
    got: dict[str, Any] = {}

    def run() -> None:
        try:
            got["value"] = work()
        except Exception as error:
            got["error"] = f"{type(error).__name__}: {error}"

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return dict(got) if got else {"late": seconds}


def command(words: Sequence[str], seconds: float) -> str | None:
    """Standard output of a program, None if it is not there, failed, or did not end in time."""
    try:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError:
        return None
    lines, ended = _lines(child, time.monotonic() + seconds)
    return "".join(lines) if ended == 0 else None


def told(
    module: str, words: Sequence[str], seconds: float, env: Mapping[str, str]
) -> tuple[list[dict[str, Any]], int | None]:
    """Runs a module of ours in a process of its own: the JSON lines that it said, and its exit code.

    None for the code: it did not end in time, and was left behind.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", module, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        start_new_session=True,
    )
    lines, code = _lines(child, time.monotonic() + seconds)
    said = []
    for line in "".join(lines).splitlines():
        with suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict):
                said.append(row)
    return said, code


def _lines(child: subprocess.Popen[bytes], until: float) -> tuple[list[str], int | None]:
    """What it says until it ends or the time is over. A process that waits for a dead mount cannot be killed: not waited for."""
    assert child.stdout is not None
    got = bytearray()
    with selectors.DefaultSelector() as ready:
        ready.register(child.stdout, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0 and len(got) < LARGEST:
            if not ready.select(left):
                break
            data = os.read(child.stdout.fileno(), 1 << 16)
            if not data:
                break
            got += data
    code = None
    with suppress(subprocess.TimeoutExpired):
        code = child.wait(max(0.0, until - time.monotonic()))
    if code is None:
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            child.wait(0.05)
    child.stdout.close()
    return [got.decode("utf-8", "replace")], code
