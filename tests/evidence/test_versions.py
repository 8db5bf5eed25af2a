"""Versions and limits of hosts."""

from __future__ import annotations

from typing import Any

import pytest
from reading import facts_of


def told(text: str) -> list[tuple[Any, ...]]:
    return [(fact.who.host, fact["what"], fact["value"]) for fact in facts_of(text, "v.txt") if fact.kind == "version"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("torch==2.4.0+cu121\nnumpy==1.26.4\nnvidia-nccl-cu12==2.20.5", [(None, "torch", "2.4.0+cu121"), (None, "nccl", "2.20.5")]),
        ("gx-1: torch==2.4.0\ngx-2: torch==2.5.1", [("gx-1", "torch", "2.4.0"), ("gx-2", "torch", "2.5.1")]),
        ("Package                  Version\n------------------------ -----------\ntorch                    2.4.0+cu121\ntorchvision              0.19.0", [(None, "torch", "2.4.0+cu121")]),
        ("pytorch                   2.4.0           py3.11_cuda12.1_cudnn9_0    pytorch", [(None, "torch", "2.4.0")]),
        ("PyTorch version: 2.5.1+cu124\nPython version: 3.11.9\nNvidia driver version: 550.54.15\n[pip3] nvidia-nccl-cu12==2.21.5\n[pip3] torch==2.5.1", [(None, "torch", "2.5.1+cu124"), (None, "driver", "550.54.15"), (None, "nccl", "2.21.5"), (None, "torch", "2.5.1")]),
        ("| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |", [(None, "driver", "550.54.15")]),
        ("Cuda compilation tools, release 12.1, V12.1.66", [(None, "nvcc", "12.1.66")]),
        ("max locked memory           (kbytes, -l) 8192", [(None, "memlock_kb", 8192)]),
        ("max locked memory       (kbytes, -l) unlimited", [(None, "memlock_kb", "unlimited")]),
        ("Max locked memory         8388608              8388608              bytes     ", [(None, "memlock_kb", 8192)]),
    ],
)  # fmt: skip
def test_what_is_installed(text: str, want: list[tuple[Any, ...]]) -> None:
    assert told(text) == want


@pytest.mark.parametrize(
    "text",
    [
        "Requirement already satisfied: torch==2.4.0",
        "pip install torch==2.4.0 numpy",
        "torch>=2.4",
        "we need torch   2.4 or newer, and accelerate   1.0 does not",
        "Collecting accelerate==1.0.1 (from -r requirements.txt)",
    ],
)
def test_what_is_wished_for_is_not_installed(text: str) -> None:
    assert told(text) == []
