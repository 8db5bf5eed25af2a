"""NCCL Inspector's files."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from reading import facts_of, one

from whichrank.evidence import Evidence, read_piece
from whichrank.evidence.nccl_inspector import KEPT


def record(sn: int = 7, **changes: object) -> dict[str, object]:
    perf = {
        "coll": "AllReduce",
        "coll_sn": sn,
        "coll_msg_size_bytes": 17179869184,
        "coll_exec_time_us": 61974,
        "coll_algobw_gbs": 277.210914,
        "coll_busbw_gbs": 485.119099,
    }
    return {
        "header": {"id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": 8, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": 1748030377748202 + sn,
            "hostname": "hobby-2",
            "pid": 1639453,
        },
        "coll_perf": perf | changes,
    }


def lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(one_, separators=(",", ":")) + "\n" for one_ in records)


def test_a_line_each() -> None:
    fact = one(lines(*(record(sn) for sn in range(1, 8))), "nccl_inspector", "hobby-2-pid1639453.log")
    assert (fact.who.host, fact.who.pid, fact.seq, fact["total"], fact.spot.line) == ("hobby-2", 1639453, 7, 7, 7)
    assert (fact["comm_id"], fact["rank_in_comm"], fact["nranks"], fact["nnodes"]) == ("0x7f8c496ae9f661", 2, 8, 1)
    assert fact["last"][0] == (1, "AllReduce", 17179869184, 61974, 485.119099)
    assert fact.clock == "wall" and fact.at_ns == 1748030377748209000


def test_pretty_printed_objects() -> None:
    """As the README of the plugin shows them, or as jq prints them."""
    text = "\n".join(json.dumps(record(sn), indent=2) for sn in (1, 2, 3)) + "\n"
    fact = one(text, "nccl_inspector", "x.log")
    assert (fact["total"], fact.seq) == (3, 3)
    assert text.split("\n")[(fact.spot.line or 0) - 1] == "{"


def test_verbose_and_newer_fields() -> None:
    """Event traces, names of communicators and point-to-point records (2.30) are passed over."""
    named = record(
        2, coll_timing_source="kernel_gpu", event_trace_sn={"coll_start_sn": 1, "kernel_events": [{"channel_id": 0}]}
    )
    named["header"] = {"id": "0x7f8c496ae9f661", "comm_name": "DP Group 0", "rank": 2, "n_ranks": 8, "nnodes": 1}
    p2p = {key: value for key, value in record(3).items() if key != "coll_perf"} | {
        "p2p_perf": {"p2p": "Send", "p2p_sn": 9, "p2p_peer": 1}
    }
    fact = one(lines(record(1), named, p2p), "nccl_inspector", "x.log")
    assert (fact["total"], fact.seq, fact["name"]) == (2, 2, "DP Group 0")


def test_speed_early_and_late() -> None:
    records = [record(sn, coll_busbw_gbs=300.0 if sn <= 30 else 90.0) for sn in range(1, 61)]
    small = [record(100 + sn, coll_msg_size_bytes=4096, coll_busbw_gbs=0.5) for sn in range(60)]
    fact = one(lines(*records, *small), "nccl_inspector", "x.log")
    assert (fact["coll"], fact["size"], fact["busbw_first"], fact["busbw_last"]) == (
        "AllReduce",
        17179869184,
        300.0,
        90.0,
    )
    assert len(fact["last"]) == KEPT


def test_communicators_are_told_apart() -> None:
    other = record(4)
    other["header"] = {"id": "0x99", "rank": 0, "n_ranks": 2, "nnodes": 2}
    found = [fact for fact in facts_of(lines(record(1), other, record(2)), "x.log") if fact.kind == "nccl_inspector"]
    assert {(fact["comm_id"], fact["total"]) for fact in found} == {("0x7f8c496ae9f661", 2), ("0x99", 1)}


def test_bandwidth_that_is_no_number() -> None:
    assert one(lines(record(1, coll_busbw_gbs="nan")), "nccl_inspector", "x.log")["last"][0][4] == 0.0


@given(st.integers(400, 3000), st.binary(max_size=20))
def test_cut_off_or_corrupt(length: int, noise: bytes) -> None:
    text = lines(*(record(sn) for sn in range(1, 7))).encode()
    evidence = Evidence()
    read_piece("x.log", text[:length] + noise, evidence)
    found = [fact for fact in evidence.facts if fact.kind == "nccl_inspector"]
    assert sum(fact["total"] for fact in found) >= text[:length].count(b"\n") - 1
