"""Flight Recorder dumps of a small job, as PyTorch 2.9 pickles them: one rank stops calling, the others wait for it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from whichrank.facts import Gap
from whichrank.model import Report

START = 1_764_480_000_000_000_000
STEP = 1_000_000_000


def content(rank: int, world: int = 4, stuck: int = 2, calls: int = 12, start: int = START) -> dict[str, Any]:
    """All-reduces of one group; `stuck` makes all but the last two, its peers wait in the last but one."""
    entries = []
    made = calls - 2 if rank == stuck else calls - 1
    for number in range(1, made + 1):
        done = number < calls - 1
        created = start + number * STEP + rank * 1000
        entries.append(
            {
                "frames": [{"name": "step", "filename": "train.py", "line": 40 + number % 3}],
                "record_id": number - 1,
                "pg_id": 0,
                "process_group": ("0", "default_pg"),
                "collective_seq_id": number,
                "p2p_seq_id": 0,
                "op_id": number,
                "profiling_name": "nccl:all_reduce",
                "time_created_ns": created,
                "input_sizes": [[1024, number % 3]],
                "input_dtypes": ["Float"],
                "output_sizes": [[1024, number % 3]],
                "output_dtypes": ["Float"],
                "state": "completed" if done else "scheduled",
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": created + STEP // 2 if done else None,
                "retired": done,
                "timeout_ms": 600000,
                "is_p2p": False,
            }
        )
    if rank != stuck:  # the watchdog fired: a time that shows how long it had waited
        entries[-2]["time_discovered_completed_ns"] = entries[-2]["time_created_ns"] + STEP // 2
    listed = str(list(range(world)))
    return {
        "version": "2.10",
        "entries": entries,
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": listed}},
        "pg_status": {},
        "comm_lib_version": "2.27.3",
    }


def dumped(rank: int, **how: Any) -> bytes:
    return pickle.dumps(content(rank, **how), protocol=2)


def written(folder: Path, world: int = 4, stuck: int = 2, **how: Any) -> Path:
    """A folder with every rank's dump, named as the watchdog names them."""
    folder.mkdir(exist_ok=True)
    for rank in range(world):
        (folder / f"comm_lib_trace_rank_{rank}").write_bytes(dumped(rank, world=world, stuck=stuck, **how))
    return folder


def culprits(report: Report) -> list[int | None]:
    return [culprit.rank for culprit in report.verdicts[0].culprits]


def gaps_of(report: Report, name: str) -> list[Gap]:
    return [gap for gap in report.gaps if gap.what.endswith(name)]  # type: ignore[misc]
