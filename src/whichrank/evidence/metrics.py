r"""Metrics of dcgm-exporter and node-exporter: a scrape as text, Prometheus' API as JSON, a CSV that Grafana exported.

Formats: Prometheus text exposition 0.0.4; the HTTP API's `matrix` and `vector` (Prometheus 2 and 3); Grafana 9 to 12,
"Series joined by time", where the columns carry the metric with its labels. Names: dcgm-exporter 3 and 4, node-exporter
1.x. Most are counts since the boot, and DCGM's Xid is the last one that the GPU ever had: one scrape proves nothing of
either. In a series an Xid counts where the value changes.

>>> from whichrank.evidence.sample import facts
>>> line = 'node_network_receive_errs_total{device="eth0",instance="n3:9100"} 12'
>>> [(fact.who.host, fact["interface"], fact["name"], fact["value"]) for fact in facts(READER, line)]
[('n3', 'eth0', 'node_network_receive_errs_total', 12)]
>>> line = 'DCGM_FI_DEV_GPU_UTIL{gpu="3",UUID="GPU-1b2c",device="nvidia3",modelName="NVIDIA H100 80GB HBM3",Hostname="n3"} 100'
>>> [(fact.kind, fact.who.host, fact["index"], fact["util"]) for fact in facts(READER, line)]
[('gpu_sample', 'n3', 3, 100)]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from whichrank.evidence import stamps
from whichrank.evidence.gpu_tools import BITS
from whichrank.evidence.scan import Line, Reader, Row, Whole
from whichrank.facts import Fact, Gap, Identity, Source, Spot

MOST = 300  # points of one series that are kept, beside those at which a count changes
ALL = 20_000  # facts of one export
_COUNTS = re.compile(
    r"DCGM_FI_DEV_(?:XID_ERRORS|ECC_DBE_(?:VOL|AGG)_TOTAL|NVLINK_(?:CRC|REPLAY|RECOVERY)_\w+|PCIE_REPLAY_COUNTER|UNCORRECTABLE_REMAPPED_ROWS|ROW_REMAP_FAILURE)"
    r"|node_network_(?:receive_errs|transmit_errs|carrier_changes|carrier_down_changes)_total|node_network_carrier_(?:down_)?changes_total"
    r"|node_infiniband_(?:link_downed|link_error_recovery|symbol_error|port_receive_errors|local_link_integrity_errors|excessive_buffer_overrun_errors|port_transmit_discards|port_receive_remote_physical_errors)_total"
    r"|node_netstat_Tcp_(?:RetransSegs|OutSegs)|node_vmstat_oom_kill|node_nfs_rpc_retransmissions_total"
)
_GAUGES = re.compile(
    r"DCGM_FI_DEV_(?:GPU_UTIL|CLOCK_THROTTLE_REASONS|CLOCKS_EVENT_REASONS)|node_memory_MemAvailable_bytes"
)
_SAMPLE = re.compile(
    r"^(?P<name>(?:DCGM_FI_DEV|node)_\w+)(?:\{(?P<labels>.*)\})? (?P<value>[-+]?[\d.]+(?:e[+-]?\d+)?)(?: (?P<ms>\d{13}))?\s*$"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Those that slow a GPU for its own sake
_BITS = {bit: reason for bit, reason in BITS.items() if reason != "sw_power_cap"}


def _host(labels: Mapping[str, str]) -> str | None:
    for name in ("Hostname", "hostname", "nodename", "kubernetes_node", "node", "instance"):
        if value := labels.get(name):
            return re.sub(r":\d+$", "", value)
    return None


def _fact(
    name: str, labels: Mapping[str, str], value: float, spot: Spot, at_ns: int | None, clock: Any, who: Identity
) -> Fact | None:
    """The fact of one point of a metric that tells of trouble."""
    index = int(labels["gpu"]) if labels.get("gpu", "").isdecimal() else None
    identity = Identity(host=_host(labels)).filled(who)
    number = int(value) if value == int(value) else value
    if name.startswith("DCGM_FI_DEV_GPU_UTIL") and index is not None:
        values: dict[str, Any] = {"index": index, "util": int(value)}
        return Fact("gpu_sample", spot, at_ns, clock, identity, values=values)
    if "REASONS" in name and index is not None:
        reasons = [reason for bit, reason in _BITS.items() if int(value) & bit]
        values = {"index": index, **({"throttle": ",".join(reasons)} if reasons else {})}
        return Fact("gpu_sample", spot, at_ns, clock, identity, values=values)
    if name == "node_memory_MemAvailable_bytes":
        return Fact("pressure", spot, at_ns, clock, identity, values={"resource": "memory", "available_bytes": number})
    if not _COUNTS.fullmatch(name):
        return None
    short = name.replace("node_netstat_Tcp_", "Tcp").replace("node_vmstat_", "")
    values = {"name": short, "value": number}
    if index is not None:
        values["device"] = f"gpu {index}"
    elif "port" in labels:
        values["device"] = f"{labels.get('device', '')} port {labels['port']}"
    elif "device" in labels:
        values["interface"] = labels["device"]
    return Fact("counter", spot, at_ns, clock, identity, values=values)


def _line(row: Row, match: re.Match[str]) -> Iterable[Fact]:
    found = _SAMPLE.match(row.text)
    if found is None or not (_COUNTS.fullmatch(found["name"]) or _GAUGES.fullmatch(found["name"])):
        return
    labels = dict(_LABEL.findall(found["labels"] or ""))
    at, clock = (int(found["ms"]) * 1_000_000, "wall") if found["ms"] else (row.at_ns, row.clock)
    if fact := _fact(found["name"], labels, float(found["value"]), row.spot(), at, clock, row.who):
        yield fact


def _sniff(head: bytes, name: str) -> bool:
    if b'"resultType"' in head and b'"result"' in head and b'"metric"' in head:
        return True
    first = head.partition(b"\n")[0]
    return first[:6].strip(b'"').startswith(b"Time") and (b"DCGM_FI_" in first or b"node_" in first) and b"{" in first


def _whole(data: bytes, source: Source) -> Iterator[Fact | Gap]:
    source.kind = "metrics"
    series = _csv(data) if data[:6].strip(b'"').startswith(b"Time") else _api(data)
    if series is None:
        yield Gap(source.path, "an export of Prometheus that does not end", "the whole answer of the query")
        return
    kept = 0
    for name, labels, points in series:
        if not (_COUNTS.fullmatch(name) or _GAUGES.fullmatch(name)):
            continue
        for fact in _points(name, labels, points, source):
            yield fact
            kept += 1
            if kept >= ALL:
                return


Series = tuple[str, dict[str, str], list[tuple[int, float]]]


def _api(data: bytes) -> list[Series] | None:
    try:
        found = msgspec.json.decode(data)
        result = found["data"]["result"] if "data" in found else found["result"]
        series = []
        for item in result:
            labels = {str(key): str(value) for key, value in item["metric"].items()}
            points = [(int(float(at) * 1e9), float(value)) for at, value in item.get("values") or [item["value"]]]
            series.append((labels.pop("__name__", ""), labels, [point for point in points if point[1] == point[1]]))
        return series
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _csv(data: bytes) -> list[Series]:
    import csv

    rows = csv.reader(data.decode("utf-8-sig", "replace").splitlines())
    header = next(rows, [])
    heads = [re.match(r"(?P<name>\w+)\{(?P<labels>.*)\}$", cell) for cell in header]
    found: list[Series] = [
        (head["name"], dict(_LABEL.findall(head["labels"])), []) if head else ("", {}, []) for head in heads
    ]
    for row in rows:
        at = stamps.find(row[0]) if row else None
        at_ns = at[0] if at else int(row[0]) * 1_000_000 if row and re.fullmatch(r"\d{13}", row[0]) else None
        if at_ns is None:
            continue
        for (_, _, points), cell in zip(found[1:], row[1:], strict=False):
            if re.fullmatch(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", cell):
                points.append((at_ns, float(cell)))
    return found


def _points(
    name: str, labels: Mapping[str, str], points: Sequence[tuple[int, float]], source: Source
) -> Iterator[Fact]:
    """The points of one series: all changes of a count, and at most `MOST` others."""
    step = max(1, len(points) // MOST)
    where = ",".join(
        f'{key}="{value}"' for key, value in labels.items() if key in ("Hostname", "instance", "gpu", "device")
    )
    previous: float | None = None
    for number, (at, value) in enumerate(points):
        if not abs(value) < 1e18 or not 0 < at < 1 << 62:
            continue
        changed = previous is not None and value != previous
        spot = Spot(source, None, f"{name}{{{where}}} {value:g} @{at // 1_000_000_000}")
        if name.endswith("XID_ERRORS"):
            if changed and value and value == int(value):
                index = {"index": int(labels["gpu"])} if labels.get("gpu", "").isdecimal() else {}
                values = {"code": int(value), "text": spot.excerpt, **index}
                yield Fact("xid", spot, at, "wall", Identity(host=_host(labels)), values=values)
        elif changed or number % step == 0 or number == len(points) - 1:
            fact = _fact(name, labels, value, spot, at, "wall", Identity())
            if fact is not None:
                yield fact
        previous = value


READER = Reader(
    "metrics",
    lines=(
        Line(
            "counter",
            (
                "DCGM_FI_DEV_",
                "node_network_",
                "node_infiniband_",
                "node_netstat_Tcp_",
                "node_vmstat_oom_kill",
                "node_nfs_rpc_",
                "node_memory_MemAvailable_bytes",
            ),
            r"^(?:\S+: )?(?:DCGM_FI_DEV|node)_\w+(?:\{.*\})? [-+\d]",
            read=_line,
        ),
    ),
    whole=Whole(_sniff, _whole),
    machine=True,
    title="metrics: scrapes of dcgm-exporter and node-exporter, Prometheus' API, Grafana's CSV",
    versions="Prometheus text 0.0.4, Prometheus 2 and 3, Grafana 9 to 12, dcgm-exporter 3 and 4, node-exporter 1",
    collect=(
        "curl -s http://NODE:9400/metrics > NODE-dcgm.txt",
        "curl -s http://NODE:9100/metrics > NODE-node.txt",
    ),
)
