"""df, mount, iostat, nfsiostat."""

from __future__ import annotations

import random

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


def test_iostat() -> None:
    facts = [(fact["device"], fact["name"], fact["value"], fact["snapshot"]) for fact in facts_of(IOSTAT, "iostat.txt")]
    assert (
        ("sda", "%util", 100.0, 1) in facts
        and ("sda", "%util", 99.8, 2) in facts
        and ("sda", "r_await", 212.4, 1) in facts
    )


def test_nfsiostat() -> None:
    facts = {fact["name"]: fact["value"] for fact in facts_of(NFSIOSTAT, "n.txt")}
    assert (facts["nfs_read_rtt_ms"], facts["nfs_read_exe_ms"], facts["nfs_read_retrans"]) == (1512.25, 9231.5, 3)


@pytest.mark.parametrize("text", ["progress 12% /", "val acc 10 20 30 99% /tmp/x is best", "of type nfs (slow)"])
def test_ordinary_output_means_nothing(text: str) -> None:
    assert [fact for fact in facts_of(text) if fact.spot.excerpt == text and fact.kind == "disk"] == []


@given(st.integers(0, 2**32))
def test_survives_noise(seed: int) -> None:
    text = random.Random(seed).choice(SAMPLES)
    found = [essence(fact) for fact in facts_of(disturbed(text.split("\n"), seed), "notes.txt")]
    assert all(essence(fact) in found for fact in facts_of(text, "notes.txt"))
