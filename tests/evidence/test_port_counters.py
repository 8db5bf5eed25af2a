"""Counters of interfaces, whichever tool printed them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of

IP_LINK = """gx-1$ ip -s -s link show eth0
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT group default qlen 1000
    link/ether d2:9f:22:1d:1b:6c brd ff:ff:ff:ff:ff:ff
    RX:  bytes packets errors dropped  missed   mcast
     495496141   71670      7      12       0       0
    RX errors:  length    crc   frame    fifo overrun
                     0      5       2       0       0
    TX:  bytes packets errors dropped carrier collsns
     495496141   71670      0       0       3       0 """
# iproute2 4.x
OLD_IP_LINK = IP_LINK.replace(
    "RX:  bytes packets errors dropped  missed   mcast", "RX: bytes  packets  errors  dropped overrun mcast   "
)
IFCONFIG = """eth0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 1500
        inet 10.8.112.45  netmask 255.255.0.0  broadcast 10.8.255.255
        RX packets 61475  bytes 2220304729 (2.0 GiB)
        RX errors 4  dropped 9  overruns 0  frame 4
        TX packets 37783  bytes 4219693 (4.0 MiB)
        TX errors 1  dropped 0 overruns 0  carrier 2  collisions 0"""
PROC = """== gx-2 ==
$ cat /proc/net/dev
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 495496141   71670    9    0    0     0          0         0 495496141   71670    0    0    0     0       0          0
  eth0: 2220304729   61475    7   31    0     7          0         0  4219693   37783    1    0    0     0       2          0"""
NETSTAT = """gx-3$ netstat -s
Tcp:
    532 active connection openings
    132147 segments received
    108439 segments sent out
    47 segments retransmitted"""
QUERY = """Errors for "gx-11 mlx5_0"
   GUID 0x506b4b0300c50b80 port 1: [SymbolErrorCounter == 12] [LinkDownedCounter == 2] [PortXmitWait == 3423]
Errors for 0xe41d2d0300abcdef "SwitchIB Mellanox Technologies"
   GUID 0xe41d2d0300abcdef port 7: [LinkDownedCounter == 9]"""
SAMPLES = (IP_LINK, IFCONFIG, PROC, NETSTAT, QUERY)


def told(text: str) -> list[tuple[Any, ...]]:
    return [
        (fact.who.host, fact["interface"] or fact["device"], fact["name"], fact["value"])
        for fact in facts_of(text, "notes.txt")
        if fact.kind == "counter"
    ]


@pytest.mark.parametrize("text", [IP_LINK, OLD_IP_LINK])
def test_ip_link(text: str) -> None:
    assert told(text) == [
        ("gx-1", "eth0", "rx_errors", 7),
        ("gx-1", "eth0", "rx_crc_errors", 5),
        ("gx-1", "eth0", "tx_errors", 0),
        ("gx-1", "eth0", "tx_carrier_errors", 3),
    ]


def test_ifconfig() -> None:
    assert told(IFCONFIG) == [
        (None, "eth0", "rx_errors", 4),
        (None, "eth0", "tx_errors", 1),
        (None, "eth0", "tx_carrier_errors", 2),
    ]


def test_proc_net_dev_without_the_loopback() -> None:
    assert told(PROC) == [
        ("gx-2", "eth0", "rx_errors", 7),
        ("gx-2", "eth0", "tx_errors", 1),
        ("gx-2", "eth0", "tx_carrier_errors", 2),
    ]


def test_segments() -> None:
    assert told(NETSTAT) == [("gx-3", None, "TcpOutSegs", 108439), ("gx-3", None, "TcpRetransSegs", 47)]
    assert told(NETSTAT.replace("retransmitted", "retransmited"))[1][3] == 47
    nstat = "#kernel\nTcpOutSegs                      108439             0.0\nTcpRetransSegs                  47                 0.0"
    assert [found[2:] for found in told(nstat)] == [("TcpOutSegs", 108439), ("TcpRetransSegs", 47)]


def test_nstat_without_a_prints_growth_of_its_own() -> None:
    rows = "\nTcpOutSegs                      108439             0.0"
    assert told("gx-3$ nstat" + rows) == []
    assert told("gx-3$ nstat -az" + rows) == [("gx-3", None, "TcpOutSegs", 108439)]


def test_ibqueryerrors_names_the_host_of_an_adapter_and_the_switch_itself() -> None:
    assert told(QUERY) == [
        ("gx-11", "mlx5_0 port 1", "SymbolErrorCounter", 12),
        ("gx-11", "mlx5_0 port 1", "LinkDownedCounter", 2),
        ("gx-11", "mlx5_0 port 1", "PortXmitWait", 3423),
        (None, "SwitchIB Mellanox Technologies port 7", "LinkDownedCounter", 9),
    ]


def test_labels_of_pdsh_before_lines_that_name_their_device() -> None:
    text = "gx-9: /sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error:4211\ngx-9: link mlx5_1/1 rx_write_requests 0 out_of_sequence 17 packet_seq_err 3"
    assert told(text) == [
        ("gx-9", "mlx5_0", "symbol_error", 4211),
        ("gx-9", "mlx5_1/1", "out_of_sequence", 17),
        ("gx-9", "mlx5_1/1", "packet_seq_err", 3),
    ]


def test_watch_says_which_command_on_which_host() -> None:
    text = "Every 30.0s: ethtool -S ens4f0            gx-4: Wed May 20 21:09:26 2026\n\nNIC statistics:\n     rx_crc_errors_phy: 12"
    (fact,) = facts_of(text, "watch.txt")
    assert (fact.who.host, fact["interface"], fact["value"]) == ("gx-4", "ens4f0", 12)
    assert (fact.at_ns, fact.clock) == (1779311366000000000, "near")


@pytest.mark.parametrize(
    "text",
    ["    12 errors dropped", "RX: the receiver", "step 12 segments sent out of 30", 'Errors for "train" were 3'],
)
def test_ordinary_output_means_nothing(text: str) -> None:
    assert facts_of(text) == []


@given(st.integers(0, 2**32))
def test_survives_noise(seed: int) -> None:
    text = random.Random(seed).choice(SAMPLES)
    found = [essence(fact) for fact in facts_of(disturbed(text.split("\n"), seed), "notes.txt")]
    assert all(essence(fact) in found for fact in facts_of(text, "notes.txt"))


@given(st.integers(0, 2**32), st.sampled_from(SAMPLES))
def test_never_raises_on_torn_text(seed: int, text: str) -> None:
    rng = random.Random(seed)
    torn = bytearray(text.encode()[: rng.randrange(len(text))])
    for _ in range(rng.randrange(4)):
        if torn:
            torn[rng.randrange(len(torn))] = rng.randrange(256)
    for fact in facts_of(bytes(torn), "notes.txt"):
        assert fact.kind and fact.spot.excerpt
