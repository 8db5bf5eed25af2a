"""Nothing from a log reaches the terminal but visible characters, and nothing is longer than its room."""

from __future__ import annotations

import doctest
import unicodedata
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from whichrank.report import printable as p

ANY = st.text(st.characters(), max_size=60)


@pytest.mark.parametrize("module", ["report.printable", "report.condense", "ranges", "report.summary"])
def test_the_examples_in_docstrings(module: str) -> None:
    assert doctest.testmod(import_module(f"whichrank.{module}")).failed == 0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r0m\x1b\\dcs", "dcs"),
        ("\x9b31mC1", "C1"),
        ("a\x08\x08b\x00c\x7f", "abc"),
        ("a\tb\nc\rd", "a b c d"),
        ("\u202eabc\u202c\u2066\u200f\u061c", "abc"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("lone \ud800", "lone \ufffd"),
        ("Zürich 日本 ✓", "Zürich 日本 ✓"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert p.printable(text) == shown


@given(ANY)
def test_printable_leaves_visible_characters_only(text: str) -> None:
    shown = p.printable(text)

    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert p.printable(shown) == shown


@given(ANY, st.integers(2, 40))
def test_cut_fits(text: str, width: int) -> None:
    text = p.printable(text)

    assert cell_len(p.cut(text, width)) <= width
    assert p.cut(text, width) == text or p.cut(text, width).endswith("…")


@given(st.lists(st.from_regex(r"[a-z0-9_.-]{1,12}", fullmatch=True), min_size=1, max_size=8), st.integers(8, 60))
def test_a_shorter_path_fits_and_keeps_its_end(parts: list[str], width: int) -> None:
    path = "/".join(parts)
    short = p.shorter_path(path, width)

    assert cell_len(short) <= width
    assert short == path or "…" in short or short == parts[-1]
    assert short[-2:] == path[-2:]


@pytest.mark.parametrize(
    ("path", "width", "short"),
    [
        ("a/b.log", 20, "a/b.log"),
        ("logs/none_v7k2qe1x/attempt_0/5/stderr.log", 33, "logs/…/attempt_0/5/stderr.log"),
        ("resume/logs/none_v7k2qe1x/attempt_0/5/stderr.log", 28, "…/attempt_0/5/stderr.log"),
        ("c:\\runs\\a-long-folder-name\\rank3.log", 20, "c:/…/rank3.log"),
        ("a" * 50, 21, "a" * 10 + "…" + "a" * 10),
    ],
)
def test_shorter_path(path: str, width: int, short: str) -> None:
    assert p.shorter_path(path, width) == short


@pytest.mark.parametrize(
    "framing",
    [
        "[rank0]:[E1130 05:41:58.324909491 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) Rank 0] ",
        "node-03:41203:41388 [1] NCCL INFO ",
        "[Mon Nov 30 05:12:44 2026] ",
        "11: [rank11]: ",
        "Nov 30 05:12:44 node-03 kernel: [ 625.867793] ",
        "2026-11-30T05:12:44.123Z INFO ",
        "(WorkerDict pid=833, ip=10.0.0.7) ",
    ],
)
def test_framing_gives_way_to_the_message(framing: str) -> None:
    message = "Memory cgroup out of memory: Killed process 41203"

    assert p.lead(framing + message, 60) == "…" + message
    assert p.lead(framing + message, 400) == framing + message


@pytest.mark.parametrize(
    ("at", "plain", "dated"),
    [
        ("2026-11-30T05:12:44Z", "05:12:44Z", "2026-11-30 05:12:44Z"),
        ("2026-11-30T05:12:44.324909491+00:00", "05:12:44Z", "2026-11-30 05:12:44Z"),
        ("2026-11-30T05:12:44+01:00", "05:12:44+01:00", "2026-11-30 05:12:44+01:00"),
        ("05-20T11:08:21", "11:08:21", "05-20 11:08:21"),
        ("11:08:21", "11:08:21", "11:08:21"),
        ("yesterday \x1b[2J", "yesterday ", "yesterday "),
        (None, "", ""),
    ],
)
def test_times(at: str | None, plain: str, dated: str) -> None:
    assert p.clock(at) == plain
    assert p.clock(at, with_date=True) == dated


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (44, "44 s"), (1764, "29 min"), (7500, "2 h 5 min"), (260_000, "3 days")],
)
def test_durations(seconds: float, text: str) -> None:
    assert p.lasting(seconds) == text
