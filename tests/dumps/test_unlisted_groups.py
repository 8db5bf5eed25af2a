"""Dumps of PyTorch 2.2 list no members of groups: what regular layouts leave open must stay open, the rest must come out."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from bench.dumps_judge import Row
from lab.simulate import incident
from lab.simulate.draw import Wishes
from test_simulated import SEED, answered, shown

from whichrank.evidence import read
from whichrank.job.build import build
from whichrank.job.collectives import Collectives
from whichrank.job.layouts import layouts

GROUPS_DECIDE = ("gpu_hang", "dead", "missing_send", "missing_recv", "skipped_collective", "uneven_data")
HARD = ("network", "split_mismatch", "dtype_mismatch")
COUNT = 5  # of each kind


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    kinds = GROUPS_DECIDE + HARD
    wishes = Wishes(worlds=(8, 12, 16), kinds=kinds, backend="nccl", version="list", missing=0.0, ring=2000)
    with tempfile.TemporaryDirectory() as folder:
        return [answered(number, wishes, Path(folder)) for number in range(COUNT * len(kinds))]


def test_faults_within_small_groups_are_named(rows: list[Row]) -> None:
    told = [row for row in rows if row.truth["identifiable"] and row.truth["kind"] in GROUPS_DECIDE]
    wrong = [row for row in told if not row.exact]
    assert len(told) >= 20
    assert 4 * len(wrong) <= len(told), shown(wrong)


def test_nothing_is_sure_that_is_wrong(rows: list[Row]) -> None:
    assert not [row for row in rows if row.names_innocent], shown(rows)
    assert sum(row.falsely_sure for row in rows) <= 1, shown([row for row in rows if row.falsely_sure])


def test_what_rests_on_inferred_groups_is_never_proven(rows: list[Row]) -> None:
    inferred = [row for row in rows if row.answer.mechanism == "gpu_hang"]
    assert inferred and all(row.answer.rank_grade != "proven" for row in inferred), shown(inferred)


def table(folder: Path, **wishes: object) -> tuple[Collectives, dict[str, int]]:
    made = incident.make(SEED, 0, Wishes(backend="nccl", missing=0.0, ring=2000, scheme="plain", **wishes))  # type: ignore[arg-type]
    made.write(folder)
    found = build(read([str(folder)]))[0].table
    assert found is not None
    return found, made.truth["layout"]


def test_the_true_groups_are_among_the_layouts(tmp_path: Path) -> None:
    """4 pipelines of 2 stages, 2 tensor shards: gathers show sizes, sends show places."""
    found, _ = table(tmp_path, kinds=("gpu_hang",), layout=(2, 2, 4, 1), style="fsdp", version="list")

    left = layouts(found)

    data = {tuple(stage * 8 + shard + 2 * replica for replica in range(4)) for stage in (0, 1) for shard in (0, 1)}
    pipes = {(rank, rank + 8) for rank in range(8)}
    members = [{group.members for group in each.groups if group.inferred} for each in left]
    assert any(data <= one and pipes <= one for one in members), members[:3]
    assert all(pipes <= one for one in members), "who sends to whom stands in the names of the calls"


def test_what_is_listed_is_not_inferred(tmp_path: Path) -> None:
    found, _ = table(tmp_path, kinds=("gpu_hang",), layout=(2, 2, 4, 1), version="2.4")

    assert layouts(found) == []


def test_every_rank_keeps_its_calls_in_a_layout(tmp_path: Path) -> None:
    found, _ = table(tmp_path, kinds=("host_stuck",), layout=(2, 2, 2, 1), style="ddp", version="list")
    for each in layouts(found):
        for rank, ring in each.rings.items():
            assert len(ring) == len(found.rings[rank])
            assert sorted(map(repr, ring.places.values())) == sorted(map(repr, found.rings[rank].places.values()))
            assert all(rank in each.groups[number].members for number in ring.places if each.groups[number].inferred)
