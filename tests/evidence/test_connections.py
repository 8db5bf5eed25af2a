"""Who waits for an answer, as `ss` and `netstat` print it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of, one

SS = """State    Recv-Q Send-Q Local Address:Port   Peer Address:Port Process
LISTEN   0      2048         *:29500            *:*     users:(("python3",pid=411,fd=3))
ESTAB    0      0      [::ffff:10.4.0.11]:29500 [::ffff:10.4.0.12]:51022 users:(("python3",pid=411,fd=9))
ESTAB    0      0      127.0.0.1:44102      127.0.0.1:29511 users:(("pt_elastic",pid=380,fd=13))
SYN-SENT 0      1      10.4.0.11:41522      10.4.0.13:38811   users:(("python3",pid=411,fd=12)) timer:(on,6.9sec,3)"""
NETSTAT = """Active Internet connections (servers and established)
Proto Recv-Q Send-Q Local Address           Foreign Address         State       PID/Program name
tcp        0      0 0.0.0.0:29500           0.0.0.0:*               LISTEN      411/python3
tcp        0      1 10.4.0.11:41522         10.4.0.13:38811         SYN_SENT    411/python3
tcp6       0      0 10.4.0.11:29500         10.4.0.12:51022         ESTABLISHED 411/python3"""


def test_states_of_ss() -> None:
    found = facts_of(SS, "fir-1.ss")
    assert [
        (fact["state"], fact["local_port"], fact["peer"], fact["peer_port"], fact["retries"]) for fact in found
    ] == [
        ("listens", 29500, None, None, None),
        ("stands", 29500, "10.4.0.12", 51022, None),
        ("waits", 41522, "10.4.0.13", 38811, 3),
    ]
    assert {fact.who.pid for fact in found} == {411}


def test_netstat_says_the_same() -> None:
    assert [(fact["state"], fact["peer"], fact["process"]) for fact in facts_of(NETSTAT, "fir-1.netstat")] == [
        ("listens", None, "python3"),
        ("waits", "10.4.0.13", "python3"),
        ("stands", "10.4.0.12", "python3"),
    ]


@pytest.mark.parametrize(
    ("line", "process", "retries"),
    [
        ("tcp   SYN-SENT 0      1      10.4.0.11:41522   10.4.0.13:38811", None, None),
        ("SYN-SENT 0 1 10.4.0.11%eth0:41522 10.4.0.13:38811", None, None),
        ("SYN-SENT 0 1 [2001:db8::11]:41522 [2001:db8::13]:38811 timer:(on,1min2sec,6)", None, 6),
        ('SYN-SENT 0 1 10.4.0.11:1 10.4.0.13:2 users:(("a",pid=7,fd=3),("b",pid=8,fd=3))', "a", None),
        ("tcp 0 1 10.4.0.11:41522 10.4.0.13:38811 SYN_SENT 411/python3 on (3.31/2/0)", "python3", 2),
    ],
)
def test_forms(line: str, process: str | None, retries: int | None) -> None:
    fact = one(line, "connection", "fir-1.ss")
    assert (fact["state"], fact["process"], fact["retries"]) == ("waits", process, retries)


@pytest.mark.parametrize(
    "text",
    [
        "[rank0]: connection ESTABLISHED with 4 peers",
        "ESTAB 0 0 127.0.0.1:5000 127.0.0.1:5001",
        "LISTEN on port 29500",
        "the socket stays in SYN-SENT 0 1 time",
        "tcp 0 0 10.0.0.1:22 10.0.0.2:4711 TIME_WAIT -",
    ],
)
def test_others_mean_nothing(text: str) -> None:
    assert [fact for fact in facts_of(text) if fact.kind == "connection"] == []


@given(st.integers(0, 2**32), st.sampled_from((SS, NETSTAT)))
def test_survives_noise(seed: int, text: str) -> None:
    found = [essence(fact) for fact in facts_of(disturbed(text.split("\n"), seed), "fir-1.txt")]
    assert all(essence(fact) in found for fact in facts_of(text, "fir-1.txt"))


@given(st.integers(0, len(SS)), st.binary(max_size=6))
def test_damage_raises_nothing(at: int, bytes_: bytes) -> None:
    for fact in facts_of(SS[:at].encode() + bytes_ + SS[at + 3 :].encode(), "fir-1.ss"):
        assert fact.kind != "connection" or fact["state"] in ("waits", "stands", "listens")
