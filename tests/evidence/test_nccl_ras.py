"""RAS reports, text and JSON of each version."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of

from whichrank.evidence import Evidence, read_piece
from whichrank.evidence.nccl_ras import sniff
from whichrank.facts import Fact

RANK = """        {{
          "rank": {rank},
          "host": "10.12.0.5{node}",
          "pid": {pid},
          "cuda_dev": {rank},
          "nvml_dev": {rank},
          "status": {{
            "init_state": 0,
            "async_error": {error},
            "finalize_called": false,
            "destroy_flag": false,
            "abort_flag": false
          }},
          "collective_counts": {{
            "Broadcast": 14,
            "Reduce": 0,
            "AllGather": 40210,
            "ReduceScatter": 0,
            "AllReduce": {count}
          }}
        }}"""
MISSING = """        {{
          "rank": {rank},
          "host": "10.12.0.5{node}",
          "pid": {pid},
          "cuda_dev": {rank},
          "nvml_dev": {rank}{comma}
          "status": {{
            "unresponsive": true,
            "considered_dead": {dead}
          }}
        }}"""


def document(version: str = "2.29.2", *, comma: str = ",", dead: str = "false") -> str:
    ranks = ",\n".join(
        RANK.format(
            rank=rank, node=1 + rank // 2, pid=5100 + rank, count=88120 - 8 * (rank == 2), error=6 * (rank == 1)
        )
        for rank in range(3)
    )
    return f"""{{
  "nccl_version": "{version}",
  "cuda_runtime_version": 13000,
  "cuda_driver_version": 13000,
  "timestamp": "2026-10-19 14:22:07",
  "communicators_count": 1,
  "communicators": [
    {{
      "hash": "0x7f1c2a99d0be4410",
      "secondary_hash": "0xa5b39e3ce371e9a1:0x94ce74ddff5c8468",
      "size": 4,
      "ranks_count": 3,
      "missing_ranks_count": 1,
      "ranks": [
{ranks}
      ],
      "missing_ranks": [
{MISSING.format(rank=3, node=2, pid=5103, comma=comma, dead=dead)}
      ]
    }}
  ],
  "ras": {{
    "collection_time_sec": 0.001,
    "timeouts_count": 0
  }}
}}
"""


def of(facts: list[Fact], kind: str) -> list[Fact]:
    return [fact for fact in facts if fact.kind == kind]


def test_json() -> None:
    text = document()
    json.loads(text)
    facts = facts_of(text, "ras.json")
    counts = of(facts, "ras_counts")
    assert [(fact["rank_in_comm"], fact.who.host, fact.who.pid, fact["size"], fact["comm"]) for fact in counts] == [
        (0, "10.12.0.51", 5100, 4, "0x7f1c2a99d0be4410"),
        (1, "10.12.0.51", 5101, 4, "0x7f1c2a99d0be4410"),
        (2, "10.12.0.52", 5102, 4, "0x7f1c2a99d0be4410"),
    ]
    assert [fact["counts"]["AllReduce"] for fact in counts] == [88120, 88120, 88112]
    assert [fact["async_error"] for fact in counts] == [None, 6, None]
    (missing,) = of(facts, "ras_missing")
    assert (missing["rank_in_comm"], missing.who.pid, missing["unresponsive"], missing["dead"]) == (
        3,
        5103,
        True,
        False,
    )
    (status,) = of(facts, "ras_status")
    assert (status["present"], status["missing"], status["size"], status["version"]) == (3, 1, 4, "2.29.2")


def test_lines_are_those_of_the_rank() -> None:
    text = document()
    for fact in facts_of(text, "ras.json"):
        if fact.kind in ("ras_counts", "ras_missing"):
            assert text.split("\n")[(fact.spot.line or 0) - 1].strip() == f'"rank": {fact["rank_in_comm"]},'


def test_json_without_its_comma() -> None:
    """2.28.7 to 2.28.9: no comma after "nvml_dev" of a missing rank."""
    broken = document("2.28.9", comma="", dead="true")
    try:
        json.loads(broken)
        raise AssertionError("meant to be invalid")
    except ValueError:
        pass
    facts = facts_of(broken, "ras.json")
    assert len(of(facts, "ras_counts")) == 3
    (missing,) = of(facts, "ras_missing")
    assert missing["dead"] is True and missing.who.pid == 5103


def test_several_polls_in_one_file() -> None:
    facts = facts_of("$ ncclras -f json\n" + document() + document(), "ras.json")
    assert [fact["poll"] for fact in of(facts, "ras_counts")] == [1, 1, 1, 2, 2, 2]


def test_one_line_json() -> None:
    facts = facts_of(json.dumps(json.loads(document())), "ras.json")
    assert len(of(facts, "ras_counts")) == 3 and {fact.spot.line for fact in facts} == {1}


def test_sniff_takes_no_other_json() -> None:
    assert sniff(document().encode(), "x")
    assert not sniff(b'{"communicators": [], "other": 1}', "x")
    assert not sniff(b'{"nccl_version": "2.28.9", "entries": [{"rank": 0}]}', "x")
    assert not sniff(b'step 1\n{"nccl_version": "2.28.9", "communicators_count": 0, "communicators": []}', "x")
    assert not sniff(b"", "x")


@given(st.integers(0, 4000))
def test_cut_off(length: int) -> None:
    """Whatever part of the file is left, what it still says in full is read and the break is told."""
    text = document()
    evidence = Evidence()
    read_piece("ras.json", text[:length].encode(), evidence)
    whole = [essence(fact) for fact in facts_of(text, "ras.json") if fact.kind == "ras_counts"]
    part = [essence(fact) for fact in evidence.facts if fact.kind == "ras_counts"]
    assert [found[:4] for found in part] == [found[:4] for found in whole[: len(part)]]
    if sniff(text[:length].encode(), "x") and not text[:length].rstrip().endswith("}"):
        assert evidence.gaps


TABLE = """Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE,MISMATCH
    1         8         4         1         4        32   RUNNING      OK
"""
TEXT_224 = (
    TABLE
    + """
Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
  Rank 5 has launched up to operation 6640 -- GPU 5 managed by process 483077 on node 172.16.64.210
"""
)
TEXT_226 = (
    TABLE
    + """
DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213

#0-0 (cf264af53edbe986) ERROR
  Asynchronous error on 1 rank
  Rank 20 reported Remote process error -- GPU 4 managed by process 3487983 on node 172.16.64.213

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different status
  30 ranks have status RUNNING
  Rank 4 has status ABORT -- GPU 4 managed by process 507289 on node 172.16.64.210
  Communicator ranks have different AllReduce operation counts
  31 ranks have launched up to operation 650
  Rank 3 has launched up to operation 642 -- GPU 3 (NVML 7) managed by process 483075 on node 172.16.64.210
  Communicator ranks have different Broadcast operation counts
  31 ranks have launched up to operation 1
  Rank 3 has not launched any operations -- GPU 3 managed by process 483075 on node 172.16.64.210
"""
)


def test_text_of_224() -> None:
    facts = facts_of(TEXT_224, "ras.txt")
    counts = of(facts, "ras_counts")
    assert [
        (fact["rank_in_comm"], fact["counts"], fact.who.pid, fact.who.host, fact["size"], fact["comm"])
        for fact in counts
    ] == [
        (0, {"all": 6649}, 483072, "172.16.64.210", 32, "cf264af53edbe986"),
        (2, {"all": 6649}, 483074, "172.16.64.210", 32, "cf264af53edbe986"),
        (5, {"all": 6640}, 483077, "172.16.64.210", 32, "cf264af53edbe986"),
    ]
    assert counts[0]["sets"] == {6650: 26, 6649: 2, 6640: 1}
    process, rank = of(facts, "ras_missing")
    assert (process.who.pid, process["rank_in_comm"]) == (3487984, None)
    assert (rank["rank_in_comm"], rank["comm"]) == (21, "cf264af53edbe986")
    assert {(fact["status"], fact["errors"]) for fact in of(facts, "ras_status")} >= {
        ("RUNNING", "INCOMPLETE,MISMATCH"),
        ("RUNNING", "OK"),
    }


def test_text_of_226() -> None:
    facts = facts_of(TEXT_226, "ras.txt")
    assert [(fact["rank_in_comm"], fact["counts"]) for fact in of(facts, "ras_counts")] == [
        (3, {"AllReduce": 642}),
        (3, {"Broadcast": 0}),
    ]
    dead, rank = of(facts, "ras_missing")
    assert dead["dead"] is True and dead.who.pid == 3487984
    assert (rank["rank_in_comm"], rank.who.pid) == (21, 3487984)
    assert any(
        fact["errors"] == "Remote process error" and fact["rank_in_comm"] == 20 for fact in of(facts, "ras_status")
    )


# What differs by version (src/ras/client_support.cc): 2.24 and 2.25 alike; from 2.26 to 2.28.3; from 2.28.7 on.
MISSING_OF = {
    "2.24.3": "  The missing ranks: 21,23",
    "2.25.1": "  The missing ranks: 21,23",
    "2.26.6": "  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213\n  Rank 23 -- [process information not found]",
    "2.28.3": "  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213\n  Rank 23 -- [process information not found]",
    "2.30.7": "  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213\n  Rank 23 -- [process information not found]",
}
COUNTS_OF = {version: "collective" if version < "2.26" else "AllGather" for version in MISSING_OF}


@pytest.mark.parametrize("version", MISSING_OF)
def test_text_of_every_version(version: str) -> None:
    text = f"""NCCL version {version} compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... ({0.21 if version < "2.28" else 0.214}s)
=============

{TABLE}
Errors
======

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 2 ranks
{MISSING_OF[version]}

Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different status
  28 ranks have status RUNNING
  2 ranks have status {"UNKNOWN" if version < "2.26" else "NOCOMM"}
  Communicator ranks have different {COUNTS_OF[version]} operation counts
  29 ranks have launched up to operation 650
  Rank 3 has launched up to operation 642 -- [process information not found]
"""
    facts = facts_of(text, "ras.txt")
    assert {fact["rank_in_comm"] for fact in of(facts, "ras_missing")} == {21, 23}
    (count,) = of(facts, "ras_counts")
    name = "all" if version < "2.26" else "AllGather"
    assert (count["counts"], count["sets"], count["poll"]) == ({name: 642}, {650: 29, 642: 1}, 1)
    assert [fact["version"] for fact in of(facts, "nccl_version")] == [version]


def test_polls_of_one_file_are_counted() -> None:
    text = "$ ncclras\n" + TABLE + TEXT_226.removeprefix(TABLE) + "$ ncclras\n" + TABLE + TEXT_226.removeprefix(TABLE)
    assert [fact["poll"] for fact in of(facts_of(text, "ras.txt"), "ras_counts")] == [1, 1, 2, 2]


MONITORED = """{{
  "timestamp": "2026-02-19 13:07:07",
  "group": "LIFECYCLE",
  "event": "{event}",
  "peer": {{
    "host": "172.16.64.245",
    "pid": 1524345,
    "cuda_devs": [1],
    "nvml_devs": [1]
  }},
  "details": "{details}"
}}
"""


def test_monitor_in_json() -> None:
    text = MONITORED.format(event="PEER_NEW", details="") + MONITORED.format(
        event="PEER_DEAD", details="connection lost"
    )
    (fact,) = facts_of(text, "ras_events.json")
    assert (fact.kind, fact.who.host, fact.who.pid, fact["dead"], fact.clock) == (
        "ras_missing",
        "172.16.64.245",
        1524345,
        True,
        "wall",
    )
    assert "PEER_DEAD" in text.split("\n")[(fact.spot.line or 0) - 1]


def test_monitor_tells_who_came_back() -> None:
    head = " [2026-02-19 13:0{}:07] {}: Process 1524345 on node 172.16.64.245 managing GPU 1"
    text = "\n".join((head.format(7, "PEER_UNRESPONSIVE"), head.format(8, "PEER_RECOVERED")))
    assert [(fact["unresponsive"], fact["dead"]) for fact in facts_of(text, "ras.txt")] == [
        (True, False),
        (False, False),
    ]


def test_monitor() -> None:
    (fact,) = facts_of(
        " [2025-12-19 13:07:07] PEER_DEAD: Process 1524345 on node 172.16.64.245 managing GPU 1", "ras.txt"
    )
    assert (fact.kind, fact.who.pid, fact.who.host, fact["dead"]) == ("ras_missing", 1524345, "172.16.64.245", True)


@given(st.integers(0, 2**32))
def test_text_survives_noise(seed: int) -> None:
    text = random.Random(seed).choice((TEXT_224, TEXT_226))
    found = [essence(fact) for fact in facts_of(disturbed(text.split("\n"), seed), "job.log")]
    assert all(essence(fact) in found for fact in facts_of(text, "job.log"))
