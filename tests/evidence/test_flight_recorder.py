"""Dumps as they are found: whole, broken, doubled, left over, without names. One that cannot be read is a gap."""

from __future__ import annotations

import json
import os
import pickle
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rings
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rings import culprits, dumped, gaps_of, written

from whichrank import diagnose
from whichrank.dump import Dump
from whichrank.evidence.flight_recorder import read
from whichrank.facts import Gap, Source
from whichrank.report import html, json_report, perfetto


def read_all(data: bytes, name: str = "comm_lib_trace_rank_1") -> list[Any]:
    return list(read(data, Source(name)))


def the_dump(data: bytes, name: str = "comm_lib_trace_rank_1") -> Dump:
    found = [item for item in read_all(data, name) if isinstance(item, Dump)]
    assert len(found) == 1
    return found[0]


def test_columns_hold_what_the_entries_say() -> None:
    dump = the_dump(dumped(1))
    assert (dump.rank, dump.backend, dump.version, len(dump)) == (1, "nccl", "2.10", 11)
    assert dump.seq.tolist() == list(range(1, 12))
    assert dump.open.tolist() == [False] * 10 + [True]
    assert [tuple(dump.groups[0].members or ())] == [(0, 1, 2, 3)]
    assert dump.created.tolist()[0] == rings.START + rings.STEP + 1000
    assert {dump.signatures[int(n)].inputs for n in dump.signature} == {((1024, n),) for n in range(3)}
    assert dump.sites[int(dump.site[0])][0] == ("step", "train.py", 41)


def test_between_processes_a_dump_stays_the_same() -> None:
    dump = the_dump(dumped(1))
    other = pickle.loads(pickle.dumps(dump))
    for name in (
        "record",
        "group",
        "name",
        "signature",
        "site",
        "seq",
        "kind",
        "open",
        "created",
        "completed",
        "timeout_ms",
    ):
        assert getattr(other, name).tolist() == getattr(dump, name).tolist(), name
    assert (other.groups, other.names, other.sites) == (dump.groups, dump.names, dump.sites)
    other.open[0] = True  # what is made of it may be corrected


def test_json_says_the_same_as_a_pickle() -> None:
    content = rings.content(1)
    as_json = json.dumps(
        {**content, "entries": [{k: v for k, v in e.items() if k != "frames"} for e in content["entries"]]}
    )
    one, other = the_dump(dumped(1)), the_dump(as_json.encode())
    assert one.seq.tolist() == other.seq.tolist() and one.open.tolist() == other.open.tolist()
    assert one.groups == other.groups and one.names == other.names


def test_the_stuck_rank_is_named(tmp_path: Path) -> None:
    assert culprits(diagnose([str(written(tmp_path / "run", world=8, stuck=5))])) == [5]


@pytest.mark.parametrize("broken", ["cut", "empty", "noise", "other pickle", "hostile"])
def test_a_broken_dump_is_a_gap_and_the_rest_is_diagnosed(tmp_path: Path, broken: str) -> None:
    folder = written(tmp_path / "run", world=8, stuck=5)
    data = {
        "cut": dumped(1, world=8, stuck=5)[:700],
        "empty": b"",
        "noise": b"\x80\x02" + random.Random(1).randbytes(4000),
        "other pickle": pickle.dumps({"model": [1, 2, 3]}, protocol=2),
        "hostile": pickle.dumps(os.system, protocol=2),
    }[broken]
    (folder / "comm_lib_trace_rank_1").write_bytes(data)
    report = diagnose([str(folder)])
    assert culprits(report) == [5]
    assert len(gaps_of(report, "comm_lib_trace_rank_1")) == 1


def test_two_versions_in_one_job(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", world=8, stuck=5)
    content = rings.content(3, world=8, stuck=5)
    content["version"] = "2.4"
    for entry in content["entries"]:
        entry["duration_ms"] = 1.5
    del content["comm_lib_version"]
    (folder / "comm_lib_trace_rank_3").write_bytes(pickle.dumps(content, protocol=2))
    assert culprits(diagnose([str(folder)])) == [5]


def test_one_rank_twice(tmp_path: Path) -> None:
    """A copy from the login node, or of an earlier attempt: the newest counts, the other is a gap."""
    folder = written(tmp_path / "run", world=8, stuck=5)
    (folder / "old").mkdir()
    (folder / "old" / "comm_lib_trace_rank_1").write_bytes(dumped(1, world=8, stuck=6, calls=6))
    (folder / "old" / "comm_lib_trace_rank_5").write_bytes(dumped(5, world=8, stuck=5))
    report = diagnose([str(folder)])
    assert culprits(report) == [5]
    told = {gap.what.rpartition("/old/")[2]: gap.why for gap in report.gaps if "an older dump of rank" in gap.why}
    assert "taken earlier of the same process" in told["comm_lib_trace_rank_1"]
    assert "a copy" in told["comm_lib_trace_rank_5"]


def test_a_dump_of_an_earlier_run_is_not_taken_for_this_one(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", world=8, stuck=5)
    early = dumped(3, world=8, stuck=3, start=rings.START - 3600 * rings.STEP)
    (folder / "comm_lib_trace_rank_3").write_bytes(early)
    report = diagnose([str(folder)])
    assert culprits(report) == [5]
    assert any("left over from an earlier run" in gap.why for gap in report.gaps)


def test_a_name_that_the_groups_contradict_is_not_believed(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", world=8, stuck=5)
    (folder / "comm_lib_trace_rank_11").write_bytes(dumped(1, world=8, stuck=5))
    report = diagnose([str(folder)])
    assert culprits(report) == [5]
    assert any("rank 11 is not in the groups" in gap.why for gap in report.gaps)


def test_entries_that_are_none_are_counted_and_left_out() -> None:
    content = rings.content(1)
    content["entries"][2:2] = [7, None, {"pg_id": 0}, "entry"]
    found = read_all(pickle.dumps(content, protocol=2))
    assert [len(item) for item in found if isinstance(item, Dump)] == [11]
    assert any("4 entries are not what Flight Recorder writes" in gap.why for gap in found if isinstance(gap, Gap))


FIELDS = sorted(rings.content(1)["entries"][0])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(
    st.lists(st.tuples(st.integers(0, 10), st.sampled_from(FIELDS), VALUES), max_size=8),
    st.sampled_from(["pickle", "json"]),
)
def test_fields_of_any_other_type_never_raise(changes: list[tuple[int, str, Any]], form: str) -> None:
    content = rings.content(1)
    for at, field, value in changes:
        content["entries"][at][field] = value
    data = pickle.dumps(content, protocol=2) if form == "pickle" else json.dumps(content).encode()
    for item in read_all(data):
        assert isinstance(item, Gap) or not isinstance(item, Dump) or len(item) <= 11


def test_a_wrong_world_size_is_said_to_be_one(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", world=8, stuck=5)
    report = diagnose([str(folder)], world_size=4)
    assert culprits(report) == [5]
    assert report.summary.world_size == 8
    assert [gap.why for gap in report.gaps if gap.what == "the number of ranks"] == [
        "told to be 4, but there is a dump of rank 7: 8 are taken to be there"
    ]


@example("collective_seq_id", -(2**63), True)
@given(
    st.sampled_from(["collective_seq_id", "p2p_seq_id", "record_id", "op_id", "time_created_ns", "timeout_ms"]),
    st.integers(-(2**70), 2**70) | st.sampled_from([-(2**63), 2**63 - 1, 2**62, 4102444800 * 10**9]),
    st.booleans(),
)
@settings(max_examples=25)
def test_numbers_that_no_recorder_writes_can_be_drawn(
    tmp_path_factory: pytest.TempPathFactory, field: str, number: int, all_ranks: bool
) -> None:
    folder = tmp_path_factory.mktemp("numbers") / "run"
    folder.mkdir()
    for rank in range(4):
        content = rings.content(rank)
        if all_ranks or rank == 1:
            for entry in content["entries"]:
                entry[field] = number
        (folder / f"comm_lib_trace_rank_{rank}").write_bytes(pickle.dumps(content, protocol=2))
    report = diagnose([str(folder)])
    assert json_report.render(report) and html.render(report) and list(perfetto.render(report))


@given(
    st.dictionaries(
        st.sampled_from(["entries", "pg_config", "pg_status", "version", "comm_lib_version", "nccl_version"]), VALUES
    )
)
def test_parts_of_any_other_type_never_raise(changes: dict[str, Any]) -> None:
    read_all(pickle.dumps({**rings.content(1), **changes}, protocol=2))


@given(st.integers(0, 7), st.data())
def test_cut_or_damaged_anywhere_the_others_are_still_diagnosed(
    tmp_path_factory: pytest.TempPathFactory, rank: int, data: st.DataObject
) -> None:
    """Whose dump it is: the innocent's costs nothing, the culprit's may cost the answer but never makes a wrong one sure."""
    folder = written(tmp_path_factory.mktemp("cut") / "run", world=8, stuck=5)
    whole = (folder / f"comm_lib_trace_rank_{rank}").read_bytes()
    at = data.draw(st.integers(2, len(whole) - 1))
    junk = data.draw(st.binary(max_size=40))
    cut = data.draw(st.booleans())
    (folder / f"comm_lib_trace_rank_{rank}").write_bytes(
        whole[:at] if cut else whole[:at] + junk + whole[at + len(junk) :]
    )
    report = diagnose([str(folder)])
    if cut and rank != 5:
        assert culprits(report) == [5]
    if cut and culprits(report) != [5]:
        assert report.verdicts[0].rank_confidence < 0.75


@given(st.randoms(use_true_random=False))
def test_the_order_of_files_changes_nothing(tmp_path_factory: pytest.TempPathFactory, rng: random.Random) -> None:
    folder = written(tmp_path_factory.mktemp("order") / "run", world=4, stuck=2)
    paths = [str(path) for path in sorted(folder.iterdir())]
    before = diagnose(paths).verdicts[0]
    rng.shuffle(paths)
    after = diagnose(paths).verdicts[0]
    assert (after.mechanism, after.culprits, after.rank_confidence) == (
        before.mechanism,
        before.culprits,
        before.rank_confidence,
    )


@pytest.mark.parametrize("between", [0, 1])
def test_batches_under_one_number_take_time_in_proportion(between: int) -> None:
    """20,000 entries that each close a batch, all with the same number, with or without a send before each."""
    first = rings.content(1)["entries"][0]
    entries = []
    for number in range(20_000):
        closes = number % 2 or not between
        entries.append(
            {
                **first,
                "record_id": number,
                "profiling_name": "nccl:coalesced" if closes else "nccl:send 1->0",
                "is_p2p": True,
                "p2p_seq_id": 1,
                "state": "scheduled",
            }
        )
    begin = time.monotonic()
    (dump,) = [item for item in read_all(pickle.dumps({**rings.content(1), "entries": entries}, 2)) if isinstance(item, Dump)]  # fmt: skip
    assert time.monotonic() - begin < 15
    assert len(dump) == 20_000
    if between:
        assert np.bincount(dump.kind, minlength=4).tolist() == [0, 0, 10_000, 10_000]
