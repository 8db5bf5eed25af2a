"""Dumps as each version of PyTorch writes them.

| torch | version | from |
|---|---|---|
| 2.2 | none, a bare list | TraceUtils.h, times in microseconds |
| 2.3 | 1.4 | TraceUtils.h: one seq_id, pg_config {id: [ranks]}, entries first |
| 2.4 | 2.1 | NCCLUtils.hpp: collective_seq_id, p2p_seq_id, dtypes, process_group |
| 2.5-2.7 | 2.4 | FlightRecorder.cpp: timeout_ms, pg_status |
| 2.8 | 2.9 | FlightRecorderDetail.hpp: nccl_version; NVIDIA's builds also name the thread |
| 2.9-2.14 | 2.10 | the same: comm_lib_version, thread_id, thread_name |

JSON is nlohmann's: keys in alphabetical order, no blanks, no frames, 0 for a time that is not known, numbers of
pg_status as text, no `entries` where there are none, an empty nccl_comm_state (which pickles leave out).
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lab.simulate.frames import Frames, in_backward
from lab.simulate.recorder import Record, Recording

VERSIONS = ("list", "1.4", "2.1", "2.4", "2.9", "2.10", "2.13")
UNKNOWN_MINOR = "2.13"  # no such version: readers must take it as 2.10 with more fields


@dataclass(frozen=True, slots=True)
class Style:
    """How one rank's dump is written. zero_ns: wall clock of its host at the job's second 0."""

    version: str
    json: bool = False
    frames: Frames | None = None
    only_active: bool = False
    named_threads: bool = False
    backend: str = "nccl"
    library: str = "2.27.3"
    zero_ns: int = 0


def number(version: str) -> tuple[int, int]:
    """Versions in order; the bare list is before all."""
    if version == "list":
        return (0, 0)
    major, minor = version.split(".")
    return (int(major), int(minor))


def write(recording: Recording, style: Style) -> bytes:
    """The bytes of the file."""
    shown = [r for r in recording.records if not (style.only_active and r.completed is not None)]
    entries = list(_entries(shown, recording.rank, style))
    if style.version == "list":
        return pickle.dumps(entries, protocol=2)
    if style.version == "1.4":
        ranks = {pg_id: [*group.ranks] for pg_id, group in sorted(recording.groups.items())}
        return pickle.dumps({"entries": entries, "version": "1.4", "pg_config": ranks}, protocol=2)
    top: dict[str, object] = {"version": style.version, "pg_config": _config(recording, style)}
    if number(style.version) >= (2, 5):
        library = style.library if style.backend == "nccl" else ""
        top["comm_lib_version" if number(style.version) >= (2, 10) else "nccl_version"] = library
    if number(style.version) >= (2, 4):
        top["pg_status"] = _status(recording, style)
    if style.version == UNKNOWN_MINOR:
        top["world_size"] = 0
    if entries or not style.json:
        top["entries"] = entries
    if style.json:
        top["nccl_comm_state"] = {}
        return json.dumps(top, sort_keys=True, separators=(",", ":")).encode()
    return pickle.dumps(top, protocol=2)


def _config(recording: Recording, style: Style) -> dict[str, object]:
    if style.backend == "gloo":
        return {"": {"name": "", "desc": "", "ranks": "[]"}}
    made = sorted(recording.groups.values(), key=lambda group: group.name)  # a std::map by name
    return {g.name: {"name": g.name, "desc": g.description, "ranks": str([*g.ranks])} for g in made}


def _status(recording: Recording, style: Style) -> dict[str, object]:
    def shown(value: int) -> int | str:
        return str(value) if style.json else value

    return {
        str(pg_id): {
            "last_enqueued_collective": shown(status.enqueued),
            "last_started_collective": shown(status.started),
            "last_completed_collective": shown(status.completed),
        }
        for pg_id, status in sorted(recording.status.items())
    }


def _entries(records: list[Record], rank: int, style: Style) -> Iterator[dict[str, object]]:
    version = number(style.version)
    threads = version >= (2, 10) or style.named_threads
    main, autograd = str(140_000_000_000_000 + rank * 8_192), str(139_000_000_000_000 + rank * 8_192)
    main_name = "python" if style.backend == "gloo" else "pt_main_thread"

    def at(time: float | None) -> int | None:
        return (0 if style.json else None) if time is None else style.zero_ns + int(time * 1e9)

    for r in records:
        entry: dict[str, object] = {}
        if style.frames and not style.json and version >= (2, 0):
            entry["frames"] = style.frames.of(r.op.site, r.name)
        if version > (0, 0):
            entry["record_id"] = r.record_id
        entry["pg_id"] = r.pg_id
        if version >= (2, 1):
            name = (r.group.name, r.group.description)
            entry["process_group"] = [*name] if style.json else name
        if threads and version >= (2, 9):
            behind = in_backward(r.op.site)
            entry["thread_name"] = "pt_autograd_0" if behind else main_name
            entry["thread_id"] = autograd if behind else main
        if version >= (2, 1):
            entry["collective_seq_id"] = r.collective_seq
            entry["p2p_seq_id"] = r.p2p_seq
        else:
            entry["seq_id"] = r.seq
        if version > (0, 0):
            entry["op_id"] = r.op_id
        entry["profiling_name"] = r.name
        _times_and_sizes(entry, r, style, at)
        if style.version == UNKNOWN_MINOR:
            entry["stream_id"] = 7
        yield entry


def _times_and_sizes(entry: dict[str, object], r: Record, style: Style, at) -> None:  # type: ignore[no-untyped-def]
    version = number(style.version)
    created = style.zero_ns + int(r.created * 1e9)
    if version == (0, 0):
        entry["time_created"] = created // 1000
    else:
        entry["time_created_ns"] = created
        if r.duration_ms is not None:
            entry["duration_ms"] = float(np.float32(r.duration_ms))
    entry["input_sizes"] = [[*shape] for shape in r.inputs]
    if version >= (2, 1):
        entry["input_dtypes"] = r.input_dtypes
    entry["output_sizes"] = [[*shape] for shape in r.outputs]
    if version >= (2, 1):
        entry["output_dtypes"] = r.output_dtypes
    entry["state"] = "completed" if r.completed is not None else "started" if r.started is not None else "scheduled"
    if version > (0, 0):
        entry["time_discovered_started_ns"] = at(r.started)
        entry["time_discovered_completed_ns"] = at(r.completed)
    entry["retired"] = r.retired
    if version >= (2, 4):
        entry["timeout_ms"] = r.group.timeout_ms
    if version >= (2, 1):
        entry["is_p2p"] = r.is_p2p
    if version < (2, 0):
        entry["frames"] = style.frames.of(r.op.site, r.name) if style.frames else []
