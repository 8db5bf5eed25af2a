"""Wrappings of log collectors: what comes out, who spoke, when, and what must be left alone."""

from __future__ import annotations

import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import facts_of, one

from whichrank.evidence import Evidence, envelope, read_piece
from whichrank.evidence.envelope import may_be_document
from whichrank.facts import Source

AT = "2026-07-30T09:30:15.408883675Z"
NS = 1785403815408883675
OOM = "Memory cgroup out of memory: Killed process 41203 (python) total-vm:221356kB, anon-rss:50944kB, file-rss:68kB, shmem-rss:0kB, UID:0 pgtables:480kB oom_score_adj:0"
WATCHDOG = "[rank3]:[E730 09:30:15.324909491 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1842, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."


def peeled(text: str | bytes) -> envelope.Part:
    data = text if isinstance(text, bytes) else text.encode()
    if (part := envelope.document(data)) is not None:
        return part
    (part,) = envelope.peel(data.decode(), None)
    return part


def source_of(text: str, name: str = "all.log") -> Source:
    evidence = Evidence()
    read_piece(name, text.encode(), evidence)
    return evidence.sources[0]


def jsonl(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


# --- joined lines


def test_docker_joins_the_pieces_of_a_stream() -> None:
    part = peeled(
        jsonl(
            {"log": "[rank3] Trace", "stream": "stderr", "time": AT},
            {"log": "[rank0] step 7\n", "stream": "stdout", "time": AT},
            {"log": "back\n", "stream": "stderr", "time": AT},
            {"log": "[rank0] step 8\n", "stream": "stdout", "time": AT},
        )
    )
    assert sorted(zip(part.lines, part.numbers, strict=True)) == [
        ("[rank0] step 7", 2),
        ("[rank0] step 8", 4),
        ("[rank3] Traceback", 1),
    ]


def test_a_piece_without_its_end_is_kept_and_the_log_is_cut() -> None:
    text = jsonl(
        {"log": "step 7\n", "stream": "stdout", "time": AT}, {"log": "step 8 lo", "stream": "stdout", "time": AT}
    )
    assert peeled(text).lines == ["step 7", "step 8 lo"]
    assert source_of(text).ends_midline
    assert not source_of(text.replace("step 8 lo", "step 8\\n")).ends_midline


def test_cri_joins_partial_lines_of_each_stream() -> None:
    part = peeled(f"{AT} stderr P [rank3] Tr\n{AT} stdout F step 7\n{AT} stderr P ace\n{AT} stderr F back\n")
    assert (part.lines, part.numbers, part.times[0]) == (["[rank3] Traceback", "step 7"], [1, 2], NS)


def test_gitlab_appends_to_the_line_before() -> None:
    stamp = "2026-07-30T09:30:15.408883Z"
    part = peeled(
        f"{stamp} 00O section_start:1785403815:step_script\r\x1b[0K\n{stamp} 00O+\x1b[0K\x1b[36;1mExecuting\x1b[0;m\n"
        f"{stamp} 01E [rank3] Trace\n{stamp} 01O step 7\n{stamp} 01E+back\n"
    )
    assert part.lines[0].removesuffix("\x1b[0;m") == "Executing"
    assert part.lines[1:] == ["[rank3] Traceback", "step 7"]
    assert part.numbers == [1, 3, 4]


def test_fluent_bit_marks_partial_lines() -> None:
    row = {"date": 1.7e9, "stream": "stderr", "kubernetes": {"pod_name": "asr-0", "host": "gn-05"}}
    part = peeled(jsonl({**row, "logtag": "P", "log": "[rank3] Trace"}, {**row, "logtag": "F", "log": "back"}))
    assert part.lines == ["[rank3] Traceback"]
    assert (part.whos[0].pod, part.whos[0].host) == ("asr-0", "gn-05")


# --- the time of the event, not of its ingestion


@pytest.mark.parametrize(
    "document",
    [
        {"events": [{"timestamp": 1785403815408, "message": "x", "ingestionTime": 1785403999999}]},
        [{"insertId": "a", "receiveTimestamp": "2026-07-30T10:00:00Z", "timestamp": AT, "textPayload": "x"}],
        {"data": [{"type": "log", "attributes": {"timestamp": "2026-07-30T09:30:15.408Z", "message": "x"}}]},
        {
            "results": [
                [{"field": "@timestamp", "value": "2026-07-30 09:30:15.408"}, {"field": "@message", "value": "x"}]
            ]
        },
        {"data": {"result": [{"stream": {}, "values": [[str(NS), "x"]]}]}},
        {"hits": {"hits": [{"_source": {"@timestamp": "2026-07-30T09:30:15.408Z", "message": "x"}}]}},
        {
            "tables": [
                {
                    "columns": [{"name": "TimeGenerated"}, {"name": "LogEntry"}],
                    "rows": [["2026-07-30T09:30:15.408Z", "x"]],
                }
            ]
        },
        {
            "results": {
                "A": {
                    "frames": [
                        {
                            "schema": {"fields": [{"name": "Time"}, {"name": "Line"}]},
                            "data": {"values": [[1785403815408], ["x"]]},
                        }
                    ]
                }
            }
        },
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_documents(document: object, indent: int | None) -> None:
    part = peeled(json.dumps(document, indent=indent))
    assert part.lines == ["x"]
    assert part.times[0] is not None and part.times[0] // 1_000_000 == NS // 1_000_000


def test_journald_says_when_it_was_written() -> None:
    row = {
        "__REALTIME_TIMESTAMP": "1785403999000000",
        "_SOURCE_REALTIME_TIMESTAMP": "1785403815408883",
        "_HOSTNAME": "gn-05",
    }
    part = peeled(jsonl({**row, "MESSAGE": [27, 91, 51, 49, 109, 104, 105]}))
    assert (part.lines, part.times, part.whos[0].host) == (["\x1b[31mhi"], [NS // 1000 * 1000], "gn-05")


def test_a_stamp_within_the_line_outranks_the_collector() -> None:
    text = jsonl({"labels": {"pod": "asr-0"}, "timestamp": "2026-07-30T09:31:00Z", "line": WATCHDOG})
    timeout = one(text, "timeout")
    assert timeout.at_ns is not None and timeout.at_ns % 60_000_000_000 == 15_324_909_491


def test_a_collector_in_utc_around_a_program_in_local_time() -> None:
    rows = [
        {"line": f"2026-07-30 11:30:{s:02} step {s}", "timestamp": f"2026-07-30T09:30:{s:02}.1Z"} for s in range(20)
    ]
    part = peeled(jsonl(*rows, {"line": "no stamp", "timestamp": "2026-07-30T09:30:20Z"}))
    assert part.times[-1] == (NS // 10**9 + 5 + 7200) * 10**9


def test_newest_first_is_turned_around_and_keeps_its_line_numbers() -> None:
    rows = [
        {"line": line, "timestamp": AT if s else "2026-07-30T09:30:14Z"} for s, line in [(2, "c"), (1, "b"), (0, "a")]
    ]
    part = peeled(jsonl(*rows))
    assert (part.lines, part.numbers) == (["a", "b", "c"], [3, 2, 1])


def test_what_came_first_in_an_export_that_was_turned_around() -> None:
    lines = ["RuntimeError: early", "Traceback (most recent call last):"]
    rows = [
        {"line": f"{line}", "timestamp": f"2026-07-30T09:30:{15 - n}Z", "labels": {}} for n, line in enumerate(lines)
    ]
    evidence = Evidence()
    read_piece("x.jsonl", jsonl(*rows).encode(), evidence)
    error = next(fact for fact in evidence.facts if fact.kind == "exception")
    assert (error.spot.line, error.spot.place) in {(2, 0), (1, 1)}


# --- who spoke


@pytest.mark.parametrize(
    ("record", "host", "pod", "rank"),
    [
        (
            {"kubernetes": {"pod": {"name": "asr-0"}, "node": {"name": "gn-05"}}, "message": "x", "@timestamp": AT},
            "gn-05",
            "asr-0",
            None,
        ),
        (
            {"resource": {"labels": {"pod_name": "asr-0"}}, "insertId": "1", "textPayload": "x", "timestamp": AT},
            None,
            "asr-0",
            None,
        ),
        (
            {"message": "x", "date": AT, "host": "i-0abc12345", "tags": ["pod_name:asr-0", "kube_node:gn-05"]},
            "i-0abc12345",
            "asr-0",
            None,
        ),
        (
            {"labels": {"filename": "/nfs/run/rank3.log", "host": "gn-05:9100"}, "line": "x", "timestamp": AT},
            "gn-05",
            None,
            3,
        ),
        ({"logStreamName": "asr/algo-2-1785403815", "message": "x", "timestamp": 1785403815408}, "algo-2", None, None),
        (
            {"level": "info", "message": "x", "rank": 3, "local_rank": 1, "host": "gn-05", "time": 1785403815.4},
            "gn-05",
            None,
            3,
        ),
        (
            {
                "text": "x",
                "record": {"extra": {"rank": 3}, "time": {"timestamp": 1785403815.4}, "process": {"id": 4242}},
            },
            None,
            None,
            3,
        ),
        ({"jsonPayload": {"message": "x", "rank": "3"}, "insertId": "1", "timestamp": AT}, None, None, 3),
    ],
)
def test_labels(record: dict[str, object], host: str | None, pod: str | None, rank: int | None) -> None:
    (who,) = set(peeled(jsonl(record, record)).whos)
    assert (who.host, who.pod, who.rank) == (host, pod, rank)


def test_structured_logging_ties_ranks_to_processes_and_tells_the_size_of_the_world() -> None:
    row = {
        "level": "INFO",
        "message": "up",
        "rank": 3,
        "local_rank": 1,
        "world_size": 8,
        "host": "gn-05",
        "pid": 4242,
        "time": 1785403815.4,
    }
    (member,) = [fact for fact in facts_of(jsonl(row, {**row, "message": "step 1"})) if fact.kind == "member"]
    assert (member.rank, member.who.host, member.who.pid, member["world_size"]) == (3, "gn-05", 4242, 8)


def test_a_traceback_within_a_structured_record() -> None:
    trace = (
        'Traceback (most recent call last):\n  File "/w/train.py", line 3, in step\n    loss()\nValueError: no samples'
    )
    row = {
        "levelname": "ERROR",
        "message": "failed",
        "rank": 5,
        "asctime": "2026-07-30 09:30:15,408",
        "exc_info": trace,
    }
    error = one(jsonl(row), "exception")
    assert (error.rank, error["type"], error.spot.line) == (5, "ValueError", 1)


def test_pods_in_one_export_do_not_break_each_others_tracebacks() -> None:
    def trace(pod: int) -> list[str]:
        frames = [
            line for n in range(3) for line in (f'  File "/w/f{pod}.py", line {n}, in g{pod}{n}', f"    h{pod}{n}()")
        ]
        return ["Traceback (most recent call last):", *frames, ("ValueError: a", "KeyError: 'b'")[pod]]

    lines = [pair for rows in zip(trace(0), trace(1), strict=True) for pair in enumerate(rows)]
    rows = [{"labels": {"pod": f"asr-{pod}"}, "line": line, "timestamp": AT} for pod, line in lines]
    errors = [fact for fact in facts_of(jsonl(*rows)) if fact.kind == "exception"]
    assert {(fact.who.pod, fact["type"], fact["site"]) for fact in errors} == {
        ("asr-0", "ValueError", "/w/f0.py:2 g02"),
        ("asr-1", "KeyError", "/w/f1.py:2 g12"),
    }


@pytest.mark.parametrize(
    "text",
    [
        jsonl(
            {"__REALTIME_TIMESTAMP": "1785403815408883", "_HOSTNAME": "gn-05", "_TRANSPORT": "kernel", "MESSAGE": OOM}
        ),
        f"__REALTIME_TIMESTAMP=1785403815408883\n_HOSTNAME=gn-05\n_TRANSPORT=kernel\nMESSAGE={OOM}\n\n",
        f"Jul 30 09:30:15 gn-05 kernel: {OOM}\n",
        jsonl(
            {
                "jsonPayload": {"SYSLOG_IDENTIFIER": "kernel", "_HOSTNAME": "gn-05", "MESSAGE": OOM},
                "insertId": "1",
                "timestamp": AT,
            }
        ),
        jsonl({"labels": {"host": "gn-05"}, "line": f"Jul 30 09:30:15 gn-05 kernel: {OOM}", "timestamp": AT}),
    ],
)
def test_the_kernel_is_heard_as_the_kernel(text: str) -> None:
    kill = one(text, "oom_kill", "export")
    assert (kill.who.pid, kill.who.host, kill.spot.source.kind) == (41203, "gn-05", "kernel")


def test_a_tree_of_torchrun_behind_a_label() -> None:
    row = {"labels": {"filename": "/logs/none_x/attempt_1/5/stderr.log", "host": "gn-05"}, "line": "x", "timestamp": AT}
    (who,) = set(peeled(jsonl(row)).whos)
    assert (who.attempt, who.local_rank, who.rank, who.host) == (1, 5, None, "gn-05")


@pytest.mark.parametrize(
    ("prefix", "local_rank", "rank"),
    [("[default3]:", 3, None), ("[rank11]: ", None, 11), ("[1,11]<stderr>:", None, 11), ("11: ", None, 11)],
)
def test_labels_of_launchers_within_a_collectors(prefix: str, local_rank: int | None, rank: int | None) -> None:
    """frame.py reads these, from the line that is left."""
    lines = [
        *(f"{prefix}step {n}" for n in range(5)),
        f"{prefix}Traceback (most recent call last):",
        f"{prefix}ValueError: x",
    ]
    error = one("".join(f"trainer-1  | {AT} {line}\n" for line in lines), "exception")
    assert (error.who.local_rank, error.rank, error.who.pod) == (local_rank, rank, "trainer-1")


def test_carriage_returns_and_colours_within_records() -> None:
    bar = "".join(f"\r {n}%|▎ | {n}/1024 [00:12<06:33, 2.52it/s]" for n in range(20))
    rows = [{"log": f"\x1b[32m{bar}\x1b[0m{WATCHDOG}\n", "stream": "stderr", "time": AT}]
    timeout = one(jsonl(*rows), "timeout")
    assert (timeout.rank, timeout.seq, timeout.spot.line) == (3, 1842, 1)


# --- what is no envelope


@pytest.mark.parametrize(
    "text",
    [
        jsonl(*({"step": n, "loss": 2.1, "time": 1785403815 + n} for n in range(20))),
        jsonl(*({"text": f"a sample of a data set {n}", "url": "https://example.org"} for n in range(20))),
        "".join(f"2026-07-30 09:30:{n:02} [rank0] step {n}\n" for n in range(40)),
        "".join(f"2026-07-30T09:30:{n:02}.408Z INFO step {n}\n" for n in range(40)),
        "".join(f"INFO     | step {n}\n" for n in range(40)),
        "".join(f"node-3 step {n} loss 2.1\n" for n in range(40)),
        "timestamp, name, utilization.gpu [%]\n" + "2026/07/30 09:30:15.408, NVIDIA H100, 100 %\n" * 9,
        '{"log": "only a part of',
        "[]",
        "{}",
    ],
)
def test_ordinary_files_stay_as_they_are(text: str) -> None:
    assert envelope.document(text.encode()) is None
    (part,) = envelope.peel(text, None)
    assert part.lines == text.removesuffix("\n").split("\n")
    assert not part.numbers


def test_a_mixed_file_loses_nothing() -> None:
    row = json.dumps({"level": "info", "message": "step 7", "time": 1785403815.4})
    broken = row[:-9]
    part = peeled("\n".join([row, WATCHDOG, row, "plain", row, broken]) + "\n")
    assert part.lines[:5] == ["step 7", WATCHDOG, "step 7", "plain", "step 7"]
    assert len(part.lines) == 6 and "step 7" in part.lines[5]
    assert part.numbers == [1, 2, 3, 4, 5, 6]


# --- nesting


def test_four_wrappings() -> None:
    inner = json.dumps({"level": "info", "message": "[rank3] step 7", "time": 1785403815.5})
    line = f"[pod/asr-0/trainer] {AT} stderr F {inner}"
    rows = [{"labels": {"host": "gn-05"}, "line": line, "timestamp": "2026-07-30T09:31:00Z"}]
    part = peeled(jsonl(*rows, *rows))
    assert part.lines == ["[rank3] step 7"] * 2
    assert (part.whos[0].pod, part.whos[0].host, part.times[0]) == ("asr-0", "gn-05", 1785403815500000000)


def test_docker_records_within_a_document() -> None:
    inner = jsonl({"log": "[rank3] step 7\n", "stream": "stderr", "time": AT}).strip()
    part = peeled(json.dumps({"events": [{"timestamp": 1785403990000, "message": inner}] * 2}, indent=1))
    assert (part.lines, part.times[0], part.numbers) == (["[rank3] step 7"] * 2, NS, [5, 9])


# --- bytes and damage


def test_journal_export_with_binary_fields_of_any_size() -> None:
    for size in (1, 7, 9, 10, 13, 127, 128, 255, 256, 300, 2560, 70000):
        message = b"\x1b" + b"x" * (size - 1)
        record = (
            b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=1785403815408883\nMESSAGE\n"
            + size.to_bytes(8, "little")
            + message
            + b"\n_HOSTNAME=gn-05\n\n"
        )
        part = envelope.document(record * 2)
        assert part is not None
        assert (part.lines, part.numbers[0], part.whos[0].host) == ([message.decode()] * 2, 3, "gn-05"), size
        text = (record * 2).replace(b"\0", b"").decode("utf-8", "replace")
        (part,) = envelope.peel(text, None)
        assert part.lines == [message.decode()] * 2, size


LINES = st.lists(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=40), min_size=1, max_size=30)
WRAPS = {
    "docker": lambda lines: jsonl(*({"log": f"{line}\n", "stream": "stdout", "time": AT} for line in lines)),
    "loki": lambda lines: jsonl(*({"labels": {"pod": "a"}, "line": line, "timestamp": AT} for line in lines)),
    "cri": lambda lines: "".join(f"{AT} stdout F {line}\n" for line in lines),
    "journal": lambda lines: jsonl(
        *({"__REALTIME_TIMESTAMP": "1785403815408883", "MESSAGE": list(line.encode())} for line in lines)
    ),
    "compose": lambda lines: "".join(f"trainer-1  | {line}\n" for line in lines),
}


@pytest.mark.parametrize("name", WRAPS)
@given(lines=LINES, cut=st.integers(0, 30))
def test_unwrapping_in_runs_is_unwrapping_at_once(name: str, lines: list[str], cut: int) -> None:
    wrapped = WRAPS[name](lines).removesuffix("\n").split("\n")
    found = envelope.envelope_of(wrapped)
    if found is None:  # an array of bytes may be empty
        assert name == "journal"
        return
    whole = found.unwrap(wrapped, range(1, len(wrapped) + 1))
    runs = [found.unwrap(wrapped[a:b], range(a + 1, b + 1)) for a, b in ((0, cut), (cut, len(wrapped))) if a < b]
    for part in ("lines", "numbers", "times", "whos"):
        assert [item for run in runs for item in getattr(run, part)] == getattr(whole, part)
    assert len(whole.lines) == len(whole.numbers) == len(whole.times) == len(whole.whos) >= len(lines)


@given(st.binary(max_size=400), st.sampled_from(sorted(WRAPS)), st.integers(0, 2**32))
def test_nothing_raises(noise: bytes, name: str, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(WRAPS[name]([WATCHDOG, "step 7"] * 5).encode())
    for _ in range(rng.randrange(6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    place = rng.randrange(len(data))
    for broken in (bytes(data[:place]), bytes(data[:place]) + noise + bytes(data[place:]), noise):
        evidence = Evidence()
        read_piece("x.log", broken, evidence)
        envelope.document(broken)
        assert len(evidence.sources) == 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "message",
                        "timestamp",
                        "labels",
                        "events",
                        "data",
                        "hits",
                        "rank",
                        "values",
                        "results",
                        "stream",
                        "tables",
                        "series",
                    ]
                )
                | st.text(max_size=4),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_no_document_raises(value: object) -> None:
    data = json.dumps(value).encode()
    part = envelope.document(data)
    assert part is None or len(part.lines) == len(part.numbers) == len(part.times)
    for _ in envelope.peel((data + b"\n").decode() * 3, None):
        pass


ANY = st.none() | st.booleans() | st.floats() | st.integers(-(2**70), 2**70) | st.text(max_size=6)
KEYS = ["log", "message", "time", "timestamp", "stream", "labels", "kubernetes", "host", "rank", "world_size", "tags"]


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from([*KEYS, "exc_info", "logtag", "_TRANSPORT", "jsonPayload", "attributes"]),
            ANY | st.lists(ANY, max_size=3) | st.dictionaries(st.sampled_from([*KEYS, "pod_name"]), ANY, max_size=3),
        )
        | ANY,
        max_size=30,
    )
)
def test_records_of_any_kind(rows: list[object]) -> None:
    good = {
        "log": "step 7\n",
        "time": AT,
        "stream": "stdout",
        "labels": {"pod": "a"},
        "rank": 1,
        "world_size": 2,
        "host": "a-1",
    }
    lines = [json.dumps(row) for row in [good] * 9 + rows]
    found = envelope.envelope_of(lines[:9])
    assert found is not None
    part = found.unwrap(lines, range(1, len(lines) + 1))
    assert part.lines[:2] == ["step 7", "rank=1 world_size=2 host=a-1"]
    assert len(part.lines) == len(part.numbers) == len(part.times) == len(part.whos)
    assert all(isinstance(line, str) for line in part.lines)


def test_numbers_that_are_too_large_are_no_time() -> None:
    part = peeled(jsonl({"message": "x", "level": "info", "timestamp": 10**30, "rank": 10**30}))
    assert (part.lines, part.times, part.whos[0].rank) == (["x"], [None], None)
    assert msgspec.json.decode(b"1") == 1


@pytest.mark.parametrize(
    ("head", "is_one"),
    [
        (b'{"events": [', True),
        (b'[\n  {"timestamp": 1}', True),
        (b"[1785403815, 2]", True),
        (b"[rank0]: step 7 loss 2.1\n", False),
        (b"[2026-03-02 09:00:00,001] [INFO] step 7\n", False),
        (b"{rank 0} step 7\n", False),
        (b"[default0]: step 7\n", False),
    ],
)
def test_a_line_that_begins_with_a_bracket_is_no_document(head: bytes, is_one: bool) -> None:
    assert may_be_document(head) is is_one
