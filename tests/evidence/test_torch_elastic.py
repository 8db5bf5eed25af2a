"""torchrun's own lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import essence, facts_of, one, survivors

AGENT = "E0505 10:05:32.334000 400 torch/distributed/elastic/multiprocessing/api.py:870] "
SUMMARY = (
    "============================================================",
    "train.py FAILED",
    "------------------------------------------------------------",
    "Failures:",
    "[1]:",
    "  time      : 2026-11-30_06:01:45",
    "  host      : gpu-box3",
    "  rank      : 9 (local_rank: 1)",
    "  exitcode  : -15 (pid: 21986)  (SIGTERM)",
    "  error_file: <N/A>",
    "  traceback : Signal 15 (SIGTERM) received by PID 21986",
    "[2]:",
    "  time      : 2026-11-30_06:01:46",
    "  host      : gpu-box3",
    "  rank      : 10 (local_rank: 2)",
    "  exitcode  : 1 (pid: 21987) ",
    "  error_file: /tmp/x/error.json",
    "  traceback : Traceback (most recent call last):",
    '    File "/opt/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355, in wrapper',
    "      return f(*args, **kwargs)",
    '    File "/work/train.py", line 3, in main',
    '      raise ValueError("bad batch")',
    "  ValueError: bad batch",
    "  ",
    "------------------------------------------------------------",
    "Root Cause (first observed failure):",
    "[0]:",
    "  time      : 2026-11-30_06:01:44",
    "  host      : gpu-box3",
    "  rank      : 8 (local_rank: 0)",
    "  exitcode  : -9 (pid: 21985)  (SIGKILL)",
    "  error_file: <N/A>",
    "  traceback : Signal 9 (SIGKILL) received by PID 21985",
    "============================================================",
)


def test_summary() -> None:
    exits = [fact for fact in facts_of("\n".join(SUMMARY)) if fact.kind == "exit"]
    assert [
        (e.rank, e.who.local_rank, e.who.host, e.who.pid, e["exitcode"], e["signal"], e["root"]) for e in exits
    ] == [
        (9, 1, "gpu-box3", 21986, -15, 15, False),
        (10, 2, "gpu-box3", 21987, 1, None, False),
        (8, 0, "gpu-box3", 21985, -9, 9, True),
    ]
    assert exits[1]["error"] == "ValueError: bad batch"
    assert exits[1]["error_file"] == "/tmp/x/error.json"
    assert "exitcode" in exits[2].spot.excerpt
    assert exits[2].clock == "wall"
    assert exits[1].at_ns is not None and exits[2].at_ns is not None
    assert exits[1].at_ns - exits[2].at_ns == 2_000_000_000


def test_summary_with_a_label_on_each_line() -> None:
    exits = [fact for fact in facts_of("\n".join("3: " + line for line in SUMMARY)) if fact.kind == "exit"]
    assert [e.rank for e in exits] == [9, 10, 8]


def test_summary_cut_at_both_ends() -> None:
    exits = [fact for fact in facts_of("\n".join(SUMMARY[3:16])) if fact.kind == "exit"]
    assert [(e.rank, e["exitcode"]) for e in exits] == [(9, -15), (10, 1)]


@pytest.mark.parametrize(
    "prefix",
    [
        AGENT,
        "ERROR:torch.distributed.elastic.multiprocessing.api:",
        "[2023-12-12 14:30:17,300] torch.distributed.elastic.multiprocessing.api: [ERROR] ",
    ],
)
def test_first_failure(prefix: str) -> None:
    fact = one(f"{prefix}failed (exitcode: -9) local_rank: 5 (pid: 436) of binary: /usr/bin/python", "exit")
    assert (
        fact.rank,
        fact.who.local_rank,
        fact.who.pid,
        fact["exitcode"],
        fact["signal"],
        fact["first"],
        fact["root"],
    ) == (None, 5, 436, -9, 9, True, False)


@pytest.mark.parametrize(
    ("line", "kind", "pid", "values"),
    [
        (
            "W1130 06:01:45.7 21980 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 21986 closing signal SIGTERM",
            "launcher_stop",
            21986,
            {"signal": 15},
        ),
        (
            "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 21986 closing signal SIGINT",
            "launcher_stop",
            21986,
            {"signal": 2},
        ),
        (
            "W0122 14:20:56.6 900 torch/distributed/elastic/multiprocessing/api.py:916] Unable to shutdown process 932 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL",
            "launcher_kill",
            932,
            {"signal": 9},
        ),
        (
            "WARNING:torch.distributed.elastic.multiprocessing.api:Unable to shutdown process 932 via 15, forcefully exiting via 9",
            "launcher_kill",
            932,
            {"signal": 9},
        ),
        (
            "I0915 05:11:43.0 1180 torch/distributed/elastic/agent/server/api.py:931] [default] Worker group FAILED. 1/2 attempts left; will restart worker group",
            "restart",
            None,
            {"left": 1, "of": 2},
        ),
        (
            "I0915 05:11:43.0 1180 torch/distributed/elastic/agent/server/api.py:931] [default] Detected 1 new nodes from group_rank=0; will restart worker group",
            "restart",
            None,
            {"new_nodes": 1},
        ),
        (
            "I0902 23:41:32.4 2280 torch/distributed/elastic/agent/server/api.py:922] [default] worker group successfully finished. Waiting 300 seconds for other agents to finish.",
            "success",
            None,
            {"scope": "job"},
        ),
        (
            "INFO:torch.distributed.elastic.agent.server.api:Local worker group finished (SUCCEEDED). Waiting 300 seconds",
            "success",
            None,
            {"scope": "job"},
        ),
        (
            "I0902 23:41:32.4 2280 torch/distributed/elastic/agent/server/api.py:975] Local worker group finished (WorkerState.SUCCEEDED). Waiting 300 seconds",
            "success",
            None,
            {"scope": "job"},
        ),
        (
            "W0902 23:41:32.4 2280 torch/distributed/elastic/agent/server/api.py:704] Received Signals.SIGTERM death signal, shutting down workers",
            "signal_received",
            None,
            {"signal": 15},
        ),
        (
            "W0902 23:41:32.4 2280 torch/distributed/elastic/agent/server/api.py:704] Received 15 death signal, shutting down workers",
            "signal_received",
            None,
            {"signal": 15},
        ),
        (
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1180 got signal: 15",
            "signal_received",
            1180,
            {"signal": 15},
        ),
    ],
)
def test_lines(line: str, kind: str, pid: int | None, values: dict[str, object]) -> None:
    fact = one(line, kind)
    assert fact.who.pid == pid
    assert {name: fact[name] for name in values} == values


FIELDS = (
    "restart_count=1", "master_addr=nd-a.lab", "master_port=41237", "group_rank=1", "group_world_size=2", "local_ranks=[0, 1]", "role_ranks=[2, 3]",
    "global_ranks=[2, 3]", "role_world_sizes=[4, 4]", "global_world_sizes=[4, 4]", "event_log_handler=null",
)  # fmt: skip
OLD = (
    "INFO:torch.distributed.elastic.agent.server.api:[default] Rendezvous complete for workers. Result:",
    *(f"  {field}" for field in FIELDS),
    "",
)
NEW = tuple(
    "I1006 07:40:21.351000 5120 torch/distributed/elastic/agent/server/api.py:567] " + line
    for line in ("[default] Rendezvous complete for workers. Result:", *(f"  {field}" for field in FIELDS), "")
)


@pytest.mark.parametrize("lines", [OLD, NEW], ids=["old", "new"])
def test_rendezvous(lines: tuple[str, ...]) -> None:
    fact = one("\n".join(lines), "rendezvous_complete")
    names = (
        "restart_count",
        "master_addr",
        "master_port",
        "group_rank",
        "group_world_size",
        "local_ranks",
        "global_ranks",
        "world_size",
    )
    assert [fact[name] for name in names] == [1, "nd-a.lab", 41237, 1, 2, [0, 1], [2, 3], 4]
    assert "global_ranks" in fact.spot.excerpt


def test_two_agents_in_one_file() -> None:
    other = [
        line.replace(" 5120 ", " 7301 ").replace("group_rank=1", "group_rank=0").replace("[2, 3]", "[0, 1]")
        for line in NEW
    ]
    mixed = [line for pair in zip(NEW, other, strict=True) for line in pair]
    found = [fact for fact in facts_of("\n".join(mixed)) if fact.kind == "rendezvous_complete"]
    assert [fact["group_rank"] for fact in found if fact.who.pid == 7301] == [0]


@pytest.mark.parametrize("prefix", ["", "I1006 07:40:14.667000 5120 torch/distributed/launcher/api.py:257] "])
def test_launch_config(prefix: str) -> None:
    text = "\n".join(
        prefix + line
        for line in (
            "Starting elastic_operator with launch configs:",
            "  min_nodes       : 2",
            "  nproc_per_node  : 4",
            "  rdzv_endpoint   : 10.5.41.9:3456",
            "  max_restarts    : 0",
            "  rdzv_configs    : {'timeout': 900}",
        )
    )
    found = {fact["name"]: fact["value"] for fact in facts_of(text) if fact.kind == "config"}
    assert (
        found.items()
        >= {
            "min_nodes": 2,
            "nproc_per_node": 4,
            "rdzv_endpoint": "10.5.41.9:3456",
            "max_restarts": 0,
            "rdzv_configs": "{'timeout': 900}",
        }.items()
    )


REPLY = (
    "ERROR:torch.distributed.elastic.multiprocessing.errors.error_handler:{",
    '  "message": {',
    '    "message": "ValueError: bad batch",',
    '    "extraInfo": {',
    r'      "py_callstack": "Traceback (most recent call last):\n  File \"/work/train.py\", line 3, in main\n    raise ValueError(\"bad batch\")\nValueError: bad batch\n",',
    '      "timestamp": "1655089800"',
    "    }",
    "  }",
    "}",
)


def test_error_handler() -> None:
    fact = one("\n".join(REPLY), "exception")
    assert (fact["type"], fact["message"], fact["frames"], fact["echo"], fact.at) == (
        "ValueError",
        "bad batch",
        ["/work/train.py:3 main"],
        True,
        1655089800.0,
    )


@given(st.integers(0, 2**32))
def test_other_lines_do_not_matter(seed: int) -> None:
    lines = [
        *NEW,
        *REPLY,
        AGENT + "failed (exitcode: -9) local_rank: 5 (pid: 436) of binary: /usr/bin/python",
        *SUMMARY,
    ]
    assert survivors(lines, seed) >= {repr(essence(fact)) for fact in facts_of("\n".join(lines))}
