"""CUDA's and HIP's errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import essence, facts_of, one, survivors

CASES = [
    ("torch.AcceleratorError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error", True),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", True),
    ("RuntimeError: CUDA error: an uncorrectable NVLink error was detected during the execution", True),
    ("RuntimeError: CUDA error: unspecified launch failure", False),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", False),
    ("RuntimeError: CUDA error: the launch timed out and was terminated", False),
    ("RuntimeError: CUDA error: device-side assert triggered", False),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(handle)`", False),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", False),
    ("RuntimeError: HIP error: the operation cannot be performed in the present state", False),
    ("RuntimeError: No CUDA GPUs are available", False),
    ("Memory access fault by GPU node-2 (Agent handle: 0x55) on address 0x7f. Reason: Unknown.", False),
    ("cudaErrorECCUncorrectable in kernel launch", True),
]


@pytest.mark.parametrize(("line", "hardware"), CASES)
def test_error(line: str, hardware: bool) -> None:
    fact = one(f"[rank9]: {line}", "cuda_error")
    assert (fact.rank, fact["hardware"]) == (9, hardware)
    assert fact["message"]


def test_watchdog_reports_it() -> None:
    line = "[rank1]:[E1 05:41:18.3 ProcessGroupNCCL.cpp:1896] [PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered"
    assert (one(line, "cuda_error").rank, one(line, "cuda_error")["message"]) == (
        1,
        "an illegal memory access was encountered",
    )


def test_name_follows() -> None:
    fact = one(
        "[rank9]: Search for `cudaErrorContained' in https://docs.nvidia.com/cuda/ for more information.", "cuda_error"
    )
    assert (fact["name"], fact["hardware"], fact["echo"]) == ("cudaErrorContained", True, True)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: out of memory",
        "CUDA kernel errors might be asynchronously reported at some other API call",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    ],
)
def test_no_error_of_its_own(line: str) -> None:
    assert not [fact for fact in facts_of(line) if fact.kind == "cuda_error"]


def threads(rank: int) -> list[str]:
    return [
        f"[rank{rank}]: /pytorch/aten/src/ATen/native/cuda/Loss.cu:250: nll_loss: block: [0,0,0], thread: [{thread},0,0] Assertion `t >= 0 && t < n_classes` failed."
        for thread in range(5)
    ]


def test_assertions_of_many_threads() -> None:
    mixed = [line for pair in zip(threads(1), threads(4), strict=True) for line in pair]
    found = [fact for fact in facts_of("\n".join(mixed)) if fact.kind == "cuda_error"]
    assert [(fact.rank, fact["count"], fact["message"]) for fact in found] == [
        (rank, 5, "Loss.cu:250: Assertion `t >= 0 && t < n_classes` failed") for rank in (1, 4)
    ]


@given(st.integers(0, 2**32))
def test_other_lines_do_not_matter(seed: int) -> None:
    lines = [f"[rank9]: {line}" for line, _ in CASES] + threads(2)
    assert survivors(lines, seed) >= {repr(essence(fact)) for fact in facts_of("\n".join(lines))}
