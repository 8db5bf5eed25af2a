"""Logs as collectors would have delivered them: the same lines, in each wrapping that whichrank peels.

A `Log` is one file's lines with the times at which they were written. A wrapping takes the logs of a case and gives
files back; the forms are those of the tools that evidence/envelope names. Deterministic.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

PIECE = 16 << 10  # bytes: where Docker and containerd split a line


@dataclass
class Log:
    name: str
    lines: list[str]
    times: list[int]  # ns since 1970
    host: str = ""
    kernel: bool = False
    whole: bool = True  # it ends with a newline

    @property
    def pod(self) -> str:
        stem = self.name.rsplit("/", 1)[-1].split(".")[0].lower().replace("_", "-")
        return stem if self.name.count("/") < 2 else f"{self.name.split('/')[-2]}-{stem}".lower().replace("_", "-")

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return zip(self.lines, self.times, strict=True)


Files = dict[str, bytes]


@dataclass
class Wrapping:
    name: str
    wrap: Callable[[Log], str]
    kernel: bool = True  # it may carry the kernel's log as well

    def __call__(self, log: Log) -> Files:
        text = self.wrap(log)
        if not log.whole and text.endswith("\n") and self.name not in ("docker", "cri", "gitlab timestamps"):
            text = text[:-1]  # cut where the collector's own file was cut
        return {log.name: text.encode("utf-8", "surrogateescape")}


def moment(at: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=at // 1000)


def iso(at: int, digits: int = 9, zone: str = "Z", sep: str = "T") -> str:
    second = moment(at).strftime(f"%Y-%m-%d{sep}%H:%M:%S")
    return f"{second}{'.' + f'{at % 1_000_000_000:09d}'[:digits] if digits else ''}{zone}"


def nano(at: int) -> str:
    """RFC3339Nano: trailing zeros are left out."""
    text = iso(at, zone="").rstrip("0").rstrip(".")
    return f"{text}Z"


def stream(line: str) -> str:
    return "stderr" if line.startswith(("[rank", "Traceback", "  File", "W0", "E0", "terminate")) else "stdout"


def jsonl(rows: Iterator[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)


def table(columns: list[str], rows: list[list[str]], delimiter: str = ",") -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerows([columns, *rows])
    return out.getvalue()


def pieces(line: str) -> list[str]:
    """A line as container runtimes split it."""
    return [line[at : at + PIECE] for at in range(0, len(line), PIECE)] or [""]


def docker(log: Log) -> str:
    def rows() -> Iterator[dict[str, Any]]:
        for number, (line, at) in enumerate(log):
            end = "" if number == len(log.lines) - 1 and not log.whole else "\n"
            *first, last = pieces(line)
            for piece in (*first, last + end):
                yield {"log": piece, "stream": stream(line), "time": nano(at)}

    return jsonl(rows())


def cri(log: Log) -> str:
    out = []
    for number, (line, at) in enumerate(log):
        *first, last = pieces(line)
        end = "P" if number == len(log.lines) - 1 and not log.whole else "F"
        out += [
            f"{nano(at)} {stream(line)} {tag} {piece}\n" for tag, piece in [*(("P", p) for p in first), (end, last)]
        ]
    return "".join(out)


def _journal(log: Log) -> Iterator[dict[str, str]]:
    for number, (line, at) in enumerate(log):
        fields = {
            "__CURSOR": f"s=739ad463;i={number:x};b=6c7c6013;m=4fc72436e;t={at // 1000:x};x=d3e56106",
            "__REALTIME_TIMESTAMP": str(at // 1000 + 250_000),
            "_HOSTNAME": log.host or "localhost",
            "_MACHINE_ID": "a91663387a90b89f185d4e860000001a",
        }
        if log.kernel:
            yield (
                fields
                | {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "PRIORITY": "4", "MESSAGE": bare(line)}
                | {"_SOURCE_REALTIME_TIMESTAMP": str(at // 1000)}
            )
        else:
            yield (
                fields
                | {"_TRANSPORT": "stdout", "SYSLOG_IDENTIFIER": "train.sh", "_PID": "812", "MESSAGE": line}
                | {"_SOURCE_REALTIME_TIMESTAMP": str(at // 1000), "_SYSTEMD_UNIT": "train.service"}
            )


def bare(line: str) -> str:
    """A kernel's line without what stands before its message."""
    import re

    return re.sub(
        r"^(?:<\d+>)?(?:\[[^\]]*\d\d:\d\d[^\]]*\] |\w{3} [ \d]\d [\d:]{8} \S+ kernel: (?:\[ *[\d.]+\] )?|\d{4}-\S+ \S+ kernel: (?:\[ *[\d.]+\] )?)",
        "",
        line,
    )


def printable(text: str) -> bool:
    return all(char >= " " or char == "\t" for char in text)


def journal_json(log: Log) -> str:
    def rows() -> Iterator[dict[str, Any]]:
        for fields in _journal(log):
            yield {k: v if printable(v) else list(v.encode()) for k, v in fields.items()}

    return jsonl(rows())


def journal_export(log: Log) -> str:
    out = []
    for fields in _journal(log):
        for name, value in fields.items():
            if printable(value):
                out.append(f"{name}={value}\n")
            else:
                size = len(value.encode()).to_bytes(8, "little")
                out.append(f"{name}\n{size.decode('utf-8', 'surrogateescape')}{value}\n")
        out.append("\n")
    return "".join(out)


def loki(log: Log) -> str:
    labels = {"app": "train", "filename": f"/var/log/train/{log.name}", "job": "train"}
    return jsonl({"labels": labels, "line": line, "timestamp": nano(at)} for line, at in log)


def backward(log: Log) -> Log:
    """Newest first, as most queries answer."""
    return replace(log, lines=log.lines[::-1], times=log.times[::-1])


def loki_newest_first(log: Log) -> str:
    return loki(backward(log))


def loki_local_time(log: Log) -> str:
    """The collector's clock is UTC, the program's two hours ahead of it."""
    return loki(replace(log, times=[at - 7200 * 10**9 for at in log.times]))


def loki_query(log: Log) -> str:
    values = [[str(at), line] for line, at in log]
    result = [{"stream": {"app": "train", "job": "train"}, "values": values[::-1]}]
    return json.dumps({"status": "success", "data": {"resultType": "streams", "result": result, "stats": {}}})


def logcli(log: Log) -> str:
    return "".join(f'{iso(at, 0)} {{app="train", job="train"}}     {line.strip()}\n' for line, at in log)


def grafana_json(log: Log) -> str:
    return json.dumps([{"line": line, "timestamp": str(at), "fields": {"app": "train"}} for line, at in backward(log)])


def grafana_csv(log: Log) -> str:
    rows = [[iso(at, 3), line, str(at), json.dumps({"app": "train"})] for line, at in backward(log)]
    return table(["Time", "Line", "tsNs", "labels"], rows)


def grafana_txt(log: Log) -> str:
    head = 'Common labels: {"app":"train"}\nLine limit: 5000\n\n\n'
    return head + "".join(f"{at // 1_000_000}\t{iso(at, 3)}\t{line}\n" for line, at in backward(log))


def _ingested(at: int) -> int:
    return at // 1_000_000 + 4000 + at // 1_000_000 % 977 * 7


def cloudwatch_get(log: Log) -> str:
    events = [{"timestamp": at // 1_000_000, "message": line, "ingestionTime": _ingested(at)} for line, at in log]
    return json.dumps({"events": events, "nextForwardToken": "f/3", "nextBackwardToken": "b/3"}, indent=4)


def cloudwatch_filter(log: Log) -> str:
    events = [
        {
            "logStreamName": log.pod,
            "timestamp": at // 1_000_000,
            "message": line,
            "ingestionTime": _ingested(at),
            "eventId": f"3{number:055}",
        }
        for number, (line, at) in enumerate(log)
    ]
    return json.dumps({"events": events, "searchedLogStreams": []}, indent=4)


def aws_tail(log: Log) -> str:
    return "".join(f"{iso(at, 6, '+00:00')} train/default/{log.pod} {line.rstrip()}\n" for line, at in log)


def aws_tail_short(log: Log) -> str:
    return "".join(f"{iso(at, 0, '')} {line.rstrip()}\n" for line, at in log)


def insights(log: Log) -> str:
    rows = [
        [
            {"field": "@timestamp", "value": iso(at, 3, "", " ")},
            {"field": "@message", "value": line},
            {"field": "@ptr", "value": f"CmEKJgoi{number}"},
        ]
        for number, (line, at) in reversed(list(enumerate(log)))
    ]
    return json.dumps({"results": rows, "statistics": {"recordsMatched": 1.0}, "status": "Complete"}, indent=4)


def insights_csv(log: Log) -> str:
    return table(["@timestamp", "@message"], [[iso(at, 3, "", " "), line] for line, at in backward(log)])


def _google(log: Log) -> Iterator[dict[str, Any]]:
    for number, (line, at) in enumerate(log):
        yield {
            "insertId": f"{number:016x}",
            "labels": {"agent.googleapis.com/log_file_path": f"/var/log/{log.name}"},
            "logName": "projects/p/logs/train",
            "receiveTimestamp": iso(at + 3_000_000_000 + at % 991 * 1_000_000),
            "resource": {"labels": {"project_id": "p", "zone": "us-central1-a"}, "type": "gce_instance"},
            "severity": "INFO",
            "timestamp": iso(at),
        } | ({"textPayload": line} if number % 2 else {"jsonPayload": {"message": line}})


def gcloud(log: Log) -> str:
    return json.dumps(list(_google(log))[::-1], indent=2)


def gcloud_lines(log: Log) -> str:
    return jsonl(_google(log))


def datadog(log: Log) -> str:
    data = [
        {
            "id": f"AwAA{number}",
            "type": "log",
            "attributes": {
                "service": "train",
                "status": "info",
                "timestamp": iso(at, 3),
                "message": line,
                "tags": ["env:prod"],
                "attributes": {},
            },
        }
        for number, (line, at) in enumerate(log)
    ]
    return json.dumps({"data": data[::-1], "meta": {"elapsed": 132}})


def datadog_archive(log: Log) -> str:
    return jsonl(
        {
            "_id": f"Aw{n}",
            "date": iso(at, 3),
            "source": "python",
            "service": "train",
            "status": "info",
            "message": line,
            "attributes": {},
            "tags": ["env:prod"],
        }
        for n, (line, at) in enumerate(log)
    )


def datadog_csv(log: Log) -> str:
    return table(["Date", "Service", "Message"], [[iso(at, 3), "train", line] for line, at in backward(log)])


def elastic(log: Log) -> str:
    hits = [
        {
            "_index": "logs",
            "_id": str(n),
            "_source": {
                "@timestamp": iso(at, 3),
                "message": line,
                "log": {"offset": n, "file": {"path": f"/var/log/{log.name}"}},
            },
        }
        for n, (line, at) in enumerate(log)
    ]
    return json.dumps({"took": 5, "hits": {"total": {"value": len(hits)}, "hits": hits}}, indent=1)


def filebeat(log: Log) -> str:
    return jsonl(
        {
            "@timestamp": iso(at, 3),
            "message": line,
            "input": {"type": "filestream"},
            "agent": {"type": "filebeat"},
            "log": {"offset": n, "file": {"path": f"/var/log/{log.name}"}},
        }
        for n, (line, at) in enumerate(log)
    )


def fluentbit(log: Log) -> str:
    kubernetes = {"pod_name": log.pod, "namespace_name": "ml", "container_name": "trainer"}
    return jsonl(
        {"date": at / 1e9, "time": nano(at), "stream": stream(line), "_p": tag, "log": piece, "kubernetes": kubernetes}
        | {"logtag": tag}
        for line, at in log
        for tag, piece in [*(("P", p) for p in pieces(line)[:-1]), ("F", pieces(line)[-1])]
    )


def vector(log: Log) -> str:
    return jsonl(
        {"file": f"/var/log/{log.name}", "message": line, "source_type": "file", "timestamp": nano(at)}
        for line, at in log
    )


def azure(log: Log) -> str:
    rows = [
        {
            "Computer": "",
            "ContainerName": "trainer",
            "LogMessage": line,
            "LogSource": stream(line),
            "PodName": log.pod,
            "TableName": "PrimaryResult",
            "TimeGenerated": iso(at, 7),
        }
        for line, at in backward(log)
    ]
    return json.dumps(rows, indent=2)


def rfc3164(log: Log) -> str:
    tag = "kernel" if log.kernel else "train.sh[812]"
    return "".join(
        f"{moment(at).strftime('%b')} {moment(at).day:2} {moment(at):%H:%M:%S} {log.host or 'localhost'} {tag}: {bare(line) if log.kernel else line}\n"
        for line, at in log
    )


def syslog_iso(log: Log) -> str:
    tag = "kernel" if log.kernel else "train.sh[812]"
    return "".join(
        f"{iso(at, 6, '+00:00')} {log.host or 'localhost'} {tag}: {bare(line) if log.kernel else line}\n"
        for line, at in log
    )


def rfc5424(log: Log) -> str:
    return "".join(
        f'<14>1 {iso(at, 6)} {log.host or "-"} train 812 - [origin software="train"] {line}\n' for line, at in log
    )


def kubectl_timestamps(log: Log) -> str:
    return "".join(f"{nano(at)} {line}\n" for line, at in log)


def kubectl_prefix(log: Log) -> str:
    return "".join(f"[pod/{log.pod}/trainer] {line}\n" for line, _ in log)


def kubectl_both(log: Log) -> str:
    return "".join(f"[pod/{log.pod}/trainer] {nano(at)} {line}\n" for line, at in log)


def stern(log: Log) -> str:
    return "".join(f"{log.pod}-x7k2p trainer {line}\n" for line, _ in log)


def compose(log: Log) -> str:
    return "".join(f"{log.pod}-1  | {line}\n" for line, _ in log)


def compose_coloured(log: Log) -> str:
    return "".join(f"\x1b[36m{log.pod}-1  | \x1b[0m{iso(at)} {line}\n" for line, at in log)


def actions(log: Log) -> str:
    first, last = log.times[0], log.times[-1]
    out = [
        f"\ufeff{iso(first, 7)} ##[group]Run torchrun train.py\n",
        f"{iso(first, 7)} shell: /usr/bin/bash -e\n",
        f"{iso(first, 7)} ##[endgroup]\n",
    ]
    out += [f"{iso(at, 7)} {line}\n" for line, at in log]
    return "".join(out) + f"{iso(last, 7)} ##[error]Process completed with exit code 1.\n" * log.whole


def actions_cli(log: Log) -> str:
    return "".join(f"train (8, h100)\tRun tests\t{iso(at, 7)} {line}\n" for line, at in log)


def gitlab(log: Log) -> str:
    first, last = log.times[0] // 10**9, log.times[-1] // 10**9
    out = [
        "\x1b[0KRunning with gitlab-runner 17.2.0\x1b[0;m\n",
        f"section_start:{first}:step_script\r\x1b[0K\x1b[0K\x1b[36;1mExecuting\x1b[0;m\n",
    ]
    out += [f"{line}\n" for line in log.lines]
    return "".join(out) + f"section_end:{last}:step_script\r\x1b[0K\n" * log.whole


def gitlab_timestamps(log: Log) -> str:
    first = iso(log.times[0], 6)
    out = [
        f"{first} 00O \x1b[0KRunning with gitlab-runner 18.7.0\x1b[0;m\n",
        f"{first} 00O section_start:{log.times[0] // 10**9}:step_script\r\x1b[0K\n",
        f"{first} 00O+\x1b[0K\x1b[36;1mExecuting the script\x1b[0;m\x1b[0;m\n",
    ]
    for line, at in log:
        *first, last = pieces(line)
        out += [
            f"{iso(at, 6)} 01{'E' if stream(line) == 'stderr' else 'O'}{'+' if n else ' '}{p}\n"
            for n, p in enumerate((*first, last))
        ]
    return "".join(out)


def structured(log: Log) -> str:
    """A program that logs JSON; what C++ and tracebacks print stays as it is."""
    out = []
    for line, at in log:
        raw = (
            line.startswith(("[rank", "Traceback", "  ", "W", "E", "terminate")) or ".cpp:" in line or not line.strip()
        )
        out.append(f"{line}\n" if raw else json.dumps({"level": "info", "message": line, "time": at / 1e9}) + "\n")
    return "".join(out)


def nested(outer: Callable[[Log], str], inner: Callable[[Log], str]) -> Callable[[Log], str]:
    def wrap(log: Log) -> str:
        text = inner(log)
        lines = text.split("\n")[:-1] if text.endswith("\n") else text.split("\n")
        assert len(lines) == len(log.lines), "the inner wrapping must keep one line a line"
        return outer(replace(log, lines=lines))

    return wrap


def whole_lines(inner: Callable[[Log], str]) -> Callable[[Log], str]:
    """An inner wrapping that splits no line."""

    def wrap(log: Log) -> str:
        return inner(replace(log, lines=[line[: PIECE - 1] for line in log.lines], whole=True))

    return wrap


PER_FILE = (
    Wrapping("docker", docker),
    Wrapping("cri", cri),
    Wrapping("journald json", journal_json),
    Wrapping("journald export", journal_export),
    Wrapping("loki jsonl", loki),
    Wrapping("loki newest first", loki_newest_first),
    Wrapping("loki, local time", loki_local_time, kernel=False),
    Wrapping("loki query", loki_query),
    Wrapping("logcli text", logcli),
    Wrapping("grafana json", grafana_json),
    Wrapping("grafana csv", grafana_csv),
    Wrapping("grafana txt", grafana_txt),
    Wrapping("cloudwatch get-log-events", cloudwatch_get),
    Wrapping("cloudwatch filter-log-events", cloudwatch_filter),
    Wrapping("aws logs tail", aws_tail),
    Wrapping("aws logs tail short", aws_tail_short),
    Wrapping("insights json", insights),
    Wrapping("insights csv", insights_csv),
    Wrapping("gcloud json", gcloud),
    Wrapping("gcloud json lines", gcloud_lines),
    Wrapping("datadog api", datadog),
    Wrapping("datadog archive", datadog_archive),
    Wrapping("datadog csv", datadog_csv),
    Wrapping("elasticsearch hits", elastic),
    Wrapping("filebeat", filebeat),
    Wrapping("fluent bit", fluentbit, kernel=False),
    Wrapping("vector", vector),
    Wrapping("log analytics", azure, kernel=False),
    Wrapping("syslog rfc3164", rfc3164),
    Wrapping("syslog iso", syslog_iso),
    Wrapping("syslog rfc5424", rfc5424),
    Wrapping("kubectl --timestamps", kubectl_timestamps, kernel=False),
    Wrapping("kubectl --prefix", kubectl_prefix, kernel=False),
    Wrapping("kubectl --prefix --timestamps", kubectl_both, kernel=False),
    Wrapping("stern", stern, kernel=False),
    Wrapping("compose", compose, kernel=False),
    Wrapping("compose -t, coloured", compose_coloured, kernel=False),
    Wrapping("github actions", actions, kernel=False),
    Wrapping("gh run view --log", actions_cli, kernel=False),
    Wrapping("gitlab", gitlab, kernel=False),
    Wrapping("gitlab timestamps", gitlab_timestamps, kernel=False),
    Wrapping("structured logging", structured, kernel=False),
    Wrapping("loki around cri", nested(loki, whole_lines(cri)), kernel=False),
    Wrapping("cloudwatch around docker", nested(cloudwatch_get, whole_lines(docker)), kernel=False),
    Wrapping("actions around compose", nested(actions_cli, compose), kernel=False),
    Wrapping(
        "docker around kubectl around structured", nested(docker, nested(kubectl_prefix, structured)), kernel=False
    ),
)


def merged(logs: list[Log], prefix: Callable[[Log, str, int], str], by_time: bool) -> str:
    """Lines of several pods in one file: one after the other, or as they came."""
    rows = [(at, number, place, line) for number, log in enumerate(logs) for place, (line, at) in enumerate(log)]
    rows.sort(key=lambda row: row[:3] if by_time else row[1:3])
    return "".join(prefix(logs[number], line, at) + "\n" for at, number, _, line in rows)


def _loki_line(log: Log, line: str, at: int) -> str:
    labels = {"pod": log.pod, "filename": f"/var/log/{log.name}"} | ({"node_name": log.host} if log.host else {})
    return json.dumps({"labels": labels, "line": line, "timestamp": nano(at)})


MERGED: dict[str, Callable[[list[Log]], str]] = {
    "kubectl --prefix, one after the other": lambda logs: merged(
        logs, lambda log, line, at: f"[pod/{log.pod}/trainer] {line}", False
    ),
    "kubectl --prefix -f": lambda logs: merged(logs, lambda log, line, at: f"[pod/{log.pod}/trainer] {line}", True),
    "stern -t": lambda logs: merged(logs, lambda log, line, at: f"{log.pod}-x7k2p trainer {nano(at)} {line}", True),
    "compose": lambda logs: merged(logs, lambda log, line, at: f"{log.pod:<24} | {line}", True),
    "loki, all pods": lambda logs: merged(logs, _loki_line, True),
    "aws logs tail, all streams": lambda logs: merged(
        logs, lambda log, line, at: f"{iso(at, 6, '+00:00')} train/{log.pod} {line}", True
    ),
}

__all__ = ["MERGED", "PER_FILE", "Log", "Wrapping"]
