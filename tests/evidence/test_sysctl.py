"""The few settings of the kernel that a failure can turn on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of

TEXT = """kernel.numa_balancing = 0
net.core.somaxconn = 128
net.ipv4.ip_local_port_range = 32768	60999
net.netfilter.nf_conntrack_max = 262144
net.nf_conntrack_max = 262144"""


def test_what_is_kept() -> None:
    found = facts_of(TEXT, "elm-2.sysctl")
    assert [(fact["name"], fact["value"]) for fact in found] == [
        ("net.core.somaxconn", 128),
        ("net.netfilter.nf_conntrack_max", 262144),
    ]


def test_a_sentence_about_it_is_no_setting() -> None:
    text = "please set net.core.somaxconn = 4096 on all nodes"
    assert [fact for fact in facts_of(text) if fact.kind == "sysctl"] == []


@given(st.integers(0, 2**32))
def test_survives_noise(seed: int) -> None:
    found = [essence(fact) for fact in facts_of(disturbed(TEXT.split("\n"), seed), "notes.txt")]
    assert all(essence(fact) in found for fact in facts_of(TEXT, "notes.txt"))
