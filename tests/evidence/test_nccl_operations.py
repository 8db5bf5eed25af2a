"""NCCL's list of operations (NCCL_DEBUG_SUBSYS=COLL)."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, facts_of, one

from whichrank.evidence.nccl_operations import KEPT
from whichrank.facts import Fact


def line(
    op: str = "AllReduce",
    number: int = 26,
    *,
    host: str = "cn-4",
    pid: int = 9120,
    count: int = 1048576,
    datatype: int = 9,
    red: int = 0,
    root: int = 0,
    comm: str = "0x55d0c8f0",
    stamp: str = "",
) -> str:
    return (
        f"{stamp}{host}:{pid}:{pid + 300} [1] NCCL INFO {op}: opCount {number:x} sendbuff 0x7f02a4{number:06x} recvbuff (nil) "
        f"count {count} datatype {datatype} op {red} root {root} comm {comm} [nranks=16] stream 0x55d0c41f2e60"
    )


def lists(text: str) -> list[Fact]:
    return [fact for fact in facts_of(text) if fact.kind == "nccl_operations"]


def test_one_fact_a_process_and_communicator() -> None:
    text = "\n".join(
        [
            line(number=0),
            line(number=0, comm="0x7f00", op="AllGather"),
            line(number=0, pid=9121),
            line("Send", 1, root=3),
            line("AllReduce", 2, datatype=7, red=4),
        ]
    )
    found = {(fact.who.pid, fact["comm"]): fact for fact in lists(text)}
    assert set(found) == {(9120, "0x55d0c8f0"), (9120, "0x7f00"), (9121, "0x55d0c8f0")}
    fact = found[9120, "0x55d0c8f0"]
    assert (fact["total"], fact["collectives"], fact.seq, fact["first"], fact["nranks"]) == (3, 2, 2, 0, 16)
    # Places count all lines of the process, whatever their communicator.
    assert fact["last"] == (
        (1, 0, "AllReduce", 1048576, "bfloat16", "sum", 0),
        (3, 1, "Send", 1048576, "bfloat16", "sum", 3),
        (4, 2, "AllReduce", 1048576, "float32", "avg", 0),
    )
    assert (fact.spot.line, fact["from_line"]) == (5, 1)


def test_op_count_is_hexadecimal() -> None:
    assert one(line(number=0x1A), "nccl_operations").seq == 26
    assert one(line(number=0xDEAD), "nccl_operations").seq == 0xDEAD


def test_stamped_and_labelled_lines() -> None:
    """NCCL_DEBUG_TIMESTAMP_FORMAT (2.26 and newer) puts a time before the host, torchrun its label before that."""
    fact = one("[rank5]:" + line(stamp="[2026-03-09 14:02:11] "), "nccl_operations")
    assert (fact.rank, fact.who.host, fact.who.pid, fact.clock) == (5, "cn-4", 9120, "wall")


def test_unknown_types_keep_their_number() -> None:
    fact = one(line(datatype=12, red=2147483647), "nccl_operations")
    assert fact["last"][0][4:6] == ("12", "2147483647")


def test_only_the_last_are_kept() -> None:
    fact = one("\n".join(line(number=n) for n in range(5000)), "nccl_operations")
    assert (fact["total"], len(fact["last"]), fact["last"][0][1], fact["lost"]) == (5000, KEPT, 5000 - KEPT, 0)


def test_gaps_in_op_count_are_counted() -> None:
    fact = one("\n".join(line(number=n) for n in (4, 4, 5, 9, 10, 30)), "nccl_operations")
    assert fact["lost"] == 2


def test_other_lines_say_nothing() -> None:
    for text in (
        "cn-4:9120:9420 [1] 3.1 enqueue.cc:1261 NCCL TRACE opCount 1a slicesteps 2 spl 1 cpl 1 nbytes 4 -> protocol 0",
        "proxy.cc:488 NCCL WARN Unable to post incomplete proxy op chain 3..5 (opCount 12)",
        "step 12 opCount 4",
        line()[: line().index("comm 0x")],
    ):
        assert not lists(text)


@given(st.integers(0, 2**32))
def test_survives_noise(seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        line(rng.choice(("AllReduce", "Broadcast", "Recv")), n, pid=9120 + n % 3, count=rng.randrange(10**9))
        for n in range(12)
    ]

    def told(text: str) -> list[tuple[object, ...]]:
        return sorted((fact.who.pid, fact["comm"], fact["last"], fact["total"]) for fact in lists(text))

    assert told(disturbed(rows, seed)) == told("\n".join(rows))


@given(st.binary(max_size=80), st.integers(0, 300))
def test_corrupt_bytes(noise: bytes, at: int) -> None:
    text = "\n".join(line(number=n) for n in range(3)).encode()
    found = [fact for fact in facts_of(text[:at] + noise + text[at:]) if fact.kind == "nccl_operations"]
    assert sum(fact["total"] for fact in found) <= 4
