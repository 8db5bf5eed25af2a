"""What is behind a history: properties that hold whatever it holds, and each sort of culprit once."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_histories import bad_node, nobody, runs, somebody

from whichrank.history.answer import why
from whichrank.history.incident import History, Run
from whichrank.history.why import SURE, Findings, find

HOUR = 3600.0


def summary(found: Findings) -> list[tuple[object, ...]]:
    return [(one.kind, one.name, one.hits, one.of, round(one.posterior, 6), one.confounded) for one in found.patterns]


def answer(history: History, **more: object) -> tuple[str, str]:
    patterns = find(history, **more).patterns  # type: ignore[arg-type]
    return (patterns[0].kind, patterns[0].name) if patterns else ("undecided", "")


seeds = st.integers(0, 10_000)


@settings(max_examples=25)
@given(seeds, st.randoms(use_true_random=False))
def test_the_order_of_incidents_and_runs_does_not_matter(seed: int, dice: random.Random) -> None:
    made = bad_node(hits=6, nodes=24, seed=seed)
    mixed_runs, mixed = list(made.runs), list(made.incidents)
    dice.shuffle(mixed_runs)
    dice.shuffle(mixed)

    found, other = find(made), find(History.of(mixed_runs, mixed))

    assert summary(found) == summary(other)
    for one, same in zip(found.patterns, other.patterns, strict=True):
        assert {made.incidents[place] for place in one.incidents} == {mixed[place] for place in same.incidents}


@settings(max_examples=25)
@given(seeds, st.sampled_from([bad_node, None]))
def test_renaming_hosts_renames_the_answer_and_changes_nothing_else(seed: int, plant: object) -> None:
    made = bad_node(6, 24, seed) if plant else nobody(12, 24, seed)
    names = [f"gn{number:03}" for number in range(24)]
    others = names[:]
    random.Random(seed + 1).shuffle(others)
    new = {name: f"x-{other}" for name, other in zip(names, others, strict=True)}
    renamed = History.of(
        [replace(run, placement=tuple((new[host], count) for host, count in run.placement)) for run in made.runs],
        [replace(one, host=new[one.host] if one.host else None) for one in made.incidents],
    )

    found, other = find(made), find(renamed)

    assert [
        (one.kind, new.get(one.name, one.name), one.hits, round(one.posterior, 6))
        for one in found.patterns
        if one.kind == "node"
    ] == [(one.kind, one.name, one.hits, round(one.posterior, 6)) for one in other.patterns if one.kind == "node"]
    assert len(found.patterns) == len(other.patterns)


@settings(max_examples=25)
@given(seeds)
def test_a_success_that_avoided_a_node_says_nothing_about_it(seed: int) -> None:
    """A healthy run elsewhere, of the same hours: no evidence for or against, as far as blames within runs go."""
    made = bad_node(6, 24, seed)
    failed = {one.run for one in made.incidents}
    only = History.of([run for run in made.runs if run.id in failed], made.incidents)
    avoided = [run for run in runs(5, 12, seed + 1) if "gn001" not in dict(run.placement)]
    more = History.of(
        [*only.runs, *(replace(run, id=f"h{run.id}", began=None, ended=None) for run in avoided)], made.incidents
    )

    before = {one.name: one for one in find(only).weighed if one.kind == "node"}
    after = {one.name: one for one in find(more).weighed if one.kind == "node"}

    assert before["gn001"].log_bf == pytest.approx(after["gn001"].log_bf)
    assert before["gn001"].hits == after["gn001"].hits


@settings(max_examples=25)
@given(seeds, st.integers(0, 40), st.integers(2, 60))
def test_bad_luck_is_rarely_called_anything(seed: int, count: int, nodes: int) -> None:
    """The rate is measured by bench/history_calibration.py; here: nothing breaks, and every answer keeps its promises."""
    found = find(nobody(count, max(4, nodes), seed))

    for one in found.patterns:
        assert (
            one.hits >= 3 and 0.75 <= one.posterior <= 1 and one.hits > one.expected and len(one.incidents) == one.hits
        )
    assert all(0 <= one.posterior <= 1 for one in found.weighed)


def test_nothing_is_found_in_most_histories_of_bad_luck() -> None:
    assert sum(bool(find(nobody(15, 30, seed)).patterns) for seed in range(60)) <= 5


@pytest.mark.parametrize("seed", range(5))
def test_a_bad_node(seed: int) -> None:
    assert answer(bad_node(hits=8, nodes=30, seed=seed)) == ("node", "gn001")


def test_twice_on_a_node_is_no_answer() -> None:
    dice = random.Random(3)
    made = runs(10, 64, seed=3, each=16)
    found = [somebody(run, dice) for run in made[:8]]
    twice = [replace(one, rank=0, host=run.placement[0][0]) for one, run in zip(found, made, strict=False)]
    same = [
        replace(run, placement=(("gn060", 8), *(row for row in run.placement[1:] if row[0] != "gn060")))
        for run in made[:2]
    ]
    history = History.of(
        [*same, *made[2:]], [replace(twice[0], host="gn060"), replace(twice[1], host="gn060"), *found[2:]]
    )

    assert find(history).patterns == ()


def test_a_node_and_a_rank_that_never_parted_are_confounded() -> None:
    dice = random.Random(1)
    placement = tuple((f"gn{place:03}", 8) for place in range(4))
    made = [
        Run(f"r{number}", "", 1.7e9 + 1e5 * number, 1.7e9 + 1e5 * number + 9e4, placement, 32) for number in range(8)
    ]
    found = find(History.of(made, [somebody(run, dice, rank=13, host="gn001") for run in made]))

    best = found.patterns[0]
    assert best.confounded and {"rank 13"} <= {best.name, *best.confounded}
    assert any("gn001" in name for name in (best.name, *best.confounded))
    told = why(History.of(made, [somebody(run, dice, rank=13, host="gn001") for run in made]))
    assert "rotated" in told.action and "gn001" in told.action and "rank 13" in told.action


def test_the_same_rank_on_new_nodes() -> None:
    dice = random.Random(2)
    made = runs(8, 40, seed=2)
    history = History.of(made, [somebody(run, dice, rank=13, host=run.host_of(13)) for run in made])

    assert answer(history) == ("rank", "rank 13")


def test_one_gpu_of_a_node() -> None:
    dice = random.Random(4)
    made = [run for run in runs(150, 30, seed=4) if "gn001" in dict(run.placement)][:9]
    found = []
    for run in made:
        rank = [host for host, _ in run.placement].index("gn001") * 8 + 5
        found.append(somebody(run, dice, rank=rank, host="gn001"))

    assert answer(History.of(made, found)) == ("gpu", "GPU 5 of gn001")


def test_a_rack_by_topology() -> None:
    dice = random.Random(5)
    made = runs(14, 64, seed=5, each=8)
    racks = {f"gn{number:03}": f"r{number // 8}" for number in range(64)}
    found = []
    for run in made:
        under = [place for place, (host, _) in enumerate(run.placement) if racks[host] == "r3"]
        rank = (dice.choice(under) * 8 + dice.randrange(8)) if under else dice.randrange(64)
        found.append(somebody(run, dice, rank=rank, host=run.host_of(rank)))

    assert answer(History.of(made, found), topology={"rack": racks}) == ("domain", "rack r3")


@pytest.mark.parametrize("racks", [3, 8, 20])
def test_a_topology_of_the_whole_cluster_may_know_more_racks_than_the_runs_had_hosts_and_not_every_host(
    racks: int,
) -> None:
    made = bad_node(hits=6, nodes=8, seed=1)
    homes = {f"gn{number:03}": f"r{number % racks}" for number in range(7)} | {
        f"other{number}": f"r{number}" for number in range(racks)
    }
    alone = find(made).weighed
    found = find(made, {"rack": homes}).weighed

    assert {one.name for one in found if one.kind == "node"} == {one.name for one in alone if one.kind == "node"}
    assert any(one.kind == "domain" for one in found)


@pytest.mark.parametrize("field", ["shard", "sample"])
def test_the_same_data(field: str) -> None:
    dice = random.Random(6)
    made = runs(7, 40, seed=6)
    named = [{field: "p-0417" if number < 5 else f"p-{number}"} for number in range(7)]
    history = History.of(made, [somebody(run, dice, **more) for run, more in zip(made, named, strict=True)])

    assert answer(history) == (field, "p-0417")


def test_the_same_step_from_different_starts() -> None:
    dice = random.Random(7)
    made = runs(6, 40, seed=7)
    history = History.of(
        made, [somebody(run, dice, step=41_217, from_step=1000 * number) for number, run in enumerate(made)]
    )

    assert answer(history)[0] == "step"


def test_a_crash_loop_from_one_checkpoint_is_no_pattern_of_steps() -> None:
    """Each run fails within some twenty steps of where it resumed: they agree in their step by that alone."""
    dice = random.Random(8)
    made = runs(6, 40, seed=8)
    history = History.of(made, [somebody(run, dice, step=4003 + dice.randrange(20), from_step=4000) for run in made])

    assert answer(history)[0] != "step"


def test_bursts_over_unrelated_runs() -> None:
    dice = random.Random(9)
    made, found = [], []
    for number in range(24):
        placed = tuple((f"gn{place:03}", 8) for place in dice.sample(range(60), 4))
        begin = 1.7e9 + dice.uniform(0, 6 * 86400)
        outage = 1.7e9 + (7 + number // 4) * 93_000 + dice.uniform(0, 300)  # at no hour in particular
        made.append(Run(f"r{number:02}", "", begin, outage, placed, 32))
        found.append(somebody(made[-1], dice, at=outage, cause="slow_storage", family="straggler"))

    assert find(History.of(made, found)).patterns[0].kind in ("burst", "service")


def test_one_run_that_crashes_again_and_again_is_no_burst() -> None:
    dice = random.Random(10)
    placed = tuple((f"gn{place:03}", 8) for place in range(16))
    made = [
        Run(f"r{number}", "", 1.7e9 + 400 * number, 1.7e9 + 400 * number + 390, placed, 128) for number in range(12)
    ]
    history = History.of(made, [somebody(run, dice, at=run.ended) for run in made])

    assert answer(history)[0] not in ("burst", "window")


def test_the_same_hours_on_different_days() -> None:
    dice = random.Random(11)
    made = [
        Run(f"r{day}", "", 1.7e9 // 86400 * 86400 + day * 86400, 1.7e9 // 86400 * 86400 + day * 86400 + 27 * HOUR + dice.uniform(0, 1800),
            tuple((f"gn{place:03}", 8) for place in dice.sample(range(60), 4)), 32)
        for day in range(0, 16, 2)
    ]  # fmt: skip

    kind, name = answer(History.of(made, [somebody(run, dice, at=run.ended) for run in made]))

    assert kind == "window" and name in ("03:00 to 04:00 UTC", "02:30 to 03:30 UTC")


def test_exposure_a_node_that_runs_ten_times_as_long_may_fail_ten_times_as_often() -> None:
    """Runs on one node each: the busy one has half of all hours and half of all incidents."""
    dice = random.Random(12)
    busy = [
        Run(f"b{number:02}", "", 1e9 + 1e6 * number, 1e9 + 1e6 * number + 36_000, (("busy", 8),), 8)
        for number in range(20)
    ]
    other = [
        Run(f"o{number:02}", "", 1e9 + 1e6 * number + 5e5, 1e9 + 1e6 * number + 536_000, ((f"n{number}", 8),), 8)
        for number in range(20)
    ]
    found = [somebody(run, dice) for run in (*busy[:6], *other[:6])]

    assert answer(History.of([*busy, *other], found))[0] == "undecided"


def test_two_causes_mixed_are_both_found() -> None:
    dice = random.Random(13)
    one = bad_node(hits=8, nodes=30, seed=13, others=0)
    more = runs(6, 30, seed=14)
    shard = [somebody(replace(run, id=f"s{run.id}"), dice, sample="clip 9") for run in more]
    found = find(History.of([*one.runs, *(replace(run, id=f"s{run.id}") for run in more)], [*one.incidents, *shard]))

    assert {(pattern.kind, pattern.name) for pattern in found.patterns} >= {("node", "gn001"), ("sample", "clip 9")}


def test_suspicion_ages() -> None:
    """A node that was bad two years ago and spared since is no suspect with a half-life of a month."""
    old = bad_node(hits=6, nodes=20, seed=15, others=0)
    dice = random.Random(15)
    later = [
        replace(run, id=f"l{run.id}", began=(run.began or 0) + 7e7, ended=(run.ended or 0) + 7e7)
        for run in runs(60, 20, seed=16)
    ]
    new = []
    for run in later[:8]:
        rank = dice.choice([rank for rank in range(32) if run.host_of(rank) != "gn001"])
        new.append(somebody(run, dice, rank=rank, host=run.host_of(rank)))
    history = History.of([*old.runs, *later], [*old.incidents, *new])

    def suspicion(**more: float) -> float:
        return max((one.posterior for one in find(history, **more).weighed if one.name == "gn001"), default=0.0)  # type: ignore[arg-type]

    assert suspicion() > 0.3 > 0.1 > suspicion(half_life_days=30)


def test_repeats_of_one_failure_count_once() -> None:
    made = bad_node(hits=2, nodes=30, seed=17)
    loop = [
        replace(made.incidents[0], attempt=number, at=(made.incidents[0].at or 0) + 120 * number)
        for number in range(1, 12)
    ]
    found = find(History.of(made.runs, [*made.incidents, *loop]))

    assert found.coalesced == 11 and found.patterns == ()


@settings(max_examples=25)
@given(seeds)
def test_the_json_holds_what_pictures_need(seed: int) -> None:
    made = bad_node(6, 24, seed)
    data = why(made).to_json()

    heat = data["heat"]
    assert len(heat["cells"]) == len(heat["hosts"]) and all(len(row) == len(heat["incidents"]) for row in heat["cells"])
    assert sum(cell == 2 for row in heat["cells"] for cell in row) == len(made.incidents)
    assert sum(row["incidents"] for row in data["by"]["node"]) == len(made.incidents)
    assert all(0 <= bar["posterior"] <= 1 for bar in data["posterior"])
    assert data["confidence"] >= SURE or data["answer"] == "undecided" or data["confidence"] >= 0.75
