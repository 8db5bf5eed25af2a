"""Ranks and hosts in few characters lose none of them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichrank import ranges


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([5], "5"),
        ([1, 0], "0, 1"),
        ([0, 1, 2], "0-2"),
        ([*range(17), *range(18, 64)], "0-16, 18-63"),
        ([3, 3, 4], "3, 4"),
        (range(3, 64, 8), "3, 11 … 59 (every 8th)"),
        (range(1, 100, 2), "1, 3 … 99 (every 2nd)"),
        ([x for b in range(0, 64, 8) for x in range(b, b + 4)], "0-3, 8-11 … 56-59 (every 8)"),
    ],
)
def test_ranks(numbers: list[int], text: str) -> None:
    assert ranges.ranks(numbers) == text


def test_a_long_list_says_how_many() -> None:
    text = ranges.ranks([n * n for n in range(60)], 40)

    assert len(text) <= 40
    assert text == "0, 1, 4, 9, 16, 25, 36, 49 … (60 ranks)"


@given(st.sets(st.integers(0, 200)))
def test_ranks_can_be_read_back(numbers: set[int]) -> None:
    text = ranges.ranks(numbers)
    if "every" not in text:
        read: set[int] = set()
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
            read |= set(range(int(first), int(last or first) + 1))
        assert read == numbers


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["node-03"], "node-03"),
        (["node-03", "node-04", "node-05", "node-12"], "node-[03-05,12]"),
        (["node-9", "node-10", "node-11"], "node-[9-11]"),
        (["node-9", "node-010"], "node-9, node-010"),
        (["worker-4.train.svc", "worker-3.train.svc"], "worker-[3-4].train.svc"),
        (["10.0.0.8", "10.0.0.7"], "10.0.0.[7-8]"),
        (["ip-10-0-12-7.ec2.internal", "ip-10-0-12-8.ec2.internal"], "ip-10-0-12-[7-8].ec2.internal"),
        (["login", "gpu-a"], "gpu-a, login"),
        (["c3g0129"], "c3g0129"),
    ],
)
def test_hosts(names: list[str], text: str) -> None:
    assert ranges.hosts(names) == text


def test_many_unlike_hosts_are_counted() -> None:
    assert ranges.hosts([f"{chr(97 + n)}-host" for n in range(26)], 30) == "26 nodes"


@given(st.sets(st.from_regex(r"[a-z]{1,3}-?[0-9]{1,4}", fullmatch=True), max_size=30))
def test_hosts_can_be_expanded_again(names: set[str]) -> None:
    assert set(expand(ranges.hosts(names))) == names


def expand(text: str) -> list[str]:
    found = []
    for part in filter(None, re.split(r", (?![^\[]*\])", text)):
        match = re.fullmatch(r"(.*)\[(.*)\](.*)", part)
        if not match:
            found.append(part)
            continue
        for span in match[2].split(","):
            first, _, last = span.partition("-")
            width = len(first) if first.startswith("0") or (last and len(first) == len(last)) else 0
            found += [f"{match[1]}{n:0{width}d}{match[3]}" for n in range(int(first), int(last or first) + 1)]
    return found
