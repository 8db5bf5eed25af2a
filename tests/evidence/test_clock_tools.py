"""How far clocks are off, and what becomes of the times of a host whose clock is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of, one

from whichrank.evidence import Evidence, read_piece
from whichrank.job.build import build

TRACKING = """Reference ID    : C0A8091E (kube30)
Stratum         : 4
Ref time (UTC)  : Thu Dec 28 15:19:42 2023
System time     : 1557.763061523 seconds slow of NTP time
Last offset     : -0.000001475 seconds
RMS offset      : 0.174507022 seconds
Leap status     : Normal"""
SOURCES = """MS Name/IP address         Stratum Poll Reach LastRx Last sample
===============================================================================
^+ 91.189.89.199                 2   6   377    18   +234us[ +234us] +/-   18ms
^* ntp.lab                       1   6   377    12    -41s[  -42s] +/-   15ms"""
NTPQ = """     remote           refid      st t when poll reach   delay   offset  jitter
==============================================================================
*10.123.33.1     129.6.15.28      2 u    7   32  377    2.030  -720.000   0.032
+10.123.33.8     132.163.97.6     2 u   10   32  377    2.098   -0.782   6.481"""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (TRACKING, -1557.763061523),
        (TRACKING.replace("slow", "fast"), 1557.763061523),
        (SOURCES, -41.0),
        (SOURCES.replace("  -41s", "+920ms"), 0.92),
        (NTPQ, 0.72),
        (NTPQ.replace("-720.000", "5720.250"), -5.72025),
    ],
)
def test_sign_and_unit(text: str, seconds: float) -> None:
    fact = one(text, "clock_offset", "tern-3.clock")
    assert fact["seconds"] == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        SOURCES.replace("^*", "^?"),
        NTPQ.replace("*10", " 10"),
        "       Offset: +7.493693s\n        Delay: 517us",
        "System time     : 14.2 s",
        "* loss 2 u 7 32 377 2.030 -0.720 0.032",
    ],
)
def test_what_is_not_chosen_says_nothing(text: str) -> None:
    assert facts_of(text, "tern-3.clock") == []


def _times(offsets: dict[str, str]) -> dict[int, int]:
    """Seconds of the minute at which two ranks spoke, each on a host of its own, with these readings of the clocks."""
    evidence = Evidence()
    for rank in (0, 1):
        line = f"2026-03-02 10:00:3{rank} rank {rank}/2 host tern-{rank} pid 40{rank}\n2026-03-02 10:00:40 [rank{rank}] step 7 loss 2.0\n"
        read_piece(f"rank{rank}.log", line.encode(), evidence)
    for host, text in offsets.items():
        read_piece(f"{host}.clock", text.encode(), evidence)
    (job,) = build(evidence)
    return {
        info.rank: info.said[-1].at_ns // 10**9 % 60 for info in job.ranks.values() if info.said and info.said[-1].at_ns
    }


def _slow(seconds: float, way: str = "slow") -> str:
    return f"System time     : {seconds:.9f} seconds {way} of NTP time"


def test_times_of_a_host_that_is_behind_are_moved_on() -> None:
    assert _times({}) == {0: 40, 1: 40}
    assert _times({"tern-1": _slow(12)}) == {0: 40, 1: 52}
    assert _times({"tern-1": _slow(12, "fast")}) == {0: 40, 1: 28}


def test_small_offsets_and_a_wrong_server_of_all_move_nothing() -> None:
    assert _times({"tern-1": _slow(3)}) == {0: 40, 1: 40}
    assert _times({f"tern-{number}": _slow(12) for number in range(3)}) == {0: 40, 1: 40}


@given(st.integers(0, 2**32), st.sampled_from((TRACKING, SOURCES, NTPQ)))
def test_survives_noise(seed: int, text: str) -> None:
    found = [essence(fact) for fact in facts_of(disturbed(text.split("\n"), seed), "notes.txt")]
    assert all(essence(fact) in found for fact in facts_of(text, "notes.txt"))


@given(st.integers(0, len(NTPQ)), st.binary(max_size=6))
def test_damage_raises_nothing(at: int, bytes_: bytes) -> None:
    for fact in facts_of(NTPQ[:at].encode() + bytes_ + NTPQ[at + 3 :].encode(), "tern-3.ntp"):
        assert fact.kind != "clock_offset" or isinstance(fact["seconds"], float)
