"""Log collectors that dropped, throttled or cut records: then a missing line proves nothing.

fluent-bit, fluentd, promtail and Loki, vector, filebeat, journald, rsyslog, the kernel's own rate limit, notebooks and
CI runners. `files` are the logs that the line names; it may be empty. Ray's folding is read by launchers.py.

>>> from whichrank.evidence.sample import facts
>>> drop, = facts(READER, "[2026/12/02 07:15:44] [ info] [filter:throttle:throttle.0] 51877 records dropped (rank1.log, rank6.log)")
>>> drop["files"], drop["count"], drop["by"]
(['rank1.log', 'rank6.log'], 51877, 'fluent-bit')
>>> facts(READER, "systemd-journald[512]: Suppressed 1234 messages from train.service")[0]["files"]
['train.service']
>>> facts(READER, "[rank3] collate: dropped 1 sample without annotation")
[]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from whichrank.evidence.scan import Line, Reader, Row
from whichrank.facts import Fact

_FILE = re.compile(
    r"(?<![\w/])(?:/?[\w.@:+-]{1,120}/)*[\w.@+-]{0,120}\w\.(?:log|txt|out|err|jsonl?|stdout|stderr)(?:\.\d+|\.gz)?(?![\w/])"
)
_DROPS = r"(?:drop(?:ped|ping|s)?\b|discard(?:ed|ing)|rate.?limit|overlimit|suppress(?:ed|ing)|throttl(?:ed|ing)|truncat(?:ed|ing)|partial record|cannot be retried|no longer retry|skipp(?:ed|ing) (?:long )?lines?|records? lost|lines? lost|too (?:long|far behind|large)|out of order)"
_COLLECTORS = (
    (
        "fluent-bit",
        re.compile(r"fluent-?bit|\[(?:filter|output|input|engine|storage|task|in_tail)[:\]][^\]]*\]?", re.I),
    ),
    ("fluentd", re.compile(r"\bfluentd\b|\bfluent/|#\d+ .*buffer (?:flush|space)|emit transaction failed", re.I)),
    ("vector", re.compile(r"\bvector(?:::|\b.*(?:component_id|sink|source))|\bcomponent_(?:id|kind)=", re.I)),
    ("promtail", re.compile(r"promtail|component=client\b|\bloki\b|grafana-agent|\balloy\b", re.I)),
    ("filebeat", re.compile(r"filebeat|logstash|\bharvester\b", re.I)),
    ("otel", re.compile(r"otelcol|opentelemetry|exporterhelper", re.I)),
    ("rsyslog", re.compile(r"rsyslogd?|im(?:uxsock|journal)", re.I)),
    ("cloud", re.compile(r"CloudWatch|awslogs|ThrottlingException|stackdriver|google-fluentd|gcplogs", re.I)),
    ("container runtime", re.compile(r"\bcontainerd\b|\bdockerd\b|\bcri-o\b|\bkubelet\b", re.I)),
)
_COUNT = re.compile(
    r"(?<!\d)(?P<before>\d{1,18}) (?:log )?(?:records?|lines?|messages?|entries|events|callbacks)\b(?!/)|(?:count|dropped|suppressed)[=: ]+(?P<after>\d{1,18})",
    re.I,
)


LONGEST = 3000  # characters of a line: a record that was lost may stand in it whole


def _drop(row: Row, by: str, files: list[str]) -> Fact:
    match = _COUNT.search(row.raw[:LONGEST])
    count: dict[str, Any] = {"count": int(match["before"] or match["after"])} if match else {}
    return row.fact("collector_drop", by=by, files=files, **count)


def read_drop(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    """A line of a known collector that tells of lost records, and the files it names."""
    text = row.raw[:LONGEST]
    by = next((name for name, pattern in _COLLECTORS if pattern.search(text)), None)
    if by is None or not re.search(
        r"\b(?:records?|lines?|messages?|entries|entry|events?|chunk|batch|buf(?:fer)?|stream|rate.?limit|logs?)\b",
        text,
        re.I,
    ):
        return
    yield _drop(row, by, sorted(set(_FILE.findall(text))))


def read_from(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    """journald and rsyslog name the unit or the process instead of a file."""
    unit = match.groupdict().get("unit")
    yield _drop(row, "journald" if "ournal" in row.raw or unit else "rsyslog", [unit] if unit else [])


def read_plain(row: Row, match: re.Match[str]) -> Iterator[Fact]:
    yield _drop(row, match.lastgroup or "output", sorted(set(_FILE.findall(row.raw[:LONGEST]))))


# fmt: off
LINES = (
    Line("collector_drop", ("drop", "Drop", "discard", "limit", "uppress", "hrottl", "runcat", "partial record", "retried", "skipp", "lost", "too long", "too far", "out of order"), _DROPS, read=read_drop),
    Line("collector_drop", "uppressed", r"Suppressed \d+ messages from (?P<unit>\S+?)\.?$", read=read_from),
    Line("collector_drop", ("rate-limiting", "Missed"), r"begin to drop messages due to rate-limiting|\d+ messages lost due to rate-limiting|Missed \d+ kernel messages", read=read_from),
    Line("collector_drop", ("suppressed", "ratelimiting"), r"(?P<kernel>\d+ callbacks suppressed|printk: \d+ messages suppressed|output lines suppressed due to ratelimiting)", read=read_plain),
    Line("collector_drop", ("IOPub", "log exceeded limit", "utput truncated", "log truncated"), r"(?P<notebook>IOPub (?:data|message) rate exceeded)|(?P<runner>[Jj]ob's log exceeded limit|\[(?:log|output) truncated\]|\(log truncated\))", read=read_plain),
)
# fmt: on

READER = Reader(
    "collectors",
    LINES,
    title="log collectors that dropped lines",
    versions="fluent-bit, fluentd, promtail, Loki, vector, filebeat, journald, rsyslog",
    collect=("kubectl logs -n LOGGING ds/COLLECTOR", "journalctl -u systemd-journald"),
)
