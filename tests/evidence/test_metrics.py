"""Metrics: what a scrape and what a range of dcgm-exporter and node-exporter say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import facts_of

SCRAPE = """# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{gpu="2",UUID="GPU-1f02",device="nvidia2",modelName="NVIDIA A800-SXM4-80GB",Hostname="gx-1",DCGM_FI_DRIVER_VERSION="535.129.03"} 79
DCGM_FI_DEV_GPU_UTIL{gpu="2",UUID="GPU-1f02",device="nvidia2",Hostname="gx-1"} 100
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="2",UUID="GPU-1f02",device="nvidia2",Hostname="gx-1"} 64
DCGM_FI_DEV_GPU_TEMP{gpu="2",Hostname="gx-1"} 61
node_network_carrier_changes_total{device="eth0"} 2
node_netstat_Tcp_RetransSegs 47
node_infiniband_link_downed_total{device="mlx5_0",port="1"} 3
node_memory_MemAvailable_bytes 2.361382912e+10
node_load1 1.05"""


def series(name: str, values: list[object], **labels: str) -> dict[str, Any]:
    points = [[1718000000 + 30 * number, str(value)] for number, value in enumerate(values)]
    return {"metric": {"__name__": name, **labels}, "values": points}


def answer(*result: dict[str, Any]) -> str:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(result)}})


def told(text: str, kind: str, *names: str, name: str = "m.txt") -> list[tuple[Any, ...]]:
    return [(fact.who.host, *(fact[n] for n in names)) for fact in facts_of(text, name) if fact.kind == kind]


def test_scrape() -> None:
    assert told(SCRAPE, "counter", "name", "value") == [
        ("gx-1", "DCGM_FI_DEV_XID_ERRORS", 79),
        (None, "node_network_carrier_changes_total", 2),
        (None, "TcpRetransSegs", 47),
        (None, "node_infiniband_link_downed_total", 3),
    ]
    assert told(SCRAPE, "gpu_sample", "index", "util", "throttle") == [
        ("gx-1", 2, 100, None),
        ("gx-1", 2, None, "hw_thermal_slowdown"),
    ]
    assert [fact.kind for fact in facts_of(SCRAPE, "m.txt") if fact.kind == "xid"] == []


def test_an_xid_of_a_range_is_told_where_it_changes() -> None:
    text = answer(
        series("DCGM_FI_DEV_XID_ERRORS", [0, 0, 79, 79], Hostname="gx-1", gpu="2"),
        series("DCGM_FI_DEV_XID_ERRORS", [31, 31, 31, 31], Hostname="gx-1", gpu="3"),
    )
    (xid,) = (fact for fact in facts_of(text, "range.json") if fact.kind == "xid")
    assert (xid.who.host, xid["code"], xid["index"], xid.at_ns, xid.clock) == (
        "gx-1",
        79,
        2,
        1718000060 * 10**9,
        "wall",
    )


def test_the_host_is_the_exporters_label_then_the_instance() -> None:
    text = answer(series("node_network_receive_errs_total", [5, 55], instance="gx-2:9100", device="ib0"))
    assert told(text, "counter", "interface", "value") == [("gx-2", "ib0", 5), ("gx-2", "ib0", 55)]


def test_all_changes_of_a_count_are_kept_and_few_of_its_pauses() -> None:
    values: list[object] = [0] * 4000 + [1] * 4000
    found = told(answer(series("node_vmstat_oom_kill", values, instance="gx-2:9100")), "counter", "value")
    assert ("gx-2", 1) in found and len(found) < 700


def test_grafana() -> None:
    text = '"Time","DCGM_FI_DEV_GPU_UTIL{Hostname=""gx-3"", gpu=""3""}","node_load1{instance=""x""}"\n2026-05-20 21:09:30,100,1\n2026-05-20 21:09:45,0,1\n'
    assert told(text, "gpu_sample", "index", "util", name="g.csv") == [("gx-3", 3, 100), ("gx-3", 3, 0)]


@pytest.mark.parametrize(
    "text",
    [
        '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{}}]}}',
        '{"status":"success","data":{"resultType":"matrix","result":"metric"}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up"},"value":["x","y"]}]}}',
        '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"node_vmstat_oom_kill"},"values":[[1e300,"1e300"],[1,"NaN"]]}]}}',
    ],
)
def test_strange_answers_mean_nothing(text: str) -> None:
    assert [fact for fact in facts_of(text, "m.json") if fact.kind in ("counter", "xid")] == []


@given(st.integers(0, 400), st.integers(0, 255), st.integers(0, 400))
def test_never_raises_on_torn_answers(end: int, byte: int, at: int) -> None:
    data = bytearray(
        answer(series("DCGM_FI_DEV_XID_ERRORS", [0, 79, 43], Hostname="gx-1", gpu="2")).encode()[: end + 60]
    )
    data[at % len(data)] = byte
    for fact in facts_of(bytes(data), "m.json"):
        assert fact.kind
