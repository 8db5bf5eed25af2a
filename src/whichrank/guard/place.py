"""Where in the training a guard was called, and a phase of the recorder around it, where one records."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

BETWEEN = (str(Path(__file__).parent), contextlib.__file__, functools.__file__)


def caller() -> FrameType | None:
    """The first frame that is not of this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(BETWEEN):
        frame = frame.f_back
    return frame


def place() -> str:
    """Its `train.py:41`."""
    frame = caller()
    if frame is None:
        return "?"
    return f"{frame.f_code.co_filename.rpartition(os.sep)[2]}:{frame.f_lineno}"


def phase(name: str) -> Any:
    """The recorder's phase of this name, entered. None where nothing records: this package imports no other of ours."""
    recorder = sys.modules.get("_whichrank_record") or sys.modules.get("whichrank.record")
    if recorder is None:
        return None
    entered = recorder.phase(name)
    entered.__enter__()
    return entered


def leave(entered: Any) -> None:
    if entered is not None:
        entered.__exit__(None, None, None)


class Phases:
    """One phase at a time, for callbacks, which are told where something begins or where it ends, seldom both."""

    def __init__(self) -> None:
        self._now: Any = None

    def now(self, name: str = "") -> None:
        """From here on it is this one; none without a name."""
        leave(self._now)
        self._now = phase(name) if name else None
