"""df, mount, iostat, nfsiostat."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of, one

DF = """$ kubectl exec trainer-0 -- df -h
Filesystem                    Size  Used Avail Use% Mounted on
overlay                       1.8T  210G  1.6T  12% /
shm                            64M   63M  1.0M  99% /dev/shm
nfs-3:/export/ckpt             10T  9.9T   90G 100% /ckpt
/dev/nvme0n1p2               ext4  917G  871G     0 100% /scratch"""
MOUNT = """nfs-3:/export/ckpt on /ckpt type nfs4 (rw,relatime,vers=4.2,soft,timeo=600,retrans=2)
tmpfs on /dev/shm type tmpfs (rw,nosuid,nodev,size=65536k,inode64)
/dev/sda1 on /boot type ext4 (rw,relatime)"""
IOSTAT = """Device            r/s     rkB/s   r_await  w/s     wkB/s   w_await  aqu-sz  %util
nvme0n1          1.20     30.10      0.40  0.10     1.00      0.50     0.01   0.30
sda            310.00  40010.00    212.40  0.10     1.00     50.50    66.01 100.00

Device            r/s     rkB/s   r_await  w/s     wkB/s   w_await  aqu-sz  %util
sda            300.00  40010.00    222.40  0.10     1.00     50.50    66.01  99.80"""
NFSIOSTAT = """nfs-3:/export/ckpt mounted on /ckpt:

           ops/s       rpc bklog
           0.330           0.000

read:              ops/s            kB/s           kB/op         retrans    avg RTT (ms)    avg exe (ms)  avg queue (ms)          errors
                   0.120           3.100          25.000        3 (0.0%)        1512.250        9231.500           0.010        0 (0.0%)
write:             ops/s            kB/s           kB/op         retrans    avg RTT (ms)    avg exe (ms)  avg queue (ms)          errors
                   0.000           0.000           0.000        0 (0.0%)           0.000           0.000           0.000        0 (0.0%)"""
SAMPLES = (DF, MOUNT, IOSTAT, NFSIOSTAT)


def test_df() -> None:
    assert [(fact.who.host, fact["mount"], fact["size"], fact["used_percent"]) for fact in facts_of(DF, "df.txt")] == [
        ("trainer-0", "/", "1.8T", 12),
        ("trainer-0", "/dev/shm", "64M", 99),
        ("trainer-0", "/ckpt", "10T", 100),
        ("trainer-0", "/scratch", "917G", 100),
    ]
    assert one("shm                65536     64512      1024  99% /dev/shm", "disk")["size"] == 65536
    assert (
        one("                   10995116277760  9895604649984  90G  100% /data/a-long-name", "disk")["mount"]
        == "/data/a-long-name"
    )


def test_mount() -> None:
    nfs, shm = facts_of(MOUNT, "mount.txt")
    assert (nfs["mount"], nfs["type"], nfs["filesystem"]) == ("/ckpt", "nfs4", "nfs-3:/export/ckpt")
    assert "soft" in nfs["options"]
    assert (shm["mount"], shm["size"]) == ("/dev/shm", "65536k")


def samples(text: str, name: str = "iostat.txt") -> list[tuple[Any, ...]]:
    return [
        (fact["device"], fact["util"], fact["await_ms"], fact["interval"])
        for fact in facts_of(text, name)
        if fact.kind == "io_sample"
    ]


def test_iostat() -> None:
    assert samples(IOSTAT) == [
        ("nvme0n1", 0.3, 0.5, None),
        ("sda", 100.0, 212.4, None),
        ("sda", 99.8, 222.4, True),
    ]


def test_iostat_of_old_sysstat() -> None:
    """sysstat 10 and 11: one or three waits, another name for the queue, a colon behind Device, decimal commas."""
    old = """Device:         rrqm/s   wrqm/s     r/s     w/s    rkB/s    wkB/s avgrq-sz avgqu-sz   await r_await w_await  svctm  %util
sdb               0,00     1,00    3,10   12,00   372,00   480,00    56,00   128,00 6120,40 6120,40 5204,10  66,00 100,00"""
    assert samples(old) == [("sdb", 100.0, 6120.4, None)]


def test_iostat_without_the_report_since_boot() -> None:
    assert [found[3] for found in samples("$ iostat -xy 5 1\n" + IOSTAT)] == [True, True, True]


def test_iostat_as_json_and_whose_it_is() -> None:
    text = """{"sysstat": {
\t"hosts": [
\t\t{
\t\t\t"nodename": "dune-5",
\t\t\t"statistics": [
\t\t\t\t{
\t\t\t\t\t"timestamp": "11/30/26 11:21:14",
\t\t\t\t\t"disk": [
\t\t\t\t\t\t{"disk_device": "vda", "r/s": 24.23, "w/s": 8.52, "r_await": 0.55, "w_await": 2.00, "aqu-sz": 0.03, "util": 0.75}
\t\t\t\t\t]
\t\t\t\t},
\t\t\t\t{
\t\t\t\t\t"timestamp": "11/30/26 11:21:15",
\t\t\t\t\t"disk": [
\t\t\t\t\t\t{"disk_device": "vda", "r/s": 1.00, "w/s": 1.00, "r_await": 5100.00, "w_await": 2.00, "aqu-sz": 64.00, "util": 100.00}"""
    first, second = (fact for fact in facts_of(text, "x.json") if fact.kind == "io_sample")
    assert (first.who.host, first["await_ms"], first["interval"]) == ("dune-5", 2.0, None)
    assert (second["await_ms"], second["interval"], second.at_ns) == (5100.0, True, 1796037675000000000)


def test_each_report_of_iostat_begins_anew() -> None:
    banner = "Linux 5.15.0-119-generic (dune5) \t03/15/26 \t_x86_64_\t(96 CPU)\n\n"
    rows = IOSTAT.partition("\n\n")[0]
    text = banner + rows + "\n\n" + banner.replace("dune5", "dune6") + rows
    assert [found[3] for found in samples(text)] == [None] * 4
    assert {fact.who.host for fact in facts_of(text, "both.txt")} == {"dune5", "dune6"}


def test_nfsiostat() -> None:
    read, write = (fact for fact in facts_of(NFSIOSTAT, "n.txt") if fact.kind == "io_sample")
    assert (read["op"], read["rtt_ms"], read["await_ms"], read["retrans"], read["interval"]) == (
        "read",
        1512.25,
        9231.5,
        3,
        None,
    )
    assert (write["op"], write["await_ms"]) == ("write", 0.0)
    old = NFSIOSTAT.replace("  avg queue (ms)          errors", "").replace("           0.010        0 (0.0%)", "")
    assert next(fact["await_ms"] for fact in facts_of(old, "n.txt") if fact.kind == "io_sample") == 9231.5
    twice = [fact["interval"] for fact in facts_of(NFSIOSTAT + "\n\n" + NFSIOSTAT, "n.txt") if fact.kind == "io_sample"]
    assert twice == [None, None, True, True]


def test_mountstats() -> None:
    text = """device tmpfs mounted on /run with fstype tmpfs
device nfs-3:/export/ckpt mounted on /ckpt with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 8812 8830 7 1586160 92405760 12 88123 90111 0
device sysfs mounted on /sys with fstype sysfs
\t        READ: 1 9 9 1 1 1 1 1 1"""
    assert [
        (fact["device"], fact["name"], fact["value"]) for fact in facts_of(text, "mountstats") if fact.kind == "counter"
    ] == [
        ("/ckpt", "nfs_read_retransmits", 18),
        ("/ckpt", "nfs_read_major_timeouts", 7),
    ]


def test_findmnt() -> None:
    text = """TARGET                SOURCE                FSTYPE OPTIONS
/sys/fs/cgroup        tmpfs                 tmpfs  rw,relatime,mode=755
└─/dev/shm            tmpfs                 tmpfs  rw,relatime,size=65536k
/data                 nfs-3:/export/data    nfs4   ro,relatime,vers=4.2,soft
/boot                 /dev/sda1             ext4   rw,relatime"""
    assert [(fact["mount"], fact["type"], fact["size"]) for fact in facts_of(text, "findmnt.txt")] == [
        ("/sys/fs/cgroup", "tmpfs", None),
        ("/dev/shm", "tmpfs", "65536k"),
        ("/data", "nfs4", None),
    ]


@pytest.mark.parametrize(
    "text", ["ls: cannot access '/data/set': Stale file handle", "df: /data/set: Transport endpoint is not connected"]
)
def test_a_mount_that_is_gone(text: str) -> None:
    fact = one(text, "storage_stall", "df.txt")
    assert (fact["server"], fact["state"]) == ("/data/set", "stalled")


@pytest.mark.parametrize("text", ["progress 12% /", "val acc 10 20 30 99% /tmp/x is best", "of type nfs (slow)"])
def test_ordinary_output_means_nothing(text: str) -> None:
    assert [fact for fact in facts_of(text) if fact.spot.excerpt == text and fact.kind == "disk"] == []


@given(st.integers(0, 2**32))
def test_survives_noise(seed: int) -> None:
    text = random.Random(seed).choice(SAMPLES)
    found = [essence(fact) for fact in facts_of(disturbed(text.split("\n"), seed), "notes.txt")]
    assert all(essence(fact) in found for fact in facts_of(text, "notes.txt"))
