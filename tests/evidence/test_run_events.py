"""What `whichrank run` saw, read again: also cut, damaged, or of a later version."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from reading import facts_of

from whichrank.evidence import Evidence, read_piece

WALL = 1_796_064_653_345_895_877
CLOCKS = {"wall_ns": WALL, "mono_ns": 38_138_045_627_755}


def event(kind: str, **values: object) -> str:
    return json.dumps({"kind": kind, **CLOCKS, **values}, separators=(",", ":")) + "\n"


RANKS = "".join(
    event("rank", rank=rank, pid=100 + rank, local_rank=rank, world=2, attempt=0, host="n1") for rank in (0, 1)
)
STALL = event("stall", ranks=[1], waiting=[0], all_wait=False, phase="data", step=30, seconds=10.5)
PASSED = event("passed", ranks=[1], phase="data", seconds=40.0)
END = event("rank_ended", rank=1, pid=101, in_order=False, exception=False)
SILENT = event("mount_silent", mount="/data", type="nfs4", source="srv:/x", seconds=2.0, pid=101, rank=1, host="n1")
WHOLE = RANKS + STALL + SILENT + END


def test_each_event() -> None:
    found = facts_of(WHOLE, "run/events.jsonl")
    assert [fact.kind for fact in found] == ["member", "member", "stall", "mount_silent", "rank_end"]
    assert [(fact.rank, fact.who.host, fact.who.pid) for fact in found[:2]] == [(0, "n1", 100), (1, "n1", 101)]
    assert {fact.at_ns for fact in found} == {WALL} and {fact.clock for fact in found} == {"wall"}
    assert (found[3]["mount"], found[3].rank, found[4]["in_order"]) == ("/data", 1, False)
    assert found[2].spot.line == 3


def test_a_stall_that_passed() -> None:
    assert [fact["passed"] for fact in facts_of(STALL + PASSED + STALL, "x") if fact.kind == "stall"] == [True, False]


def test_a_launcher_that_was_killed() -> None:
    ended = facts_of(RANKS + event("ended", code=137, signal=9, pid=7), "x")[-1]
    assert (ended.kind, ended["signal"], ended.who.pid) == ("exit", 9, 7)
    assert [fact.kind for fact in facts_of(RANKS + event("ended", code=143, signal=15, pid=7), "x")] == ["member"] * 2


def test_what_was_lost_is_a_gap() -> None:
    evidence = Evidence()
    text = event("stacks", tool=None, why="py-spy is not installed") + event("records", ask=1, missing=[3])
    read_piece("events.jsonl", text.encode(), evidence)
    assert [gap.why.split(";")[0].split(" did")[0] for gap in evidence.gaps] == ["py-spy is not installed", "rank 3"]


def test_an_end_with_code_0_is_a_success() -> None:
    run = {"whichrank_run": 1, "id": "r", "ended": CLOCKS, "exit_code": 0}
    assert [fact.kind for fact in facts_of(json.dumps(run, indent=1), "run.json")] == ["success"]
    assert facts_of(json.dumps({**run, "exit_code": 1}, indent=1), "run.json") == []


def test_a_report_is_no_evidence() -> None:
    said = '{\n "schema_version": 1,\n "tool": "whichrank 0.1.0",\n "verdicts": [{"says": "Traceback"}]\n}\n'
    assert facts_of(said, "report.json") == []
    markdown = "**Rank 3 was killed: `[rank3]: RuntimeError: x`.**\n\n- cause: `killed` (proven)\n- rank: 3 (proven)\n"
    assert facts_of(markdown, "report.md") == []


@given(st.integers(0, len(WHOLE)))
def test_cut_anywhere(size: int) -> None:
    found = facts_of(WHOLE[:size], "events.jsonl") if size > 60 else []
    whole = facts_of(WHOLE, "events.jsonl")
    assert [fact.kind for fact in found] == [fact.kind for fact in whole[: len(found)]]


@given(st.integers(60, len(WHOLE) - 1), st.integers(0, 255))
def test_a_damaged_byte_costs_its_line(place: int, byte: int) -> None:
    data = bytearray(WHOLE.encode())
    data[place] = byte
    assert len(facts_of(bytes(data), "events.jsonl")) >= 3


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )
)
def test_values_of_any_sort(value: object) -> None:
    for kind, name in (
        ("rank", "rank"),
        ("stall", "ranks"),
        ("stall", "seconds"),
        ("mount_silent", "mount"),
        ("stacks", "failed"),
        ("records", "missing"),
        ("ended", "signal"),
    ):
        facts_of(RANKS + event(kind, **{name: value}), "events.jsonl")
