"""Headings above pasted output."""

from __future__ import annotations

import pytest
from reading import facts_of

from whichrank.evidence.section import Section, heading, may_head

HEADINGS = [
    ("### gx-11: perfquery -x mlx5_0 1", ("gx-11", "perfquery -x mlx5_0 1")),
    ("## node7", ("node7", None)),
    ("### c2n01, c2n04: as c2n02", (None, "as c2n02")),
    ("nd-b$ getent hosts nd-a.mgmt.lab", ("nd-b", "getent hosts nd-a.mgmt.lab")),
    ("user@cn-417 ~ % nvidia-smi", ("cn-417", "nvidia-smi")),
    ("(torch) ops@gx-1:~/runs$ dmesg -T", ("gx-1", "dmesg -T")),
    ("root@gx-1:/var/log# ibstat", ("gx-1", "ibstat")),
    ("[root@cn7 ~]# df -h", ("cn7", "df -h")),
    ("hv-22 $ ibv_devinfo", ("hv-22", "ibv_devinfo")),
    ("kiln:~$ nvidia-smi topo -m", ("kiln", "nvidia-smi topo -m")),
    ("quill-a ~ # ss -ltnp", ("quill-a", "ss -ltnp")),
    ("== gx-11 ==", ("gx-11", None)),
    ("===== host: gx-11 =====", ("gx-11", None)),
    ("----- gx-11 -----", ("gx-11", None)),
    ("gx-11 | CHANGED | rc=0 >>", ("gx-11", None)),
    ("$ ssh gx-11 ibstat mlx5_0", ("gx-11", "ibstat mlx5_0")),
    ("$ ssh -o ConnectTimeout=5 ops@gx-11 'dmesg -T | tail -3'", ("gx-11", "dmesg -T | tail -3")),
    ("$ kubectl exec trainer-0 -- df -h /dev/shm", ("trainer-0", "df -h /dev/shm")),
    ("$ kubectl -n vision exec -it ft-worker-0 -c main -- df -h", ("ft-worker-0", "df -h")),
    ("$ srun -w gx-3 nvidia-smi", ("gx-3", "nvidia-smi")),
    ("$ df -h", (None, "df -h")),
    ("me@login1:~$ srun -N2 train.sh", (None, "srun -N2 train.sh")),
    ("me@login1:~$ cat logs/gx-3.log", (None, "cat logs/gx-3.log")),
    ("nd-b$ cat /etc/hosts", ("nd-b", "cat /etc/hosts")),
]


@pytest.mark.parametrize(("text", "found"), HEADINGS, ids=[text for text, _ in HEADINGS])
def test_headings(text: str, found: tuple[str | None, str | None]) -> None:
    assert heading(text) == found
    assert may_head(text)


@pytest.mark.parametrize(
    "text",
    [
        "### step-3: loss 2.3",
        "=== epoch3 ===",
        "== rank0 ==",
        "=== Training started ===",
        "## Setup: install torch",
        "epoch3 $ loss 2.1",
        "costs 3$ per hour",
        "[rank3]: Traceback (most recent call last):",
        "  3%|▎         | 31/1024 [00:12<06:33,  2.52it/s]",
        ">>> import torch",
        ">>> x1",
        "-- w2",
        "---- 8< ----",
        "100% done",
        "",
    ],
)
def test_no_headings(text: str) -> None:
    assert heading(text) is None


def test_scope() -> None:
    section = Section()
    hosts = []
    for text in (
        "### gx-1: date",
        "$ uptime",
        "$ ssh gx-2 uptime",
        "$ uptime",
        "$ kubectl get pods",
        "### gx-1, gx-2: same",
    ):
        assert section.see(text)
        hosts.append(section.host)
    assert hosts == ["gx-1", "gx-1", "gx-2", "gx-1", None, None]
    assert not section.see("an ordinary line")


def test_every_reader_gets_the_host() -> None:
    text = "$ ssh gx-9 dmesg -T | tail -3\n[Mon Apr 13 22:40:11 2026] NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    assert {fact.who.host for fact in facts_of(text, "after.txt") if fact.kind == "xid"} == {"gx-9"}
