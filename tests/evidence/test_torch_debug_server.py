"""Pages of PyTorch's debug server: what torch 2.13.0 serves (taken from a real job of four ranks, names changed)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import facts_of

from whichrank.evidence import Evidence, read_piece
from whichrank.evidence.torch_debug_server import sniff
from whichrank.facts import Fact

CASES = Path(__file__).parents[1] / "cases" / "extra"
PAGE = """

<!doctype html>
<head>
    <title>Stacks - PyTorch Distributed</title>
</head>

<nav>
    <h1>Torch Distributed Debug Server</h1>
        <a href="/stacks">Python Stack Traces</a> <!--@lint-ignore-->
</nav>

<section class="content">
    <h1>Stacks</h1>
        <h2>Rank 0: http://serin-1:44985/handler/dump_traceback?</h2>

            <pre>Current thread 0x00007faaa63256c0 (most recent call first):
  &lt;no Python frame&gt;

Thread 0x00007faac79c9b80 (most recent call first):
  File &#34;/w/torch/distributed/distributed_c10d.py&#34;, line 3252 in all_reduce
  File &#34;/w/train.py&#34;, line 30 in &lt;module&gt;
</pre>
        <h2>Rank 1: http://[fd00::7]:41491/handler/dump_traceback?</h2>
            <p>Failed to fetch: status=408</p>
            <pre>TimeoutError: </pre>
        <h2>Rank 2: http://serin-2:41491/handler/dump_traceback?</h2>
            <p>Failed to fetch: status=503</p>
            <pre>ConnectionRefusedError: [Errno 111] Connect call failed</pre>
</section>
"""


def of(facts: list[Fact], kind: str) -> list[Fact]:
    return [fact for fact in facts if fact.kind == kind]


def test_stacks_of_a_page() -> None:
    """Served as they are (`<module>`) or escaped, as a browser saves them."""
    for text in (PAGE, PAGE.replace("&lt;", "<").replace("&gt;", ">").replace("&#34;", '"')):
        (stack,) = of(facts_of(text, "stacks.html"), "stack")
        assert (stack.rank, stack.who.host, stack["main"]) == (0, "serin-1", True)
        assert stack["frames"] == [
            "all_reduce (/w/torch/distributed/distributed_c10d.py:3252)",
            "<module> (/w/train.py:30)",
        ]
        assert "all_reduce" in text.split("\n")[(stack.spot.line or 0) - 1]


def test_who_gave_no_answer() -> None:
    evidence = Evidence()
    read_piece("stacks.html", PAGE.encode(), evidence)
    silent = of(evidence.facts, "debug_silent")
    assert [(fact.rank, fact.who.host, fact["status"], fact["page"]) for fact in silent] == [
        (1, "fd00::7", 408, "dump_traceback"),
        (2, "serin-2", 503, "dump_traceback"),
    ]
    assert any("1 (408), 2 (503)" in gap.why for gap in evidence.gaps)


def test_py_spy_refused_is_no_silence() -> None:
    """Status 500 is an answer: `native` and `nonblocking` exclude each other, or py-spy is not there."""
    text = PAGE.replace("status=408", "status=500").replace("status=503", "status=500")
    assert not of(facts_of(text, "stacks.html"), "debug_silent")


@pytest.mark.parametrize("page", ["stacks.html", "pyspy_dump.html"])
def test_real_pages(page: str) -> None:
    text = (CASES / "debug-server-rank-2-reads" / page).read_text()
    stacks = of(facts_of(text, page), "stack")
    assert [stack.rank for stack in stacks] == [0, 1, 2, 3]
    assert all(stack["main"] and stack.who.host == "siskin-7" for stack in stacks)
    assert "__getitem__" in stacks[2]["frames"][0] and all("all_reduce" in stacks[r]["frames"][0] for r in (0, 1, 3))


def test_periodic_dumps() -> None:
    for path in sorted((CASES / "debug-server-dumps-rank-1-retries" / "dumps").iterdir()):
        stacks = of(facts_of(path.read_text(), path.name), "stack")
        assert [stack.rank for stack in stacks] == [0, 1, 2, 3], path.name
        assert stacks[1]["frames"][0].startswith("refresh_index"), path.name


def test_wait_counters() -> None:
    text = """=== Rank 0: http://serin-1:44985/handler/wait_counter_values? ===
{
  "pytorch.wait_counter.TCPStore__wait": {
    "active_count": 1,
    "max_time_us": 126,
    "total_calls": 4,
    "total_time_us": 208
  },
  "pytorch.wait_counter.c10d.init_process_group": {
    "active_count": 0,
    "max_time_us": 4269,
    "total_calls": 1,
    "total_time_us": 4269
  }
}
"""
    (fact,) = of(facts_of(text, "wait_counters_20261130_112204.txt"), "wait_counter")
    assert (fact.rank, fact["name"], fact["active"], fact["calls"], fact.spot.line) == (0, "TCPStore__wait", 1, 4, 3)


def test_a_dump_with_a_summary_first() -> None:
    text = 'PARTIAL DATA: 1/2 workers responded\n  Rank 1: TimeoutError: \n\n=== Rank 0: http://serin-1:44985/handler/dump_traceback? ===\nThread 0x00007faac79c9b80 (most recent call first):\n  File "/w/a.py", line 3 in step\n=== Rank 1: http://serin-2:44985/handler/dump_traceback? ===\nError: 408\n'
    facts = facts_of(text, "stacks_20261130_112204.txt")
    assert [fact.rank for fact in of(facts, "stack")] == [0]
    assert [fact.rank for fact in of(facts, "debug_silent")] == [1]


def test_sniff_takes_no_other_page() -> None:
    assert sniff(PAGE.encode(), "x")
    assert not sniff(b"<!doctype html><title>Stacks - PyTorch Distributed</title>", "x")
    assert not sniff(b"=== Rank 0: started ===\nstep 1", "x")
    assert not sniff(b"", "x")


@given(st.integers(0, len(PAGE)), st.binary(max_size=30))
def test_cut_off_or_corrupt(length: int, noise: bytes) -> None:
    found = of(facts_of(PAGE.encode()[:length] + noise, "stacks.html"), "stack")
    assert all(fact.rank in (0, 1, 2) for fact in found)
