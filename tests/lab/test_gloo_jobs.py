"""Real incidents on gloo: plans without torch; where torch is installed, a few jobs whose files show what was planned."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest
from lab.gloo import drive, plan
from lab.gloo.plan import Plan
from lab.gloo.truth import truth

from whichrank.model import FAMILY, Mechanism

SKIPPED = "torch is not installed: these jobs are real (pip install torch, 2.8 or newer, and run this test again)"
PLANS = [plan.draw(seed, number) for seed in range(5) for number in range(60)]
Entries = dict[int, list[dict[str, Any]]]


def wanted(fault: str, variant: str, job: str) -> Plan:
    """A quick one: four ranks, dumped while they wait."""
    return Plan(
        fault=fault, variant=variant, job=job, world=4, steps=8, victim=2, holder=None, step=5,
        when="errors" if fault == "kill" else "request", frames=False, ring=2000, timeout_s=60.0, save_every=4,
        wait_for_peers=False, pace_s=0.0,
    )  # fmt: skip


# ---- plans


def test_a_plan_is_the_same_for_the_same_seed_and_all_faults_take_turns() -> None:
    assert [plan.draw(seed, number) for seed in range(5) for number in range(60)] == PLANS
    assert set(Counter(made.fault for made in PLANS).values()) == {50}
    assert {made.job for made in PLANS} == set(plan.JOBS)


@pytest.mark.parametrize("made", PLANS[:60:7])
def test_only_the_rank_at_fault_gets_other_data(made: Plan, tmp_path: Path) -> None:
    plan.lay_out(made, tmp_path / "data", tmp_path / "save")
    odd = set()
    for rank in range(made.world):
        folder = tmp_path / "data" / f"rank{rank}"
        for listed in json.loads((folder / "index.json").read_text()):
            path = folder / listed["path"]
            plain = path.is_file() and '"rows": 16, "labelled": ' in path.read_text() and set(listed) == {"path"}
            record = path.read_text() if plain else ""
            if not plain or '"labelled": 0' in record or "float64" in record or "first" in record:
                odd.add(rank)
    pipes = [path for path in (tmp_path / "save").iterdir() if path.is_fifo()]
    expected = {made.victim if made.holder is None else made.holder} - {None}
    assert odd == expected or (made.variant == "save" and len(pipes) == 1 and not odd)


def test_no_plan_asks_for_what_its_job_does_not_do() -> None:
    for made in PLANS:
        assert made.step < made.steps
        assert (made.victim is None) == (made.fault == "healthy")
        assert made.holder != made.victim or made.holder is None
        if made.fault == "mismatch" and made.job == "evaluated":
            assert made.step % 3 == 2
        if made.job == "grid":
            assert made.world % 2 == 0


def test_truths_speak_as_the_report_does() -> None:
    for number, made in enumerate(PLANS):
        known: dict[str, Any] = truth(made, number, 0, drive.Left(1, {}, [], False))
        assert {known["mechanism"], *known["also_accepted"]} <= set(get_args(Mechanism))
        assert {known["cause"], *known["also_accepted_causes"]} <= {*FAMILY, "undecided", "none"}
        assert known["culprits"] == ([] if made.victim is None else [made.victim])


# ---- real jobs


def ran(made: Plan, folder: Path) -> tuple[Entries, drive.Left]:
    """Each rank's entries, from the pickles, which have to agree with the JSON."""
    pytest.importorskip("torch", reason=SKIPPED)
    (folder / "out").mkdir()
    left = drive.run(made, folder / "out", folder / "work")
    entries: Entries = {}
    for path in (folder / "out" / "dumps").iterdir():
        entries[int(path.name.rpartition("_")[2])] = pickle.loads(path.read_bytes())["entries"]
    for rank, records in entries.items():
        text = (folder / "out" / "json" / f"comm_lib_trace_rank_{rank}.json").read_text()
        assert [e["record_id"] for e in json.loads(text)["entries"]] == [e["record_id"] for e in records]
    known: dict[str, Any] = truth(made, 0, 0, left)
    assert {*known["files"].values()} == {path.name for path in (folder / "out" / "dumps").iterdir()}
    return entries, left


def waits(entries: Entries) -> list[int]:
    return sorted(rank for rank, records in entries.items() if not records[-1]["retired"])


def test_who_is_stuck_has_made_one_call_less_and_waits_for_nothing(tmp_path: Path) -> None:
    entries, _ = ran(wanted("stall", "prefetch", "gathered"), tmp_path)
    numbers = {rank: records[-1]["collective_seq_id"] for rank, records in entries.items()}
    assert numbers == {0: numbers[0], 1: numbers[0], 2: numbers[0] - 1, 3: numbers[0]}
    assert set(waits(entries)) <= {0, 1, 3}
    assert waits(entries)
    last = (tmp_path / "out" / "logs").rglob("attempt_0/2/stdout.log")
    assert next(last).read_text().rstrip().endswith("step 5")


def test_who_skips_a_call_stands_in_the_one_after_it(tmp_path: Path) -> None:
    entries, _ = ran(wanted("skip", "label", "gathered"), tmp_path)
    last = {rank: records[-1]["profiling_name"] for rank, records in entries.items()}
    assert last == {0: "gloo:all_reduce", 1: "gloo:all_reduce", 2: "gloo:broadcast", 3: "gloo:all_reduce"}


def test_who_was_killed_left_no_dump_and_the_launcher_knows(tmp_path: Path) -> None:
    entries, left = ran(wanted("kill", "between", "gathered"), tmp_path)
    assert left.missing == [2]
    assert left.exits[2] == -9
    assert sorted(entries) == [0, 1, 3]
