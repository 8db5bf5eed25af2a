"""GPUs: what nvidia-smi and the kernel say of a node, through programs of that name that print recorded forms."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whichrank.preflight import gpus, nccl_perf
from whichrank.preflight.roster import Roster

ROSTER = Roster({0: "a", 1: "a", 2: "b", 3: "b"})
TOPOLOGY = (
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV18\tPIX\t0-23\t0\t\tN/A\nGPU1\tNV18\t X \tNODE\t0-23\t0\t\tN/A\nNIC0\tPIX\tNODE\t X \n"
)
P2P = " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n\nLegend:\n  X    = Self\n  OK   = Status Ok\n"
XID = "[{:.6f}] NVRM: Xid (PCI:0000:81:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


def table(ecc: int = 0, used: int = 4, count: int = 2) -> str:
    rows = (
        f"{at}, NVIDIA H100 80GB HBM3, 00000000:{81 + at}:00.0, 81559, {used}, {ecc if at else 0}, 35"
        for at in range(count)
    )
    return "\n".join(rows) + "\n"


Node = Callable[..., dict[str, Any]]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """What look() finds where these programs print these texts."""

    def look(
        gpu: str = table(), reasons: str = "0, 0x0000000000000001\n1, 0x0000000000000001\n", kernel: str = ""
    ) -> dict[str, Any]:
        answers = {
            "query-gpu=index,name": gpu,
            "query-gpu=index,clocks": reasons,
            "topo -m": TOPOLOGY,
            "topo -p2p": P2P,
        }
        cases = ""
        for place, (words, text) in enumerate(answers.items()):
            (tmp_path / str(place)).write_text(text)
            cases += f'*"{words}"*) exec cat {tmp_path / str(place)} ;;\n'
        (tmp_path / "kernel").write_text(kernel)
        for name, script in (
            ("nvidia-smi", f'case "$*" in\n{cases}*) exit 1 ;;\nesac\n'),
            ("dmesg", f"exec cat {tmp_path / 'kernel'}\n"),
        ):
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return gpus.look()

    return look


def ids(a: dict[str, Any], b: dict[str, Any]) -> list[tuple[str, str, tuple[str, ...]]]:
    found = gpus.judge({"a": a, "b": b}, ROSTER)
    assert all(one.do for one in found)
    return [(one.id, one.grade, one.nodes) for one in found]


def test_sound(node: Node) -> None:
    one = node()
    assert one["topology"]["nvlink_pairs"] == 1 and len(one["gpus"]) == 2
    assert ids(one, node()) == []


def test_no_gpu_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.look() == {}
    assert ids({}, {}) == []


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"gpu": table(ecc=3)}, ("gpu_ecc", "stop")),
        ({"gpu": table(used=40_000)}, ("gpu_in_use", "warn")),
        ({"reasons": "0, 0x0000000000000001\n1, 0x0000000000000048\n"}, ("gpu_throttled", "stop")),
        ({"kernel": XID.format(1.0)}, ("gpu_xid", "stop")),
    ],
)
def test_a_node_that_is_not(node: Node, changed: dict[str, str], wanted: tuple[str, str]) -> None:
    sound = node()
    found = ids(sound, node(**changed))
    assert {(id, grade) for id, grade, _ in found} in ({wanted}, {(wanted[0], "warn")})
    assert {nodes for _, _, nodes in found} == {("b",)}


def test_fewer_gpus_than_the_others(node: Node) -> None:
    found = ids(node(), node(gpu=table(count=1)))
    assert ("gpu_count", "stop") in [(id, grade) for id, grade, _ in found]
    assert ("gpu_too_few", "stop", ("b",)) in found


def test_how_long_ago_an_xid_was() -> None:
    recent, old = gpus.xids(XID.format(990_000.0), 1_000_000.0), gpus.xids(XID.format(1.0), 1_000_000.0)
    assert recent[0]["code"] == 79 and 9_000 < recent[0]["ago"] < 11_000
    for past, grade in ((recent, "stop"), (old, "warn")):
        one = {"present": 2, "gpus": [], "topology": None, "p2p": [], "xids": past}
        assert [found.grade for found in gpus.judge({"a": one}, ROSTER) if found.id == "gpu_xid"] == [grade]


def test_what_the_driver_knows_and_nvidia_smi_does_not() -> None:
    (one,) = gpus.judge({"a": {"present": 8, "silent": True}}, Roster({0: "a"}))
    assert (one.id, one.grade) == ("gpu_silent", "stop")


PERF = """# nThread 1 nGpus 8 minBytes 536870912 maxBytes 536870912 step: 1048576(bytes) warmup iters: 3 iters: 10
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid   6100 on          a device  0 [0000:18:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   6100 on          a device  1 [0000:2a:00] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
   536870912     134217728     float     sum      -1  1445.32   371.4   371.4       0  1448.12   370.7   370.7       0
# Out of bounds values : 0 OK
"""


@pytest.fixture
def perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    def run(text: str, code: int = 0) -> dict[str, Any]:
        (tmp_path / "table").write_text(text)
        (tmp_path / "all_reduce_perf").write_text(f"#!/bin/sh\ncat {tmp_path / 'table'}\nexit {code}\n")
        (tmp_path / "all_reduce_perf").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return nccl_perf.run(2)

    return run


def test_all_reduce_perf(perf: Callable[..., dict[str, Any]]) -> None:
    good = perf(PERF)
    assert (good["busbw"], good["size"], good["gpus"]) == (371.4, 512 << 20, 2)
    assert list(nccl_perf.judge({"a": good, "b": good}, ROSTER)) == []
    slow = perf(PERF.replace("371.4", "92.1"))
    wrong = perf(PERF.replace("371.4       0", "371.4      12"))
    failed = perf("", code=3)
    for one, id in ((slow, "gpu_slow"), (wrong, "gpu_wrong_values"), (failed, "gpu_perf_fails")):
        assert [(found.id, found.nodes) for found in nccl_perf.judge({"a": good, "b": one}, ROSTER)] == [(id, ("b",))]


def test_without_all_reduce_perf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nccl_perf.run(8) == {}
