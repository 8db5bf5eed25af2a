"""Preflights over real network namespaces with real faults: found, named, with what to do, and in time."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from lab import preflights, switched

WHY = switched.usable()
pytestmark = pytest.mark.skipif(WHY is not None, reason=WHY or "")
SCHEMA = json.loads((preflights.SOURCES / "whichrank" / "preflight" / "schema.json").read_text())
LONGEST = 60.0  # seconds, as promised
ASKED_FOR = (
    "blocked ports",
    "rate-limited link",
    "wrong interface",
    "missing rank",
    "unequal versions",
    "slow storage",
)
BY_NAME = {fault.name: fault for fault in preflights.FAULTS}
# The collective sweep is left out: with torch it is tested by tests/lab/test_preflight_torch.py.
QUICK = ("--skip", "collective")


CASES = [
    pytest.param(fault, id=fault.name.replace(" ", "-"), marks=[] if fault.name in ASKED_FOR else [pytest.mark.many])
    for fault in preflights.FAULTS
]


@pytest.mark.parametrize("fault", CASES)
def test_a_fault_is_found_and_named(fault: preflights.Fault) -> None:
    if why := preflights.possible(fault):
        pytest.skip(why)
    with preflights.prepared(3, fault.each) as made, fault.plant(made, 2):
        ended = preflights.run(made, more=QUICK)
        assert preflights.right(fault, made, 2, ended), (ended.findings(), ended.said)
    assert ended.seconds < LONGEST
    if ended.answer is not None:
        jsonschema.validate(ended.answer, SCHEMA)


@pytest.mark.parametrize("name", ["blocked ports", "rate-limited link", "wrong interface"])
def test_between_two_nodes(name: str) -> None:
    """With nobody to compare with: both ends are named, or the one that it can be told of."""
    fault = BY_NAME[name]
    if why := preflights.possible(fault):
        pytest.skip(why)
    with preflights.prepared(2, 2) as made, fault.plant(made, 0):
        ended = preflights.run(made, more=QUICK)
        assert preflights.right(fault, made, 0, ended), (ended.findings(), ended.said)


@pytest.mark.parametrize(("count", "each"), [(2, 1), (4, 2)])
def test_a_healthy_set_passes(count: int, each: int) -> None:
    with preflights.prepared(count, each) as made:
        ended = preflights.run(made, more=QUICK)
    assert ended.answer is not None, ended.said
    assert ended.answer["answer"] == "go", ended.answer["findings"]
    assert set(ended.codes.values()) == {0}
    assert ended.seconds < LONGEST
    jsonschema.validate(ended.answer, SCHEMA)
    between = [row for row in ended.answer["pairs"] if row["from"] != row["to"]]
    assert len(between) == count * (count - 1)
    assert all(row["reached"] == row["tried"] > 0 and row["gbps"] > 0 for row in between)
    assert not list(Path("/etc/netns").glob(f"*-{made.nodes.switch.partition('-')[2]}"))


def test_a_cut_off_rank_says_itself_whom_it_did_not_reach() -> None:
    fault = BY_NAME["node cut off"]
    with preflights.prepared(2, 1) as made, fault.plant(made, 1):
        ended = preflights.run(made, more=QUICK)
    assert "Rank 1 on node-b did not reach rank 0 at node-a port 29500" in ended.said[1]
    assert "do " in ended.said[1]


def test_nothing_of_ours_is_left_on_the_storage() -> None:
    with preflights.prepared(2, 2) as made:
        preflights.run(made, more=(*QUICK, "--skip", "bandwidth"))
        assert not list(made.data.iterdir())
