"""Units and ranges as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichrank.errors import UsageProblem
from whichrank.plan.quantities import KINDS, Range, digits, money, parse, percent, seconds, si


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("4096", "count", 4096),
        ("15T", "count", 15e12),
        ("1e-3", "count", 1e-3),
        ("70GB", "bytes", 70e9),
        ("64 GiB", "bytes", 64 * 2**30),
        ("400Gb/s", "rate", 50e9),
        ("400 Gbps", "rate", 50e9),
        ("50GB/s", "rate", 50e9),
        ("90min", "time", 5400),
        ("600s", "time", 600),
        ("$310k", "money", 310e3),
        ("1,250", "money", 1250),
        ("10.2kW", "power", 10200),
        ("80%", "share", 0.8),
        ("0.8", "share", 0.8),
    ],
)
def test_reads(text: str, kind: str, expected: float) -> None:
    assert parse(text, kind).likely == pytest.approx(expected)
    assert parse(text, kind).certain


@pytest.mark.parametrize(
    ("text", "kind", "low", "high"),
    [("36k-50k", "money", 36e3, 50e3), ("36-50k", "money", 36e3, 50e3), ("2 to 3", "count", 2, 3), ("60%-90%", "share", 0.6, 0.9), ("1s..5s", "time", 1, 5)],
)  # fmt: skip
def test_reads_ranges(text: str, kind: str, low: float, high: float) -> None:
    assert (parse(text, kind).low, parse(text, kind).high) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize(
    ("text", "kind", "word"),
    [
        ("400", "rate", "needs a unit"),
        ("5GB", "rate", "no unit of a bandwidth"),
        ("400Gb/s", "bytes", "no unit of an amount of data"),
        ("fast", "rate", "is not a bandwidth"),
        ("-3", "count", "can be negative"),
        ("150%", "share", "at most 1"),
        ("50k-36k", "money", "from low to high"),
        ("", "time", "is not a time"),
        ("3 parsecs", "time", "no unit"),
    ],
)
def test_says_what_is_wrong(text: str, kind: str, word: str) -> None:
    with pytest.raises(UsageProblem, match=word):
        parse(text, kind)


@given(st.text(max_size=30), st.sampled_from(sorted(KINDS)))
def test_any_text_is_read_or_refused(text: str, kind: str) -> None:
    try:
        found = parse(text, kind)
    except UsageProblem:
        return
    assert 0 <= found.low <= found.likely <= found.high


sizes = st.floats(0.001, 1e6)
spans = st.tuples(sizes, sizes, sizes).map(lambda values: Range(*sorted(values)))


@given(spans, spans)
def test_arithmetic_keeps_the_order(a: Range, b: Range) -> None:
    for found in (a + b, a * b, a / b, a * 3, a + 1.5):
        assert found.low <= found.likely <= found.high
    assert (a / b).low == pytest.approx(a.low / b.high)


def test_writes() -> None:
    assert si(5.05e10, "B/s") == "50.5 GB/s"
    assert [seconds(value) for value in (2e-5, 0.5, 90, 600, 7200, 864000)] == [
        "20.0 µs",
        "500 ms",
        "90.0 s",
        "10.0 min",
        "2.00 h",
        "10.0 days",
    ]
    assert [money(value) for value in (46883, 24e6, 2.5)] == ["$46,883", "$24.00M", "$2.50"]
    assert [percent(value) for value in (0, -1e-9, 0.034, 0.5, 1.2)] == ["0 %", "0 %", "3.4 %", "50 %", "120 %"]
    assert digits(0.00379) == "0.00379"
