"""How short of memory, disk time and processors a host is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of, one

PSI = """== gx-1 ==
$ cat /proc/pressure/memory
some avg10=12.50 avg60=8.00 avg300=2.52 total=2612327517
full avg10=11.00 avg60=7.25 avg300=2.00 total=261232751
$ cat /sys/fs/cgroup/io.pressure
some avg10=0.00 avg60=0.00 avg300=0.00 total=0"""
FREE = """               total        used        free      shared  buff/cache   available
Mem:           503Gi       498Gi       1.1Gi       8.6Mi       3.2Gi       2.5Gi
Swap:             0B          0B          0B"""


def test_pressure() -> None:
    assert [(fact.who.host, fact["resource"], fact["of"], fact["avg60"]) for fact in facts_of(PSI, "psi.txt")] == [
        ("gx-1", "memory", "some", 8.0),
        ("gx-1", "memory", "full", 7.25),
        ("gx-1", "io", "some", 0.0),
    ]


def test_pressure_of_many_files_at_once() -> None:
    grep = "/proc/pressure/cpu:some avg10=99.00 avg60=95.00 avg300=80.00 total=1\n/proc/pressure/io:full avg10=1.00 avg60=2.00 avg300=3.00 total=1"
    assert [(fact["resource"], fact["avg60"]) for fact in facts_of(grep, "psi.txt")] == [("cpu", 95.0), ("io", 2.0)]


def test_pressure_of_nobody_knows_what_is_not_told() -> None:
    line = "full avg10=11.00 avg60=7.25 avg300=2.00 total=261232751"
    assert facts_of(line, "psi.txt") == []
    assert one(line, "pressure", "gx-1.memory.pressure")["resource"] == "memory"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (FREE, 0.497),
        (
            "              total        used        free      shared  buff/cache   available\nMem:      528000000   520000000     1000000           9     7000000     5280000",
            1.0,
        ),
        ("MemTotal:       528000000 kB\nMemFree:         1000000 kB\nMemAvailable:    5280000 kB", 1.0),
    ],
)
def test_memory_that_is_left(text: str, left: float) -> None:
    assert one(text, "pressure", "free.txt")["available_percent"] == pytest.approx(left, rel=0.01)


def test_free_of_old_procps_has_no_column_for_it() -> None:
    old = "             total       used       free     shared    buffers     cached\nMem:     528000000  520000000    1000000          9     700000    7000000"
    assert facts_of(old, "free.txt") == []


VMSTAT = """procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----
 r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st
 3  0 993012 118016   6460  50936    0    0   361  1206  272  378 67  4 30  0  0
 1  9 993012 118016   6460  50936 40000 38000 361  1206  272  378  7  4  9 80  0
 2  7 993012 118016   6460  50936 41000 36000 361  1206  272  378  7  4 10 79  0
 1  8 993012 118016   6460  50936 42000 37000 361  1206  272  378  7  4  8 81  0"""


def test_vmstat_counts_by_its_intervals_and_not_since_the_boot() -> None:
    memory, io = facts_of(VMSTAT, "ash-4.vmstat")
    assert (memory["resource"], memory["swapped_kb_s"], memory["intervals"]) == ("memory", 78000.0, 3)
    assert (io["resource"], io["waited_percent"], io["blocked"]) == ("io", 80.0, 8.0)


def test_one_line_of_vmstat_is_of_the_boot() -> None:
    assert facts_of("\n".join(VMSTAT.split("\n")[:3]), "ash-4.vmstat") == []


@pytest.mark.parametrize("text", ["Mem: 12 GB", "some avg loss", "MemTotal: lots", "io.pressure is high"])
def test_ordinary_output_means_nothing(text: str) -> None:
    assert facts_of(text) == []


@given(st.integers(0, 2**32), st.sampled_from((PSI, FREE, VMSTAT)))
def test_survives_noise(seed: int, text: str) -> None:
    found = [essence(fact) for fact in facts_of(disturbed(text.split("\n"), seed), "notes.txt")]
    assert all(essence(fact) in found for fact in facts_of(text, "notes.txt"))
