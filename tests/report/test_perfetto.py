"""The trace: valid events, a track for each rank, slices that nest or follow each other."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import samples
from hypothesis import given
from hypothesis import strategies as st
from made_dumps import START, dump, report, stuck

from whichrank.job.collectives import collectives
from whichrank.model import Report
from whichrank.report import perfetto
from whichrank.report.redact import redact


def events(of: Report) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(b"".join(perfetto.render(of)))["traceEvents"]
    return found


def assert_well_formed(found: list[dict[str, Any]]) -> None:
    """What Perfetto's importer asks for; and slices of one track lie inside each other or apart."""
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in found:
        assert event["ph"] in "XisfM" and isinstance(event["pid"], int)
        if event["ph"] != "M":
            assert event["ts"] >= 0 and isinstance(event["tid"], int) and event["name"]
        if event["ph"] == "X":
            assert event["dur"] >= 0
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] == "i":
            assert event["s"] in "gpt"
    for track in tracks.values():
        open_until: list[float] = []
        for start, end in track:  # in the order in which they are written
            while open_until and open_until[-1] <= start + 1e-3:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-3, (start, end, open_until)
            open_until.append(end)
        assert [start for start, _ in track] == sorted(start for start, _ in track)


def test_each_rank_has_a_track_and_each_call_a_slice() -> None:
    found = events(report(stuck(16, 5), [5]))
    assert_well_formed(found)
    names = {event["args"]["name"] for event in found if event["name"] == "thread_name"}
    assert "rank 5 (culprit)" in names and "rank 15" in names
    assert {event["args"]["name"] for event in found if event["name"] == "process_name"} >= {"node-000", "node-001"}
    slices = [event for event in found if event["ph"] == "X"]
    assert len(slices) == 16 * 40 - 1
    assert slices[0]["args"]["sizes"] == "[4096, 1024] bf16"
    assert slices[0]["args"]["called_at"] == "/workspace/train.py:88 train_step"


def test_what_never_ended_lasts_to_the_end_and_says_so() -> None:
    found = events(report(stuck(4, 1), [1]))
    end = max(event["ts"] + event.get("dur", 0) for event in found if event["ph"] == "X")
    waiting = [event for event in found if event["ph"] == "X" and event["args"].get("unfinished")]
    assert len(waiting) == 3
    for event in waiting:
        assert event["ts"] + event["dur"] == end and event["name"] == "all_reduce #40 (unfinished)"


def test_what_waits_can_be_seen_where_no_end_is_on_record() -> None:
    table = stuck(4, 1)
    for ring in table.rings.values():
        ring.dump.completed[:] = -1  # as gloo's recorder leaves them
    found = events(report(table))
    assert_well_formed(found)
    tracks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in found:
        if event["ph"] == "X":
            tracks[event["tid"]].append(event)
    whole = max(event["ts"] + event["dur"] for event in found if event["ph"] == "X")
    for track in tracks.values():
        for event, after in pairwise(track):
            assert event["ts"] + event["dur"] == after["ts"] and event["args"]["ended"]
        waits = "unfinished" in track[-1]["args"]
        assert waits == (track[-1]["dur"] > whole / 50) and waits != ("ended" in track[-1]["args"])
    assert [len(track) for track in tracks.values()] == [40, 39, 40, 40]


def test_an_arrow_leads_from_the_culprit_to_those_who_wait() -> None:
    flows = [event for event in events(report(stuck(4, 1), [1])) if event["ph"] in "sf"]
    assert [event["ph"] for event in flows] == ["s", "f"]
    assert flows[0]["id"] == flows[1]["id"] and flows[0]["ts"] <= flows[1]["ts"]
    assert {flows[0]["tid"], flows[1]["tid"]} >= {2}


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.one_of(st.none(), st.integers(0, 60))),
        min_size=1,
        max_size=60,
    )
)
def test_slices_nest_whatever_the_times(times: list[tuple[int, int | None]]) -> None:
    ring = dump(0, 2, len(times), len(times))
    ring.created[:] = [START + at * 1_000_000 for at, _ in times]
    ring.completed[:] = [-1 if lasts is None else START + (at + lasts) * 1_000_000 for at, lasts in times]
    ring.open[:] = np.array([lasts is None for _, lasts in times])
    table = collectives([ring, dump(1, 2, 3, 3)])
    assert table is not None
    found = events(report(table))
    assert_well_formed(found)
    assert sum(event["ph"] == "X" for event in found) == len(times) + 3


def test_logs_alone_give_moments() -> None:
    found = events(samples.oom())
    assert_well_formed(found)
    killed = [event for event in found if event["ph"] == "i" and "killed for memory" in event["name"]]
    assert len(killed) == 1 and killed[0]["tid"] == 18 and killed[0]["args"]["from"] == "logs/node-03/dmesg.txt:212"


def test_an_empty_report_is_an_empty_trace() -> None:
    assert all(event["ph"] == "M" for event in events(Report(())))


def test_redacted_too() -> None:
    text = b"".join(perfetto.render(redact(report(stuck(16, 5), [5]), pictures=True)))
    assert b"node-00" not in text and b"host-1" in text


def test_it_is_written_piece_by_piece() -> None:
    pieces = perfetto.render(report(stuck(64, 5, calls=100), [5]))
    assert max(len(piece) for piece in pieces) < 40_000
