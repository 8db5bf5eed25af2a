"""The same verdict, however the logs were delivered: a sample of what bench/envelopes.py compares."""

from __future__ import annotations

from pathlib import Path

import envelopes
import pytest

ROOT = Path(__file__).parents[1]

# Short ones, of different kinds: a tree of ranks' files, files that are cut, a table of ranks, notes, a kernel log.
CASES = (
    "single-watchdog-line",
    "two-files-cut-off",
    "resume-keeps-failing",
    "k8s-evicted-exit-137",
    "login-user-on-dn21",
    "utts-last-rank",
)


@pytest.mark.many
@pytest.mark.parametrize("case", CASES)
def test_same_verdict_in_every_envelope(case: str) -> None:
    rows = envelopes.one((ROOT / "tests" / "cases" / "public" / case, [], False))
    assert len(rows) > 40
    assert [row for row in rows if row[2]] == []


@pytest.mark.parametrize("case", ["logs-of-saturday", "utts-last-rank"])
def test_same_verdict_with_all_pods_in_one_file(case: str) -> None:
    rows = envelopes.one((ROOT / "tests" / "cases" / "public" / case, [], True))
    assert len(rows) > 4
    assert [row for row in rows if row[2]] == []
