"""`explain`: every kind of fact, code and cause has its plain words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from whichrank import model
from whichrank.evidence import READERS
from whichrank.report import explain_codes, explain_evidence, explain_lines
from whichrank.report.explain import MESSAGES, explain
from whichrank.report.explain_words import WORDS

ROOT = Path(__file__).parents[2]
WATCHDOG = (
    "[rank1]:[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, "
    "OpType=ALLREDUCE, NumelIn=7411203, NumelOut=7411203, Timeout(ms)=1800000) ran for 1800518 milliseconds before timing out."
)


def said(query: str, width: int = 200) -> str:
    return explain_lines.plain(explain(query), width)


def documented_kinds() -> set[str]:
    """The first column of docs/facts.md, and the kinds that follow in the same row after a ';'."""
    kinds: set[str] = set()
    for line in (ROOT / "docs/facts.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            cells = line.split("|")
            kinds |= set(re.findall(r"`(\w+)`", cells[1]))
            kinds |= set(re.findall(r"; `(\w+)`", "|".join(cells[2:])))
    return kinds


def test_every_kind_of_fact_is_explained() -> None:
    assert len(documented_kinds()) > 90
    assert not documented_kinds() - set(MESSAGES)


def test_every_word_of_a_report_is_explained() -> None:
    words = {*get_args(model.Grade), *get_args(model.Mechanism), *get_args(model.RankState), *get_args(model.Do)}

    assert not words - set(WORDS) - {"none"}


def test_messages_are_sentences() -> None:
    for message in [*MESSAGES.values(), *explain_codes.XIDS.values(), *explain_codes.EXITS.values()]:
        assert message.means[0].isupper() or message.means.startswith("ncc")
        assert message.means.endswith((".", ":")) or message.means.endswith("?")
        assert message.guilt


@pytest.mark.parametrize("cause", [cause for cause in model.FAMILY if cause not in ("none", "undecided")])
def test_every_cause_is_explained(cause: str) -> None:
    text = said(cause)

    assert text.startswith(f"{cause}: ")
    for label in ("means", "looks like", "fix", "prove it"):
        assert f"  {label} " in text
    assert not re.search(r"\{(host|rank|pid)\}", text)


def test_a_watchdog_line_is_decoded() -> None:
    text = said(WATCHDOG)

    assert "rank 1, ALLREDUCE #57" in text
    assert "7,411,203" in text
    assert "timeout 30 min" in text
    assert "a victim: it waited for others" in text
    assert "did NOT print this line" in text


@pytest.mark.parametrize(
    "message", ["Connection closed by peer [10.0.0.7]:25063", "Timed out waiting 1800000ms for recv"]
)
def test_an_error_that_only_echoes_another_accuses_nobody(message: str) -> None:
    told = said(f"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] {message}")
    assert "a consequence" in told
    assert "its own failure" not in told
    assert "its own failure" in said("ValueError: batch has no key 'labels'")


def test_alike_lines_are_explained_once_and_counted() -> None:
    found = explain("\n".join(WATCHDOG.replace("ank1", f"ank{n}").replace("ank 1", f"ank {n}") for n in range(5)))

    assert [entry.more for entry in found] == [4]


@pytest.mark.parametrize(
    "query", ["-9", "137", "exit code -9", "exitcode: -9", "exit status 137", "SIGKILL", "signal: 9"]
)
def test_a_kill_is_a_kill_however_it_is_written(query: str) -> None:
    text = said(query)

    assert "SIGKILL" in text
    assert "killed process" in text


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("-15", "SIGTERM"),
        ("134", "SIGABRT"),
        ("139", "SIGSEGV"),
        ("-6", "watchdog"),
        ("127", "not found"),
        ("Xid 79", "fallen off the bus"),
        ("NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "off the bus"),
        ("NVRM: Xid (0000:05:00): 43, pid=1", "after a fault"),
        ("ncclSystemError", "a system call or the network failed"),
        ("NCCL error: remote process exited or there was a network error", "This rank is a victim"),
        ("reason: OOMKilled", "memory limit"),
        ("State=NODE_FAIL", "a node of the job failed"),
        ("export NCCL_TIMEOUT=1800", "Read by nobody"),
        ("ExitCode=0:9", "SIGKILL"),
        ("Root Cause (first observed failure):\n  exitcode  : -6 (pid: 3)  (SIGABRT)", "SIGABRT"),
        ("host stuck", "never entered the collective"),
        ("restart-excluding", "Start again without the hosts"),
        ("dead_rank", "host_oom, cuda_oom, exception, evicted, killed"),
        ("hung task", "uninterruptible"),
        ("proven likely", "Between 75 and 95"),
    ],
)
def test_explains(query: str, words: str) -> None:
    assert words in said(query)


@pytest.mark.parametrize("code", sorted(explain_codes.XIDS))
def test_every_xid_by_its_number(code: int) -> None:
    assert explain_codes.XIDS[code].means in said(f"Xid {code}")


@pytest.mark.parametrize("query", ["", "hello there", "loss 0.31 step 12", "\x00\x01", "🙂" * 500])
def test_what_is_unknown_is_not_made_up(query: str) -> None:
    assert explain(query) == []


def test_hostile_text_is_shown_as_text() -> None:
    text = said("\x1b[2J" + WATCHDOG + "\u202e \x1b]0;owned\x07")

    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_explanations_fit(width: int) -> None:
    for query in [*model.FAMILY, WATCHDOG, "-9"]:
        for line in said(query, width).splitlines():
            assert len(line) <= width or "$ " in line, line


# --- formats of evidence


@pytest.mark.parametrize("name", READERS)
def test_every_format_is_explained(name: str) -> None:
    text = said(name)

    assert text.startswith(f"{name}: a format of evidence\n")
    packed = name in ("digest", "ring")  # no text could show them
    shown = () if packed else ("a sample", "says")
    for label in ("reads", "versions", *shown, "get it", "more"):
        assert f"  {label} " in text or f"  {label}\n" in text, label
    assert said(f"evidence/{name}") == text
    assert (ROOT / f"docs/evidence/{name}.md").exists()


@pytest.mark.parametrize(
    ("tool", "name"), [("dmesg", "kernel"), ("py-spy", "stacks"), ("sacct", "slurm"), ("NCCL_DEBUG", "nccl")]
)
def test_a_tool_leads_to_its_format(tool: str, name: str) -> None:
    assert explain(tool)[0].title == f"{name}: a format of evidence"


def test_a_cause_names_its_evidence_and_its_page() -> None:
    text = said("host_oom")

    assert "evidence   kernel, slurm, kubernetes" in text
    assert "docs/causes/host_oom.md" in text and (ROOT / "docs/causes/host_oom.md").exists()


def test_a_word_in_a_sentence_is_no_format() -> None:
    assert explain("my ip is wrong") == []


def test_the_index_names_all() -> None:
    names = [name for _, rows in explain_evidence.index() for name, _ in rows]

    assert names == [*model.FAMILY, *READERS]
    assert "host_oom" in "".join(line.plain for line in explain_lines.index(explain_evidence.index(), 80))


@pytest.mark.parametrize(
    ("query", "near"),
    [
        ("host_om", "host_oom"),
        ("kernal", "kernel"),
        ("py spi", "py-spy"),
        ("watchdogg", "torch_watchdog"),
        ("dead_ranks", "dead_rank"),
    ],
)
def test_nearest_names(query: str, near: str) -> None:
    assert explain(query) == []
    assert near in explain_evidence.nearest(query)


@pytest.mark.parametrize("query", ["", "hello there, this is a whole sentence", "qqqqqq", "x" * 5000])
def test_nothing_is_near_to_nothing(query: str) -> None:
    assert explain_evidence.nearest(query) == []
