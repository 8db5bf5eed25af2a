"""Simulated gloo dumps beside real ones, where torch is installed: the same shape, the same signs of a stall."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from lab.simulate import incident
from lab.simulate.draw import Wishes

STALLED = 2
Dump = dict  # type: ignore[type-arg]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("gloo")
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    job = [str(Path(__file__).with_name("gloo_job.py")), str(folder), str(STALLED)]
    subprocess.run([*run, *job], check=True, timeout=180, capture_output=True)
    return folder


def read(folder: Path) -> dict[int, Dump]:
    return {rank: pickle.loads((folder / f"real_{rank}").read_bytes()) for rank in range(4)}


def simulated(json_too: bool = False) -> dict[int, Dump]:
    wishes = Wishes(
        worlds=(4,), layout=(2, 1, 2, 1), kinds=("host_stuck",), style="zero", backend="gloo", version="2.10",
        frames="python", missing=0.0, ring=2000, json=json_too, scheme="nccl_trace",
    )  # fmt: skip
    made = incident.make(11, 0, wishes)
    load = json.loads if json_too else pickle.loads
    return {rank: load(data) for rank, (_, data) in enumerate(made.files())}


def shape(value: object) -> object:
    """Types all the way down, of lists the first item."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *(shape(item) for item in value[:1])]
    return type(value).__name__


def test_top_level_and_entries_have_the_same_fields_in_the_same_order(real: Path) -> None:
    for theirs, ours in zip(read(real).values(), simulated().values(), strict=True):
        assert list(theirs) == list(ours)
        assert shape(theirs["pg_config"]) == shape(ours["pg_config"])
        assert {str(shape(v)) for v in theirs["pg_status"].values()} == {
            str(shape(v)) for v in ours["pg_status"].values()
        }
        by_name = {e["profiling_name"]: e for e in ours["entries"] if e["frames"]}
        common = [e for e in theirs["entries"] if e["profiling_name"] in by_name]
        assert len({e["profiling_name"] for e in common}) >= 3
        for entry in common:
            ours_entry = by_name[entry["profiling_name"]]
            assert list(entry) == list(ours_entry)
            assert {k: shape(v) for k, v in entry.items() if "sizes" not in k} == {
                k: shape(v) for k, v in ours_entry.items() if "sizes" not in k
            }


def test_json_has_the_same_fields(real: Path) -> None:
    theirs, ours = json.loads((real / "real_0.json").read_bytes()), simulated(json_too=True)[0]
    assert list(theirs) == list(ours)
    assert list(theirs["entries"][0]) == list(ours["entries"][0])
    assert shape(theirs["pg_status"]["0"]) == shape(ours["pg_status"]["0"])


def test_calls_have_the_names_and_the_numbers_of_tensors_that_gloo_gives_them(real: Path) -> None:
    theirs = {}
    for dump in read(real).values():
        for e in dump["entries"]:
            theirs.setdefault(e["profiling_name"], set()).add((len(e["input_sizes"]), len(e["output_sizes"])))
    for dump in simulated().values():
        for e in dump["entries"]:
            if e["profiling_name"] in theirs:
                assert (len(e["input_sizes"]), len(e["output_sizes"])) in theirs[e["profiling_name"]]
    assert {"gloo:all_gather", "gloo:all_reduce", "gloo:broadcast", "gloo:barrier"} <= set(theirs)


def test_only_retired_tells_what_is_done(real: Path) -> None:
    for dump in [*read(real).values(), *simulated().values()]:
        assert {e["state"] for e in dump["entries"]} == {"scheduled"}
        assert {e["time_discovered_completed_ns"] for e in dump["entries"]} == {None}
        assert any(e["retired"] for e in dump["entries"])


def test_who_waits_has_one_call_open_and_who_is_awaited_none(real: Path) -> None:
    still_open = {rank: [e for e in dump["entries"] if not e["retired"]] for rank, dump in read(real).items()}
    assert [rank for rank, calls in still_open.items() if not calls] == [STALLED]
    ours = {rank: [e for e in dump["entries"] if not e["retired"]] for rank, dump in simulated().items()}
    assert sum(not calls for calls in ours.values()) == 1


def test_numbers_follow_each_other_as_simulated(real: Path) -> None:
    for dump in [*read(real).values(), *simulated().values()]:
        last: dict[int, int] = {}
        assert [e["record_id"] for e in dump["entries"]] == sorted(e["record_id"] for e in dump["entries"])
        for e in dump["entries"]:
            assert e["collective_seq_id"] == last.get(e["pg_id"], e["collective_seq_id"] - 1) + 1
            assert e["op_id"] >= e["collective_seq_id"]  # sends and receives count there, and leave no entry
            last[e["pg_id"]] = e["collective_seq_id"]
