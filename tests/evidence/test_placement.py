"""Notes on where ranks run, in the many ways people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, facts_of

from whichrank.evidence.placement import bus_id
from whichrank.facts import Fact


def members(text: str) -> list[Fact]:
    return [fact for fact in facts_of(text, "layout.txt") if fact.kind == "member"]


def where(text: str) -> dict[int | None, str | None]:
    return {fact.rank: fact.who.host for fact in members(text)}


FOUR = {0: "node-a", 1: "node-a", 2: "node-b", 3: "node-b"}
BY_HOST = [
    "node-a: rank 0,1 ; node-b: rank 2,3",
    "node-a: ranks 0-1\nnode-b: ranks 2-3",
    "ranks 0-1: node-a\nranks 2-3: node-b",
    "rank 0..1 -> node-a\nrank 2..3 -> node-b",
    "node-a -> ranks 0..1\nnode-b -> ranks 2..3",
    "* node-a has ranks 0 to 1\n* node-b has ranks 2 and 3",
    "node-a (ranks 0-1)\nnode-b (ranks 2-3)",
    "ranks 0-1 on node-a, ranks 2-3 on node-b",
    '{"0": "node-a", "1": "node-a", "2": "node-b", "3": "node-b"}',
    '{\n "node-a": [0, 1],\n "node-b": [2, 3]\n}',
    "node-a slots=2\nnode-b slots=2",
    "node-a:2\nnode-b:2",
    "0: node-a\n1: node-a\n2: node-b\n3: node-b",
    "rank  host    gpu\n0  node-a  0\n1  node-a  1\n2  node-b  0\n3  node-b  1",
    "| rank | host |\n|---|---|\n| 0 | node-a |\n| 1 | node-a |\n| 2 | node-b |\n| 3 | node-b |",
    "rank,node,pid\n0,node-a,11\n1,node-a,12\n2,node-b,11\n3,node-b,12",
    "torchrun: node-a node_rank 0, node-b node_rank 1, 2 processes each",
    "node-a node-b : one rack\n2 GPUs a node, rank = node index * 2 + GPU",
    "hosts: node-a, node-b\nrank = node_rank * 2 + local_rank",
]


@pytest.mark.parametrize("text", BY_HOST)
def test_ways_to_write_it(text: str) -> None:
    assert where(text) == FOUR


def test_gpu_and_bus() -> None:
    fact = members("rank 3 cn-417 GPU 3 (0000:81:00.0)")[0]
    assert (fact.rank, fact.who.host, fact.who.gpu, fact["gpu_index"]) == (3, "cn-417", "0000:81:00.0", 3)
    assert members("rank 3 cn-417 GPU 3")[0].who.gpu == "3"


def test_pids_by_local_rank() -> None:
    found = members(
        "torchrun: vx-1 node_rank 0, vx-2 node_rank 1, 2 processes each\npids in local-rank order: vx-1 20100..20101, vx-2 20104..20105"
    )
    assert [(fact.rank, fact.who.local_rank, fact.who.pid) for fact in found] == [
        (0, 0, 20100),
        (1, 1, 20101),
        (2, 0, 20104),
        (3, 1, 20105),
    ]
    assert {fact["world_size"] for fact in found} == {4}


def test_children_of_a_rank() -> None:
    facts = facts_of("quoll03 task  0 pid 151220 readers 151270, 151271", "pids.txt")
    assert [(fact.kind, fact.who.pid, fact["ppid"]) for fact in facts if fact.kind == "process"] == [
        ("process", 151270, 151220),
        ("process", 151271, 151220),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "rank 3 was slow and rank 5 waited for step-12",
        "I think rank 0 is the culprit",
        "2026-11-30 05:12:44 rank 2 step 41184 loss 2.31",
        "layers 24  heads 12\nrank 0/8 host ayr-03 note\n24 12 4 4 4",
        "step 12: 4",
        '{"loss": 1.0, "step": 3}',
        "0: 2.31\n1: 2.33",
    ],
)
def test_what_is_no_placement(text: str) -> None:
    assert [fact for fact in members(text) if fact.who.host] in (
        [],
        [fact for fact in members(text) if fact.who.host == "ayr-03"],
    )


def test_long_texts_are_no_notes() -> None:
    assert members("\n".join(["x"] * 400 + ["node-a: ranks 0-1"])) == []


def test_absurd_ranges() -> None:
    assert members("node-a: ranks 0-99999999") == []


def test_visible_devices_and_bus_ids() -> None:
    text = "GPU index -> bus id on both: 0 18:00 1 2a:00 2 3a:00\ntorchrun runs with CUDA_VISIBLE_DEVICES=0,2,1 on hgx-32 (cable order)"
    facts = {fact.kind: fact for fact in facts_of(text, "note.txt")}
    assert facts["bus_ids"]["ids"] == [(0, "0000:18:00"), (1, "0000:2a:00"), (2, "0000:3a:00")]
    assert (facts["visible_devices"]["devices"], facts["visible_devices"].who.host) == ([0, 2, 1], "hgx-32")
    assert bus_id("00000000:BA:00.0") == "0000:ba:00"


@given(st.integers(0, 10_000), st.sampled_from(BY_HOST[:8]))
def test_facts_survive_what_happens_to_other_lines(seed: int, text: str) -> None:
    lines = text.split("\n")
    assert FOUR.items() <= where(disturbed(lines, seed)).items()
    assert FOUR.items() <= where(disturbed([*lines, *(line[: len(line) // 2] for line in lines)], seed)).items()
