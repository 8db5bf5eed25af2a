"""nccl-tests of all ages, text and JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import facts_of, one

from whichrank.evidence import Evidence, read_piece

RANKS = {
    "2.0": "#   Rank  0 Pid  61200 on    rook-11 device  0 [0x1b] Tesla V100-SXM2-32GB\n#   Rank  1 Pid  61240 on    rook-12 device  0 [0x1b] Tesla V100-SXM2-32GB",
    "1.0": "#   Rank  0 on    rook-11 device  0 [0x1b] Tesla V100-SXM2-32GB\n#   Rank  1 on    rook-12 device  0 [0x1b] Tesla V100-SXM2-32GB",
    "2.13.4": "#  Rank  0 Group  0 Pid  61200 on    rook-11 device  0 [0x1b] Tesla V100-SXM2-32GB\n#  Rank  1 Group  0 Pid  61240 on    rook-12 device  0 [0x1b] Tesla V100-SXM2-32GB",
    "2.19": "#  Rank  0 Group  0 Pid  61200 on    rook-11 device  0 [0000:1b:00] Tesla V100-SXM2-32GB\n#  Rank  1 Group  0 Pid  61240 on    rook-12 device  0 [0000:1b:00] Tesla V100-SXM2-32GB",
}
HEAD = "#       size         count      type   redop    root     time   algbw   busbw  {wrong}     time   algbw   busbw  {wrong}"


def table(version: str, *rows: str, wrong: str = "#wrong") -> str:
    return "\n".join(
        [
            "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 validation: 1",
            "#",
            "# Using devices",
            RANKS[version],
            "#",
            HEAD.format(wrong=wrong),
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)",
            *rows,
            "# Out of bounds values : 0 OK",
            "# Avg bus bandwidth    : 9.1",
        ]
    )


@pytest.mark.parametrize("version", RANKS)
def test_bus_ids_of_all_ages(version: str) -> None:
    fact = one(
        table(
            version,
            "   134217728      33554432     float     sum      -1  13212.1   10.16   10.16       0  13190.0   10.18   10.18       0",
        ),
        "bandwidth",
    )
    assert (fact["a"], fact["b"], fact["busbw"], fact["gpus"], fact["gpu"]) == (
        "rook-11",
        "rook-12",
        10.16,
        2,
        "Tesla V100-SXM2-32GB",
    )


def test_the_largest_size_counts() -> None:
    text = table(
        "2.19",
        "     1048576        262144     float     sum      -1    310.1    3.38    3.38       0    309.0    3.39    3.39       0",
        "   134217728      33554432     float     sum      -1  13212.1   10.16   10.16     N/A  13190.0   10.18   10.18     N/A",
    )
    fact = one(text, "bandwidth")
    assert (fact["size"], fact["busbw"], fact["wrong"]) == (134217728, 10.16, None)


def test_wrong_values_count_at_every_size() -> None:
    text = table(
        "2.19",
        "     1048576        262144     float     sum      -1    310.1    3.38    3.38       0    309.0    3.39    3.39  1.3e+06",
        "   134217728      33554432     float     sum      -1  13212.1   10.16   10.16       0  13190.0   10.18   10.18       0",
    )
    fact = one(text, "wrong_values")
    assert (fact["count"], fact["size"], fact["hosts"]) == (1300000, 1048576, ["rook-11", "rook-12"])
    assert "1.3e+06" in fact.spot.excerpt
    assert one(text, "bandwidth")["wrong"] is None


def test_an_error_bound_is_no_count() -> None:
    """Up to 2.12 the column was the largest deviation of a value."""
    text = table(
        "2.0",
        "   134217728      33554432     float     sum  13212.1   10.16   10.16  5e-07  13190.0   10.18   10.18  5e-07",
        wrong=" error",
    )
    assert one(text, "bandwidth")["busbw"] == 10.16
    assert not [fact for fact in facts_of(text) if fact.kind == "wrong_values"]


def test_per_iteration_columns() -> None:
    """-I 1, from 2.19.2: four more columns in each half."""
    row = "   134217728      33554432     float     sum      -1  13212.1   10.16   10.16       0  13001.2  14222.9  14200.1     2.10  13190.0   10.18   10.18       7  13000.0  14100.0  14090.0     1.90"
    head = HEAD.replace("{wrong}", "#wrong    i_min    i_max    i_p99    i_cv%")
    text = table("2.19", row).replace(HEAD.format(wrong="#wrong"), head)
    assert one(text, "bandwidth")["busbw"] == 10.16
    assert one(text, "wrong_values")["count"] == 7


def test_in_place_only() -> None:
    row = "   134217728      33554432     float     sum      -1                                  13190.0   10.18   10.18       0"
    assert one(table("2.19", row), "bandwidth")["busbw"] == 10.18


def test_hosts_of_the_command() -> None:
    text = "\n".join(
        [
            "$ srun -N2 -w rook-[11-12] ./build/all_reduce_perf -b 64M -e 128M -f 2",
            HEAD.format(wrong="#wrong"),
            "   134217728      33554432     float     sum      -1  13212.1   10.16   10.16       0  13190.0   10.18   10.18       0",
        ]
    )
    assert one(text, "bandwidth")["hosts"] == ["rook-11", "rook-12"]


def report(**changes: object) -> dict[str, object]:
    def half(busbw: object, wrong: object) -> dict[str, object]:
        return {"time": 4870.1, "alg_bw": 220.5, "bus_bw": busbw, "nwrong": wrong}

    return {
        "version": 1,
        "start_time": "2026-07-10 09:11:12",
        "args": ["./build/all_reduce_perf", "-b", "64M", "-J", "out.json"],
        "env": ["HOME=/root", "NCCL_IB_HCA=mlx5_0", "SECRET=x"],
        "nccl_version": 22809,
        "config": {
            "nthreads": 1,
            "devices": [
                {
                    "rank": rank,
                    "group": 0,
                    "pid": 100 + rank,
                    "hostname": f"rook-{21 + rank // 8}",
                    "device": rank % 8,
                    "device_hex": "0000:1b:00",
                    "device_info": "NVIDIA H100 80GB HBM3",
                }
                for rank in range(16)
            ],
        },
        "results": [
            {
                "size": 67108864,
                "count": 16777216,
                "type": "float",
                "out_of_place": half(231.2, 0.0),
                "in_place": half(230.0, 0.0),
            },
            {
                "size": 1073741824,
                "count": 268435456,
                "type": "float",
                "out_of_place": half(413.5, 0.0),
                "in_place": half(417.4, 0.0),
            },
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
    } | changes


def test_json() -> None:
    text = json.dumps(report(), separators=(",", ":"))
    fact = one(text, "bandwidth", "out.json")
    assert (fact["hosts"], fact["busbw"], fact["size"], fact["gpus"], fact["test"], fact["gpu"]) == (
        ["rook-21", "rook-22"],
        413.5,
        1073741824,
        16,
        "all_reduce_perf",
        "NVIDIA H100 80GB HBM3",
    )
    setting = one(text, "env_set", "out.json")  # nothing but NCCL's own settings leaves the environment
    assert (setting["name"], setting["value"]) == ("NCCL_IB_HCA", "mlx5_0")


def test_json_with_wrong_and_unchecked_values() -> None:
    results = [
        {"size": 8, "out_of_place": None, "in_place": {"bus_bw": 0.1, "nwrong": 3.0}},
        {"size": 1073741824, "out_of_place": {"bus_bw": "nan", "nwrong": None}, "in_place": None},
    ]
    found = facts_of(json.dumps(report(results=results), separators=(",", ":")), "out.json")
    assert [(fact["count"], fact["size"]) for fact in found if fact.kind == "wrong_values"] == [(3, 8)]
    assert not [fact for fact in found if fact.kind == "bandwidth"]


@given(st.integers(1, 2000))
def test_json_cut_off(length: int) -> None:
    evidence = Evidence()
    text = json.dumps(report(), separators=(",", ":"))
    read_piece("out.json", text[: min(length, len(text) - 1)].encode(), evidence)
    assert not [fact for fact in evidence.facts if fact.kind == "bandwidth"]
    if length > 120:
        assert evidence.gaps
