"""The matrix of `nvidia-smi topo -m`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of, one

NEW = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tNV12\tNV12\tPXB\tSYS\t48-63,176-191\t3\t\tN/A\n"
    "GPU1\tNV12\t X \tNV12\tNV12\tPXB\tSYS\t48-63,176-191\t3\t\tN/A\n"
    "GPU2\tNV12\tNV12\t X \tNV12\tSYS\tPXB\t16-31,144-159\t1\t\tN/A\n"
    "GPU3\tNV12\tNV12\tNV12\t X \tSYS\tPXB\t16-31,144-159\t1\t\tN/A\n"
    "NIC0\tPXB\tPXB\tSYS\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tSYS\tPXB\tPXB\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
)
OLD = (
    "        GPU0    GPU1    mlx5_0  CPU Affinity    NUMA Affinity\n"
    "GPU0     X      PHB     NODE    0-31            N/A\n"
    "GPU1    PHB      X      NODE    0-31            N/A\n"
    "mlx5_0  NODE    NODE     X\n"
)


def _values(text: str) -> tuple[object, ...]:
    fact = one(text, "gpu_topology", "bay-2.topo")
    return tuple(fact[name] for name in ("gpus", "adapters", "nvlink_pairs", "links", "alone"))


def test_new_and_old_drivers() -> None:
    assert _values(NEW) == (4, 2, 6, 12, ())
    assert _values(OLD) == (2, 1, 0, 0, ())


def test_a_gpu_without_its_links() -> None:
    lost = NEW.replace("GPU3\tNV12\tNV12\tNV12\t", "GPU3\tSYS\tSYS\tNODE\t")
    lost = lost.replace("X \tNV12\tNV12\tNV12\t", "X \tNV12\tNV12\tSYS\t").replace(
        "X \tNV12\tNV12\tPXB", "X \tNV12\tSYS\tPXB"
    )
    lost = lost.replace("X \tNV12\tSYS\tPXB\t16", "X \tNODE\tSYS\tPXB\t16")
    assert _values(lost)[0] == 4
    assert _values(lost)[4] == (3,)


@pytest.mark.parametrize("keep", [1, 2, 4])
def test_a_matrix_that_is_cut_off_says_nothing(keep: int) -> None:
    assert facts_of("\n".join(NEW.split("\n")[:keep]), "bay-2.topo") == []


def test_one_gpu_is_joined_with_nobody() -> None:
    assert facts_of("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\tN/A\n", "bay-2.topo") == []


def test_access_is_another_matrix() -> None:
    assert facts_of(" \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n", "bay-2.topo") == []


def test_two_hosts_in_one_file() -> None:
    found = facts_of(f"== bay-1 ==\n{NEW}== bay-2 ==\n{NEW}", "topo.txt")
    assert [(fact.who.host, fact["gpus"]) for fact in found] == [("bay-1", 4), ("bay-2", 4)]


@given(st.integers(0, 2**32), st.sampled_from((NEW, OLD)))
def test_survives_noise(seed: int, text: str) -> None:
    found = [essence(fact) for fact in facts_of(disturbed(text.split("\n"), seed), "notes.txt")]
    assert all(essence(fact) in found for fact in facts_of(text, "notes.txt"))


@given(st.integers(0, len(NEW)), st.binary(max_size=6))
def test_damage_raises_nothing(at: int, bytes_: bytes) -> None:
    for fact in facts_of(NEW[:at].encode() + bytes_ + NEW[at + 3 :].encode(), "bay-2.topo"):
        assert fact.kind != "gpu_topology" or fact["gpus"] > 1
