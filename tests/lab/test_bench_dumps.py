"""What counts as right in the tables of bench/dumps.py, and how torchfrtrace's words are taken."""

from __future__ import annotations

from typing import Any

from bench.dumps_judge import Answer, Row, judge, modes
from bench.torchfrtrace_peer import first_block


def known(**changed: Any) -> dict[str, Any]:
    return {
        "kind": "host_stuck", "mechanism": "host_stuck", "also_accepted": [], "culprits": [3], "candidates": [3],
        "identifiable": True, "world": 8, **changed,
    }  # fmt: skip


def row(truth: dict[str, Any], named: list[int], mechanism: str, **more: Any) -> Row:
    return judge("0", truth, Answer(named, mechanism, **{"rank_grade": "likely", **more}))


def test_exactly_the_culprits_is_right_and_more_names_are_not() -> None:
    assert row(known(), [3], "host_stuck").exact
    assert not row(known(), [3, 4], "host_stuck").exact
    assert row(known(), [3, 4], "host_stuck").contained
    assert not row(known(), [3, 4, 5, 6], "host_stuck").contained
    assert row(known(culprits=[1, 2, 3, 4]), [1, 2, 3, 4], "host_stuck").contained


def test_an_innocent_is_false_certainty_only_with_a_grade() -> None:
    assert row(known(), [4], "host_stuck").falsely_sure
    assert not row(known(), [4], "host_stuck", rank_grade="possible").falsely_sure
    assert row(known(), [3], "mismatch").falsely_sure
    assert not row(known(), [3], "undecided").falsely_sure
    assert row(known(), [3], "host_stuck", cause="host_oom", grade="likely").falsely_sure


def test_a_cause_whose_mechanism_counts_as_right_is_too_sure_and_no_more() -> None:
    skipped = known(kind="skipped_collective", mechanism="desync", also_accepted=["deadlock"])
    said = row(skipped, [3], "deadlock", cause="desync_order", grade="likely")
    assert said.cause_too_sure
    assert not said.falsely_sure
    assert not row(skipped, [3], "desync", cause="desync_conditional", grade="likely").cause_too_sure


def test_a_fault_of_no_rank_wants_nobody_named_and_the_right_mechanism() -> None:
    network = known(kind="network", mechanism="network", culprits=[], candidates=[0, 1], group_ranks=[0, 1])
    assert row(network, [], "network", rank_grade="undecided", group_ranks=[0, 1]).group
    assert not row(network, [], "undecided", rank_grade="undecided").exact
    assert row(network, [0], "network").falsely_sure


def test_a_sound_job_has_no_culprit_to_find_but_hangs_to_invent() -> None:
    sound = known(kind="healthy", mechanism="no_hang", culprits=[], candidates=[])
    assert row(sound, [], "no_hang", rank_grade="undecided").exact is None
    assert row(sound, [], "no_hang", rank_grade="undecided").claims_hang is False
    assert row(sound, [], "undecided", rank_grade="undecided").claims_hang is False
    assert row(sound, [], "network", rank_grade="undecided").claims_hang
    assert row(sound, [2], "undecided", rank_grade="possible").claims_hang


def test_json_and_logs_have_their_own_words() -> None:
    truth = known(
        kind="skip", mechanism="desync", cause="desync_conditional", also_accepted_causes=[],
        without_frames={"also_accepted": ["mismatch"], "also_accepted_causes": ["undecided"]},
        with_logs={"also_accepted": [], "also_accepted_causes": []}, mode={"frames": "python"},
    )  # fmt: skip
    said = Answer([3], "mismatch", "likely")
    assert judge("0", truth, said, "JSON").mechanism
    assert judge("0", truth, said, "JSON").cause
    assert not judge("0", truth, said, "dumps and logs").mechanism
    assert "frames off" in modes(truth, "JSON")
    assert "frames python" in modes(truth)


def test_torchfrtrace_is_taken_at_its_first_accusation() -> None:
    waits = "Not all ranks joining collective, sequence number: 7\nmissing ranks: {3, 5}\nexpected ranks: {0, 3, 5}\n"
    errors = (
        "Collective sequence number: 7 has errors\nerror msg: Culprit rank 2; Error type: COLLECTIVE_TYPE_MISMATCH, x\n"
    )
    lost = "We cannot decide what's wrong with this collective entry because we missed FR dumps from ranks ({1})\n"
    assert first_block(lost + waits + errors)["named"] == [3, 5]
    assert first_block(errors + waits) == {"named": [2], "mechanism": "mismatch", "error": ""}
    assert first_block(lost)["error"] == "decides nothing"
    assert first_block("")["error"] == "silent"
