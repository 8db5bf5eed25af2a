"""Log collectors that lost records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import disturbed, essence, facts_of, one

SAMPLES = [
    (
        "[2026/12/02 06:57:01] [ warn] [filter:throttle:throttle.0] rate limit: rank6.log 402 lines/s > 50, dropping",
        "fluent-bit",
        ["rank6.log"],
        None,
    ),
    (
        "[2026/12/02 06:58:00] [ warn] [output:file:file.2] partial record written for rank6.log, stream closed",
        "fluent-bit",
        ["rank6.log"],
        None,
    ),
    (
        "[2026/12/02 07:15:44] [ info] [filter:throttle:throttle.0] 51877 records dropped (rank1.log, rank6.log)",
        "fluent-bit",
        ["rank1.log", "rank6.log"],
        51877,
    ),
    (
        "2026-01-01 [warn]: fluentd buffer overflow, dropped 12 records of /var/log/pods/rank3.log",
        "fluentd",
        ["/var/log/pods/rank3.log"],
        12,
    ),
    (
        'level=error component=client msg="final error sending batch, entry too far behind" filename=/data/rank2.log',
        "promtail",
        ["/data/rank2.log"],
        None,
    ),
    (
        "2026-01-01T00:00:00Z WARN sink{component_id=loki component_kind=sink}: vector::internal_events: Events dropped count=7 reason=rate limited",
        "vector",
        [],
        7,
    ),
    (
        "Jan 01 00:00:01 n1 systemd-journald[512]: Suppressed 1234 messages from train.service",
        "journald",
        ["train.service"],
        1234,
    ),
    ("Jan 01 00:00:01 n1 rsyslogd: imuxsock[pid 99]: begin to drop messages due to rate-limiting", "rsyslog", [], None),
    ("[Tue Jun  9 22:04:36 2026] amd_iommu_report_page_fault: 42 callbacks suppressed", "kernel", [], 42),
    ("IOPub message rate exceeded.", "notebook", [], None),
    ("Job's log exceeded limit of 4194304 bytes.", "runner", [], None),
]


@pytest.mark.parametrize(("line", "by", "files", "count"), SAMPLES)
def test_line(line: str, by: str, files: list[str], count: int | None) -> None:
    found = [fact for fact in facts_of(line, "collector.txt") if fact.kind == "collector_drop"]
    assert (found[0]["by"], found[0]["files"], found[0]["count"]) == (by, files, count)
    assert {tuple(fact["files"]) for fact in found} == {tuple(files)}


@pytest.mark.parametrize(
    "line",
    [
        "[rank3] collate: dropped 1 sample",
        "dropout=0.1 stream=train.log",
        "containerd started, log level info",
        "moe: 12 tokens dropped",
    ],
)
def test_what_lost_nothing(line: str) -> None:
    assert [fact for fact in facts_of(line) if fact.kind == "collector_drop"] == []


@given(st.integers(0, 10_000))
def test_facts_survive_what_happens_to_other_lines(seed: int) -> None:
    lines = [line for line, *_ in SAMPLES]
    plain = {essence(fact) for fact in facts_of("\n".join(lines))}
    assert plain <= {essence(fact) for fact in facts_of(disturbed(lines, seed))}
    assert one(lines[0], "collector_drop")["count"] is None
