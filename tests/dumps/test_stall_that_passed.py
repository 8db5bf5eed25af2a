"""Dumps that a watcher asked for at a stall which passed: they know nothing of the hang that came later."""

from __future__ import annotations

import json
from pathlib import Path

from incident import Incident, named, told
from recorded import START_NS, Job, report_on


def written(folder: Path, *, passed: bool) -> None:
    """At step 130 rank 2 is late for a while; rank 6 at step 160, for good."""
    logs = Incident()
    logs.init()
    logs.steps(100, 160)
    dumps = Job(8)
    dumps.wait(60)
    dumps.steps(20)
    dumps.call("all_reduce", but=[2], ended=False)
    logs.time_out(750, seq=52, but=[6])
    logs.write(folder)
    dumps.write(folder, names="run/dumps/nccl_trace_rank_{rank}")
    events = [{"kind": "stall", "wall_ns": START_NS + int(75e9), "mono_ns": 75, "ranks": [2], "waiting": [0, 1]}]
    if passed:
        events.append({"kind": "passed", "wall_ns": START_NS + int(80e9), "mono_ns": 80, "ranks": [2]})
    for event in events:
        event |= {"phase": "data", "seconds": 11.0}
    text = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
    (folder / "job" / "run" / "events.jsonl").write_text(text)


def test_they_are_left_out(tmp_path: Path) -> None:
    written(tmp_path, passed=True)

    report = report_on(tmp_path)

    assert named(report.verdicts[0]) == [6], told(report.verdicts[0])
    assert any("stall that passed" in gap.why for gap in report.gaps)


def test_of_one_that_did_not_pass_they_are_read(tmp_path: Path) -> None:
    written(tmp_path, passed=False)

    report = report_on(tmp_path)

    assert not any("stall that passed" in gap.why for gap in report.gaps)
    assert 2 in named(report.verdicts[0]) or report.verdicts[0].rank_grade == "undecided", told(report.verdicts[0])
