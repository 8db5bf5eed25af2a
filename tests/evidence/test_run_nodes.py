"""What other nodes told the one that speaks: `node` in events.jsonl."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from whichrank.evidence import run_events
from whichrank.facts import Fact, Source

TOLD = 1_796_064_665_000_000_000
RAISED = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    main()
  File "train.py", line 4, in main
    raise ValueError("labels out of range: 1001")
ValueError: labels out of range: 1001
"""
WAITS = {
    "rank": 4, "pid": 41, "local_rank": 0, "step": 60, "phase": "collective", "since": TOLD / 1e9 - 12, "op": "all_reduce",
    "group": "default_pg", "seq": 66, "waits": True,
}  # fmt: skip
DEAD = {"rank": 5, "pid": 42, "at": TOLD / 1e9 - 2, "raised": RAISED, "raised_at": TOLD / 1e9 - 3, "signal": None}


def node(**more: Any) -> dict[str, Any]:
    known = {
        "kind": "node",
        "wall_ns": TOLD + 7,
        "mono_ns": 5,
        "host": "n2",
        "number": 1,
        "told_ns": TOLD,
        "attempt": 0,
    }
    return {**known, "world": 8, "ranks": [], "ended": [], **more}


def read(*events: dict[str, Any]) -> list[Fact]:
    data = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events).encode()
    return [fact for fact in run_events.read(data, Source("events.jsonl")) if isinstance(fact, Fact)]


def test_a_rank_that_waits_and_one_that_raised() -> None:
    member, phase, end, raised = read(node(ranks=[WAITS], ended=[DEAD]))
    assert (member.kind, member.rank, member.who.host, member["world_size"]) == ("member", 4, "n2", 8)
    assert (phase.kind, phase["name"], phase["seconds"], phase["op"], phase.group, phase.seq) == (
        "phase", "collective", 12.0, "all_reduce", "default_pg", 66,
    )  # fmt: skip
    assert (end.kind, end.rank, end["raised"], end["in_order"]) == ("rank_end", 5, True, False)
    assert (raised.kind, raised["type"], raised.rank) == ("exception", "ValueError", 5)
    assert {fact.spot.line for fact in (member, phase, end, raised)} == {1}


def test_a_signal_that_the_kernel_showed() -> None:
    facts = read(node(ended=[{**DEAD, "raised": None, "signal": 9}]))
    assert [(fact.kind, fact["signal"]) for fact in facts] == [("rank_end", None), ("exit", 9)]


def test_the_last_word_of_a_node_counts_and_none_from_before_it_went_on() -> None:
    later = node(ranks=[{**WAITS, "phase": "data"}])
    assert [fact["name"] for fact in read(node(ranks=[WAITS]), later) if fact.kind == "phase"] == ["data"]
    passed = {"kind": "passed", "wall_ns": TOLD + 9, "mono_ns": 6, "ranks": [4]}
    assert not [fact for fact in read(node(ranks=[WAITS]), passed) if fact.kind == "phase"]


def test_an_end_that_was_told_to_is_said_to_be() -> None:
    end = {"kind": "rank_ended", "wall_ns": TOLD, "mono_ns": 5, "rank": 1, "pid": 7, "in_order": False, "told": True}
    assert [fact["told"] for fact in read(end)] == [True]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*WAITS, *DEAD]), inner, max_size=6),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["host", "number", "told_ns", "attempt", "world", "ranks", "ended"]), JUNK))
def test_nothing_that_a_node_could_say_is_too_much(said: dict[str, Any]) -> None:
    for fact in read(node(**said)):
        assert fact.rank is None or fact.rank >= 0
