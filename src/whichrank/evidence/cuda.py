"""Errors of the GPU as the process sees them: CUDA, cuBLAS, cuDNN, HIP, asserts in kernels.

`hardware` marks what only broken or lost hardware causes. An illegal access, a launch failure and an assert are the
program's own, or cannot be told apart from that. Out of memory is read by python_errors.

>>> from whichrank.evidence.sample import facts
>>> error, = facts(READER, "[rank9]: torch.AcceleratorError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error")
>>> error.rank, error["hardware"]
(9, True)
>>> facts(READER, "RuntimeError: CUDA error: unspecified launch failure")[0]["hardware"]
False
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from whichrank.evidence.scan import Line, Reader, Row, State
from whichrank.facts import Fact

_HARDWARE = re.compile(
    r"\bECC\b|uncorrectable|contained|nvlink|fallen off|GPU is lost|hardware error|EccUncorrectable|cudaErrorContained|NvlinkUncorrectable|HSA_STATUS_ERROR_MEMORY_FAULT|RAS error|tensix|MMU",
    re.I,
)
# What the name of an error (`cudaErrorXxx`) says where its text is missing.
_NAMES = {
    "cudaErrorECCUncorrectable": "uncorrectable ECC error encountered",
    "cudaErrorContained": "Invalid access of peer GPU memory over nvlink or a hardware error",
    "cudaErrorNvlinkUncorrectable": "uncorrectable NVLink error detected during the execution",
    "cudaErrorIllegalAddress": "an illegal memory access was encountered",
    "cudaErrorLaunchFailure": "unspecified launch failure",
    "cudaErrorLaunchTimeout": "the launch timed out and was terminated",
    "cudaErrorAssert": "device-side assert triggered",
}


def _judge(values: dict[str, Any]) -> None:
    """Is the hardware to blame?"""
    name = values.get("name")
    values["message"] = str(values.get("message") or _NAMES.get(str(name), name or "")).strip(" .")
    values["hardware"] = bool(_HARDWARE.search(f"{values['message']} {name or ''}"))


LINES = (
    Line(
        "cuda_error",
        ("CUDA error: ", "HIP error: ", "CUDA driver error: ", "cuDNN error: ", "MIOpen Error: "),
        r"(?P<source>CUDA|HIP|CUDA driver|cuDNN|MIOpen) [Ee]rror: (?!out of memory|.*OutOfMemory|.*ALLOC_FAILED)(?P<message>[^\n]+?)(?= CUDA kernel errors might| Compile with|$)",
        tidy=_judge,
    ),
    # `Search for cudaErrorXxx in …` follows the error: it gives its name.
    Line("cuda_error", "Search for ", r"Search for [`'](?P<name>(?:cuda|hip)Error\w+)'", {"echo": True}, _judge),
    Line(
        "cuda_error",
        ("cudaError", "hipError"),
        r"^(?!.*(?:Search for|CUDA error|HIP error|NCCL (?:WARN|INFO)))[^#]*?\b(?P<name>(?:cuda|hip)Error(?!MemoryAllocation|OutOfMemory|s?\b)[A-Z]\w+)\b",
        tidy=_judge,
    ),
    Line(
        "cuda_error",
        ("No CUDA GPUs are available", "CUDA unknown error", "No HIP GPUs are available"),
        r"RuntimeError: (?P<message>(?:No (?:CUDA|HIP) GPUs are available|CUDA unknown error).*)",
        tidy=_judge,
    ),
    Line(
        "cuda_error",
        ("Memory access fault by GPU", "HW Exception by GPU"),
        r"(?P<message>(?:Memory access fault|HW Exception) by GPU .*)",
        {"source": "HIP"},
        _judge,
    ),
    Line(
        "cuda_error",
        "Aborting with error : HSA",
        r"Aborting with error : (?P<message>HSA_STATUS_\w+.*)",
        {"source": "HIP"},
        _judge,
    ),
)


class Assertion:
    """An assert within a kernel: every thread prints a line. One fact, with their count.

    >>> from whichrank.evidence.sample import facts
    >>> thread = "/pytorch/aten/src/ATen/native/cuda/Loss.cu:250: nll: block: [0,0,0], thread: [{},0,0] Assertion `t >= 0` failed."
    >>> error, = facts(READER, thread.format(3) + "\\n" + thread.format(4))
    >>> error["message"], error["count"]
    ('Loss.cu:250: Assertion `t >= 0` failed', 2)
    """

    anchors = ("Assertion `",)
    _line = re.compile(
        r"(?:^|[\s/])(?P<file>[\w.]+\.(?:cuh?|h|cpp|hip)):(?P<line>\d+): .*thread: \[[\d,]+\] Assertion `(?P<what>.*?)` failed"
    )

    def start(self, row: Row) -> State | None:
        match = self._line.search(row.text)
        return Threads(row, f"{match['file']}:{match['line']}: Assertion `{match['what']}` failed") if match else None


class Threads:
    def __init__(self, row: Row, message: str) -> None:
        self.row, self.message, self.count = row, message, 1

    def take(self, row: Row) -> bool | None:
        if "Assertion `" not in row.text:
            return None
        match = Assertion._line.search(row.text)
        same = (
            bool(match)
            and match is not None
            and f"{match['file']}:{match['line']}: Assertion `{match['what']}` failed" == self.message
        )
        self.count += same
        return same or None

    def facts(self) -> Iterable[Fact]:
        yield self.row.fact("cuda_error", message=self.message, count=self.count, hardware=False, source="CUDA")


READER = Reader(
    "cuda",
    LINES,
    (Assertion(),),
    title="CUDA, HIP, cuBLAS, cuDNN errors",
    versions="the texts of the CUDA and HIP runtimes, as PyTorch 1 and 2 quote them",
    collect=("torchrun --log-dir LOGS --redirects 3 …",),
)
