"""Addresses, names, counters and bandwidths, as people paste them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of, one

IP_ADDR = """### gx-1: ip addr
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
       valid_lft forever preferred_lft forever
6: ens3f0np0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT group default qlen 1000
    link/ether b8:ce:f6:71:4b:e2 brd ff:ff:ff:ff:ff:ff
    inet 10.63.1.17/24 brd 10.63.1.255 scope global dynamic noprefixroute ens3f0np0
       valid_lft 5000sec preferred_lft 5000sec
    inet6 fe80::bace:f6ff:fe71:4be2/64 scope link
7: eno2: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc mq state DOWN group default qlen 1000
### gx-2: ip -br addr
lo               UNKNOWN        127.0.0.1/8 ::1/128
ib0              UP             10.63.1.18/24 fe80::9a03:9bff:fe/64
eno2np1             DOWN
eth0@if7         UP             10.8.0.3/16"""
IP_O = """1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever
2: eth0    inet 10.8.112.45/16 brd 10.8.255.255 scope global eth0\\       valid_lft forever preferred_lft forever"""
IFCONFIG = """eth0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 1500
        inet 10.8.112.45  netmask 255.255.0.0  broadcast 10.8.255.255
        ether 02:42:0a:08:70:2d  txqueuelen 0  (Ethernet)"""
IBV = """$ ssh gx-3 ibv_devinfo
hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\tphys_port_cnt:\t\t\t1
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t1024 (3)
\t\t\tlink_layer:\t\tEthernet
hca_id:\tmlx5_1
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_DOWN (1)
\t\t\tactive_mtu:\t\t4096 (5)"""
IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tPort 1:
\t\tState: Down
\t\tPhysical state: Polling
\t\tRate: 100
\t\tBase lid: 4
\t\tLink layer: InfiniBand"""
ETHTOOL = """== gx-4 ==
$ ethtool -S ens4f0np0
NIC statistics:
     rx_packets: 88120044511
     rx0_xdp_drop: 7
     rx_discards_phy: 12
     link_down_events_phy: 15
     tx_prio3_pause: 91

     rx_discards_phy: 19
     link_down_events_phy: 16"""
PERFQUERY = """### gx-11: perfquery -x mlx5_0 1
# Port extended counters: Lid 22 port 1 (CapMask: 0x5A00)
PortSelect:......................1
SymbolErrorCounter:..............4211
LinkDownedCounter:...............14
PortXmitData:....................71833920512
### gx-12: perfquery
# Port counters: Lid 23 port 1 (CapMask: 0x5A00)
LinkDownedCounter:...............0"""
NCCL_TESTS = """# nThread 1 nGpus 1 minBytes 67108864 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid   6100 on      c2n02 device  0 [0000:18:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   6140 on      c2n03 device  0 [0x18] NVIDIA H100 80GB HBM3
#
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
    67108864      16777216     float     sum      -1  1445.32   46.43   87.06       0  1448.12   46.34   86.89       0
  1073741824     268435456     float     sum      -1  16364.9   65.61  123.02       0  16427.3   65.36  122.56       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 108.46
#"""
PAIRS = """# pairwise all_reduce_perf, 1 GiB; expected busbw 340-370 GB/s
# pair               size(B)    time(us)    algbw    busbw  #wrong
  c2n01-c2n02     1073741824      5570.2   192.77   361.44       0
  gx-01-gx-02     1073741824     16002.2    67.10   125.81       0"""
SAMPLES = (IP_ADDR, IFCONFIG, IBV, IBSTAT, ETHTOOL, PERFQUERY, NCCL_TESTS, PAIRS)


def told(text: str, kind: str, *names: str) -> list[tuple[Any, ...]]:
    return [
        (fact.who.host, *(fact[name] for name in names)) for fact in facts_of(text, "notes.txt") if fact.kind == kind
    ]


def test_ip_addr() -> None:
    assert told(IP_ADDR, "ip_address", "interface", "address", "state") == [
        ("gx-1", "lo", "127.0.0.1", "UNKNOWN"),
        ("gx-1", "ens3f0np0", "10.63.1.17", "UP"),
        ("gx-1", "ens3f0np0", "fe80::bace:f6ff:fe71:4be2", "UP"),
        ("gx-2", "lo", "127.0.0.1", "UNKNOWN"),
        ("gx-2", "lo", "::1", "UNKNOWN"),
        ("gx-2", "ib0", "10.63.1.18", "UP"),
        ("gx-2", "ib0", "fe80::9a03:9bff:fe", "UP"),
        ("gx-2", "eno2np1", None, "DOWN"),
        ("gx-2", "eth0", "10.8.0.3", "UP"),
    ]
    assert told(IP_ADDR, "mtu", "interface", "value", "state") == [
        ("gx-1", "lo", 65536, "UNKNOWN"),
        ("gx-1", "ens3f0np0", 9000, "UP"),
        ("gx-1", "eno2", 1500, "DOWN"),
    ]


def test_other_ways_to_ask_for_addresses() -> None:
    assert told(IP_O, "ip_address", "interface", "address") == [
        (None, "lo", "127.0.0.1"),
        (None, "eth0", "10.8.112.45"),
    ]
    assert told(IFCONFIG, "ip_address", "interface", "address", "state") == [(None, "eth0", "10.8.112.45", "UP")]
    assert told(IFCONFIG, "mtu", "interface", "value") == [(None, "eth0", 1500)]


def test_ibv_devinfo_and_ibstat() -> None:
    assert told(IBV, "mtu", "interface", "value", "device") == [
        ("gx-3", "mlx5_0", 1024, "mlx5_0:1"),
        ("gx-3", "mlx5_1", 4096, "mlx5_1:1"),
    ]
    assert told(IBV, "link", "interface", "state") == [("gx-3", "mlx5_1", "down")]
    assert told(IBSTAT, "link", "interface", "state", "device") == [(None, "mlx5_0", "down", "mlx5_0:1")]
    assert told(IBSTAT, "counter", "name", "value") == [(None, "rate_gbps", 100)]


def test_counters() -> None:
    assert told(ETHTOOL, "counter", "name", "value", "interface", "snapshot") == [
        ("gx-4", "rx_discards_phy", 12, "ens4f0np0", 1),
        ("gx-4", "link_down_events_phy", 15, "ens4f0np0", 1),
        ("gx-4", "tx_prio3_pause", 91, "ens4f0np0", 1),
        ("gx-4", "rx_discards_phy", 19, "ens4f0np0", 2),
        ("gx-4", "link_down_events_phy", 16, "ens4f0np0", 2),
    ]
    assert told(PERFQUERY, "counter", "name", "value", "device", "snapshot") == [
        ("gx-11", "SymbolErrorCounter", 4211, "mlx5_0", 1),
        ("gx-11", "LinkDownedCounter", 14, "mlx5_0", 1),
        ("gx-12", "LinkDownedCounter", 0, "lid 23 port 1", 1),
    ]
    ports = "kite21 mlx5_0 port 1\nLinkDownedCounter:...............2\nkite34 mlx5_1 port 1\nLinkDownedCounter:...............7"
    assert told(ports, "counter", "device", "value", "snapshot") == [
        ("kite21", "mlx5_0", 2, 1),
        ("kite34", "mlx5_1", 7, 1),
    ]
    rdma = "link mlx5_0/1 rx_write_requests 0 out_of_sequence 17 packet_seq_err 3 local_ack_timeout_err 5 np_cnp_sent 0"
    assert ("mlx5_0/1", "local_ack_timeout_err", 5) in [
        found[1:] for found in told(rdma, "counter", "device", "name", "value")
    ]
    sysfs = "/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error:4211"
    assert told(sysfs, "counter", "device", "name", "value") == [(None, "mlx5_0", "symbol_error", 4211)]
    listed = "### gx-9: cd /sys/class/infiniband/mlx5_0/ports/1/counters; grep . *\nsymbol_error:12\nport_xmit_data:71833920512"
    assert told(listed, "counter", "device", "name", "value") == [("gx-9", "mlx5_0", "symbol_error", 12)]


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("nd-b$ getent hosts nd-a.lab\n192.168.250.16  nd-a.lab nd-a", "nd-b"),
        ("nd-b$ getent ahosts nd-a.lab\n192.168.250.16  STREAM nd-a.lab\n192.168.250.16  DGRAM", "nd-b"),
        ("nd-b$ host nd-a.lab\nnd-a.lab has address 192.168.250.16", "nd-b"),
        (
            "$ nslookup nd-a.lab\nServer:\t\t127.0.0.53\nAddress:\t127.0.0.53#53\n\nName:\tnd-a.lab\nAddress: 192.168.250.16",
            None,
        ),
        ("PING nd-a.lab (192.168.250.16) 56(84) bytes of data.", None),
    ],
)
def test_names(text: str, host: str | None) -> None:
    assert told(text, "resolves", "name", "address") == [(host, "nd-a.lab", "192.168.250.16")]


def test_ping() -> None:
    assert one("3 packets transmitted, 0 received, 100% packet loss, time 2047ms", "counter")["value"] == 100


def test_nccl_tests() -> None:
    (fact,) = [fact for fact in facts_of(NCCL_TESTS, "x.txt") if fact.kind == "bandwidth"]
    assert (fact["a"], fact["b"], fact["busbw"], fact["size"], fact["wrong"]) == (
        "c2n02",
        "c2n03",
        123.02,
        1073741824,
        None,
    )
    assert "16364.9" in fact.spot.excerpt
    wrong = NCCL_TESTS.replace("123.02       0", "123.02      37").replace("[0x18]", "[0000:18:00]")
    assert [fact["wrong"] for fact in facts_of(wrong, "x.txt") if fact.kind == "bandwidth"] == [37]
    unchecked = NCCL_TESTS.replace("       0", "     N/A")
    assert [fact["busbw"] for fact in facts_of(unchecked, "x.txt") if fact.kind == "bandwidth"] == [123.02]
    assert [
        fact["busbw"]
        for fact in facts_of(NCCL_TESTS + "\n" + NCCL_TESTS.replace("123.02", "361.44"), "x.txt")
        if fact.kind == "bandwidth"
    ] == [123.02, 361.44]


def test_pairs() -> None:
    assert [found[1:] for found in told(PAIRS, "bandwidth", "a", "b", "busbw", "size")] == [
        ("c2n01", "c2n02", 361.44, 1073741824),
        ("gx-01", "gx-02", 125.81, 1073741824),
    ]
    assert told(PAIRS, "expected_busbw", "low", "high") == [(None, 340.0, 370.0)]
    split = "src dst size busbw\nn1 n2 1G 361.4\nn1 n3 1G 125.8"
    assert [found[1:] for found in told(split, "bandwidth", "a", "b", "busbw", "size")] == [
        ("n1", "n2", 361.4, 2**30),
        ("n1", "n3", 125.8, 2**30),
    ]


def test_links() -> None:
    verbs = "gx-1$ ib_write_bw -d mlx5_0 --report_gbits gx-2\n #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 65536      5000             392.10             391.90             0.747"
    assert told(verbs, "bandwidth", "a", "b", "busbw", "size") == [("gx-1", "gx-1", "gx-2", 48.987, 65536)]
    iperf = "gx-1$ iperf3 -c gx-2 -P 2\nConnecting to host gx-2, port 5201\n[SUM]   0.00-10.00  sec  27.3 GBytes  23.4 Gbits/sec                  receiver"
    assert told(iperf, "bandwidth", "a", "b", "busbw") == [("gx-1", "gx-1", "gx-2", 2.925)]


@pytest.mark.parametrize(
    "text",
    [
        "loss expected to fall below 2.0 GB of memory per rank",
        "    rx_model: 7 layers",
        "| mtu 9000 | a table |",
        "the busbw was fine",
        "[rank3]: step 41184 rx_tokens: 88",
        "eval DOWN",
        "link to the docs 1 2 3",
    ],
)
def test_ordinary_output_means_nothing(text: str) -> None:
    assert facts_of(text) == []


@given(st.integers(0, 2**32))
def test_survives_noise(seed: int) -> None:
    text = random.Random(seed).choice(SAMPLES)
    found = [essence(fact) for fact in facts_of(disturbed(text.split("\n"), seed), "notes.txt")]
    assert all(essence(fact) in found for fact in facts_of(text, "notes.txt"))
