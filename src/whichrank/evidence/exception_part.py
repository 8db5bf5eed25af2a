"""One exception of a traceback, as a fact: where in the user's own code, whose it is, whether it is out of memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from whichrank.evidence.scan import Row
from whichrank.facts import NOBODY, Fact, Identity

LONGEST = 2000  # characters of a message that are kept
_LIBRARY = re.compile(
    r"site-packages/|dist-packages/|/lib(?:64)?/python3|/python3\.\d+/[\w/]+\.py|/torch/|^<|/pytorch/torch/"
)
_LAUNCHER = re.compile(
    r"torch/distributed/run\.py|torch/distributed/launch(?:er/api)?\.py|torch/distributed/elastic/(?!multiprocessing/errors)"
    r"|accelerate/commands/|deepspeed/launcher/|ray/_private/(?:worker|client_mode_hook|auto_init_hook)\.py|torch/multiprocessing/spawn\.py:\d+ (?:join|spawn|start_processes)|lightning/fabric/strategies/launchers/"
)
_LAUNCHER_TYPE = re.compile(
    r"ChildFailedError|SignalException|ProcessExitedException|ProcessRaisedException|^ray\.exceptions\."
)
_STARTS_PYTHON = re.compile(r"python[\d.]*\b|\b(?:torchrun|accelerate|deepspeed|srun|mpirun)\b")
_OOM = re.compile(r"(?:CUDA|HIP)(?: error:)? out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED")
_HOST_MEMORY = re.compile(r"\bCPU\b|DefaultCPUAllocator|^ray\.")
_TRIED = re.compile(r"Tried to allocate ([\d.]+ ?[KMGT]i?B)")


@dataclass(slots=True)
class Part:
    """One traceback of a chain."""

    row: Row
    frames: list[str] = field(default_factory=list)
    type: str = ""
    message: str = ""
    last_error: str | None = None
    known: dict[str, Any] = field(default_factory=dict)
    who: Identity = NOBODY

    def fact(self) -> Fact | None:
        values: dict[str, Any] = {"message": self.message[:LONGEST], "frames": self.frames}
        if self.type:
            values["type"] = self.type
        elif len(self.frames) < 1 or self.known.get("headless"):
            return None
        else:
            values["cut"] = True
        if site := site_of(self.frames):
            values["site"] = site
        if self.last_error:
            values["last_error"] = self.last_error
        if is_launcher(self.type, self.frames, self.message):
            values["launcher"] = True
        values.update((name, value) for name, value in self.known.items() if name != "headless")
        whole = f"{self.type}: {self.message}"
        kind = "cuda_oom" if _OOM.search(whole) and not _HOST_MEMORY.search(whole) else "exception"
        if kind == "cuda_oom" and (tried := _TRIED.search(self.message)):
            values["tried"] = tried[1]
        return self.row.fact(kind, who=self.who, **values)


def site_of(frames: list[str]) -> str | None:
    """Where in the user's own code: the innermost frame that belongs to no library, else the innermost.

    >>> site_of(["/w/train.py:3 main", "/v/site-packages/torch/nn/modules/module.py:1 forward"])
    '/w/train.py:3 main'
    """
    own = [frame for frame in frames if not is_library(frame)]
    return (own or frames)[-1] if frames else None


def is_library(frame: str) -> bool:
    """Does a frame ("file:line …") belong to an installed package, or to Python itself?"""
    return bool(_LIBRARY.search(frame))


def is_launcher(type_: str, frames: list[str], message: str) -> bool:
    """Is this the launcher's own traceback, which only reports what happened to its children?"""
    if type_.endswith("CalledProcessError") and (not frames or _STARTS_PYTHON.search(message)):
        return True  # any program may run others; a launcher runs Python
    return (
        bool(_LAUNCHER_TYPE.search(type_))
        or any(_LAUNCHER.search(frame) for frame in frames[-3:])
        or any("torch/distributed/launcher/api.py" in frame for frame in frames)
    )
