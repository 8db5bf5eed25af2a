"""The lab of real faults: draws and scenes without torch; where torch is installed, a few jobs from start to answer."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any, get_args

import pytest
from lab.faults import fuse, incident, store
from lab.faults.__main__ import lacking
from lab.faults.draw import draw
from lab.faults.fault import Drawn, Fault
from lab.faults.kinds import BY_NAME, FAULTS
from lab.faults.scene import JOBS, sound
from lab.faults.score import misses, scored, table, wilson
from lab.faults.truth import truth
from lab.faults.watched import watched

from whichrank.model import FAMILY, Mechanism

SKIPPED = "torch is not installed: these jobs are real (pip install torch, 2.8 or newer, and run this test again)"
TOLD = re.compile(r"fault|stall|hang|stuck|forever|victim|culprit|inject|chaos|broken", re.I)
DATA = ("loader_slow", "loader_stuck", "exception", "device_memory", "conditional", "shape", "order", "uneven")


def each(worlds: tuple[int, ...] = (2, 4, 8), seeds: int = 4) -> list[tuple[Fault, Drawn]]:
    return [(fault, draw(fault, w, s, False)) for fault in FAULTS for w in worlds for s in range(seeds)]


# ---- what is drawn, and what is said to be true


def test_an_incident_is_the_same_for_the_same_seed() -> None:
    assert each() == each()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_truths_speak_as_the_report_does(fault: Fault) -> None:
    for world in (2, 4, 8):
        for watch in (False, True):
            known = truth(fault, draw(fault, world, 1, watch), 1, 1)
            assert {known["cause"], *known["also_acceptable"]} <= {*FAMILY, "undecided", "none"}
            assert set(known["mechanism"]) <= set(get_args(Mechanism))
            assert set(known["culprit_ranks"] or []) <= set(range(world))
            assert fault.healthy == (known["cause"] == "none")


def test_victims_steps_and_variants_differ_from_seed_to_seed() -> None:
    drawn = [draw(BY_NAME["exception"], 8, seed, False) for seed in range(20)]
    assert len({one.victim for one in drawn}) > 4
    assert len({one.step for one in drawn}) > 4
    assert {one.variant for one in drawn} == set(BY_NAME["exception"].variants)


def test_nothing_that_a_job_can_show_names_its_fault() -> None:
    """Names, files and texts of the jobs end up in stacks and logs."""
    for path in JOBS.glob("*.py"):
        tree = ast.parse(path.read_text())
        shown = [path.name]
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                shown.append(node.name)
            elif isinstance(node, (ast.Name, ast.Attribute)):
                shown.append(node.id if isinstance(node, ast.Name) else node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                shown.append(node.value)
        assert [text for text in shown if TOLD.search(text)] == []


@pytest.mark.parametrize("name", DATA)
def test_only_the_victim_gets_other_samples(name: str, tmp_path: Path) -> None:
    fault = BY_NAME[name]
    for seed in range(4):
        drawn = draw(fault, 4, seed, False)
        if drawn.variant == "refused":
            continue
        work = tmp_path / str(seed)
        work.mkdir()
        with store.serving() as served:
            plain = sound(drawn, fault, work, served)
            before = json.dumps(plain.samples[0])
            fault.lay_out(plain)
        others = [
            (a, b) for rank, (a, b) in enumerate(zip(json.loads(before), plain.samples[0], strict=True)) if a != b
        ]
        assert len(others) == 1
        assert json.loads(before)[drawn.victim] != plain.samples[0][drawn.victim]
        assert not TOLD.search(json.dumps(plain.samples).replace(str(tmp_path), ""))


def test_the_page_has_every_fault() -> None:
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
    assert [fault.name for fault in FAULTS if f"| `{fault.name}` | {fault.made} |" not in page] == []


# ---- what it is made real with


@pytest.mark.skipif(bool(lacking(BY_NAME["storage_hangs"])), reason="mounting a file system needs root and /dev/fuse")
def test_a_file_on_the_mount_hangs_while_others_are_served_and_nothing_stays(tmp_path: Path) -> None:
    for name in ("export", "mnt"):
        (tmp_path / name).mkdir()
    (tmp_path / "export" / "fine").write_bytes(os.urandom(300_000))
    (tmp_path / "export" / "other").write_bytes(b"x" * 5000)
    with fuse.mounted(tmp_path / "export", tmp_path / "mnt") as files:
        files.hang.add("other")
        assert (tmp_path / "mnt" / "fine").read_bytes() == (tmp_path / "export" / "fine").read_bytes()
        (tmp_path / "mnt" / "new").write_bytes(b"written" * 1000)
        assert (tmp_path / "export" / "new").read_bytes() == b"written" * 1000
        reader = subprocess.Popen(
            ["cat", tmp_path / "mnt" / "other"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with pytest.raises(subprocess.TimeoutExpired):
            reader.wait(0.7)
    assert reader.wait(10) != 0
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def test_the_store_keeps_silent_where_it_is_told_to(tmp_path: Path) -> None:
    with store.serving() as served:
        served.sample = b"abc"
        served.silent.add("/part-001.bin")
        get = ["curl", "-s", "-m", "1", f"http://{served.address}"]
        assert subprocess.run([*get[:-1], get[-1] + "/part-000.bin"], capture_output=True, check=False).stdout == b"abc"
        assert subprocess.run([*get[:-1], get[-1] + "/part-001.bin"], capture_output=True, check=False).returncode == 28


# ---- how it is judged


def row(**changed: Any) -> dict[str, Any]:
    made = {
        "id": "a-w4-s0", "fault": "a", "variant": "", "world": 4, "healthy": False, "truth": "killed", "guilty": [1],
        "watched": True, "noticed_s": 3.0, "answered_s": 5.5, "early": 0, "cause": "killed", "grade": "likely",
        "named": [1], "rank_grade": "proven", "mechanism": "dead", "culprit_right": True, "cause_right": True,
        "mechanism_right": True, "false_certainty": False,
    }  # fmt: skip
    return made | changed


def test_the_table_counts_and_the_misses_say_what_was_wrong() -> None:
    wrong = row(id="a-w4-s1", cause="undecided", named=[2], culprit_right=False, noticed_s=None, early=1)
    lines = table([row(), row(noticed_s=9.0), wrong]).splitlines()
    assert lines[2] == (
        "| `a`, 4 | 2/3 (21%-94%) | 3/3 (44%-100%) | 1 | 3/3 (44%-100%) |  | 6.0, 9.0 | 5.5, 5.5 | 1 | 1 |"
    )
    assert [*misses([row(), wrong])] == [
        "a-w4-s1: killed [1], answered undecided (likely) [2] (proven) dead: culprit_right, early"
    ]
    assert wilson(0, 0) == (0.0, 1.0)


def test_a_stall_before_the_fault_is_a_false_alarm_and_the_first_after_it_the_notice(tmp_path: Path) -> None:
    events = [
        {"kind": "stall", "wall_ns": 5_000_000_000},
        {"kind": "rank_ended", "wall_ns": 11_000_000_000, "in_order": True},
        {"kind": "stall", "wall_ns": 13_000_000_000},
        {"kind": "verdict", "wall_ns": 14_500_000_000},
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + '{"kind": "sta')
    seen = watched(tmp_path, 10_000_000_000)
    assert (seen.noticed_s, seen.answered_s, seen.early, seen.report) == (3.0, 4.5, 1, None)
    assert watched(tmp_path, 0).early == 2


# ---- real jobs


@pytest.mark.parametrize("name", ["killed", "exception", "loader_stuck"])
def test_a_real_job_comes_to_its_fault_and_leaves_what_names_the_rank(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=SKIPPED)
    import sys

    fault = BY_NAME[name]
    began = time.time_ns()
    incident.run(fault, draw(fault, 2, 1, False), tmp_path / "one", sys.executable, work=tmp_path)
    known = json.loads((tmp_path / "one" / "truth.json").read_text())
    assert began < known["began_ns"] < time.time_ns()
    judged = scored(tmp_path / "one")
    assert judged["named"] == known["culprit_ranks"], judged
    assert [path.name for path in tmp_path.iterdir()] == ["one"]  # the job's own folder is gone
    assert running(str(tmp_path)) == []


def running(text: str) -> list[str]:
    """Command lines of processes that hold this."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in words:
            found.append(words)
    return found
