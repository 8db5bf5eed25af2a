"""Six runs as different sites leave them: each way of behind and each layout, by `history why` and by `diagnose`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import variants

from whichrank.diagnosis import diagnose
from whichrank.history.answer import why
from whichrank.history.kept import history_of
from whichrank.history.runs import reports
from whichrank.history.shared import compared

LAYOUTS = list(variants.LAYOUTS)
PAIRS = [(kind, LAYOUTS[(3 * number + more) % len(LAYOUTS)]) for number, kind in enumerate(variants.KINDS) for more in (0, 1, 2)]  # fmt: skip


@pytest.mark.parametrize(("kind", "layout"), PAIRS)
def test_both_commands_tell_the_runs_apart_and_find_what_is_behind_them(kind: str, layout: str, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    host = variants.write(kind, layout, 1, folder)
    expected = variants.KINDS[kind]
    named = host if expected.named == "host" else expected.named

    found = why(history_of(reports([str(folder)])))
    assert found.findings.incidents == 6
    best = found.patterns[0]
    assert best.kind in expected.answers and named in best.name and not best.confounded

    report = compared(diagnose([str(folder)]))
    assert len(report.incidents) == 6
    shared = report.extra["shared"]
    assert shared["answer"] in expected.answers and named in shared["name"] and not shared["confounded"]


@pytest.mark.parametrize("each", [4, 8])
@pytest.mark.parametrize("kind", ["node", "sample-document"])
def test_smaller_and_larger_jobs_one_of_which_failed_for_its_own_reasons(kind: str, each: int, tmp_path: Path) -> None:
    host = variants.write(kind, "numbers", 4, tmp_path / "logs", each=each, stray=True)
    expected = variants.KINDS[kind]

    best = why(history_of(reports([str(tmp_path / "logs")]))).patterns[0]
    assert best.kind in expected.answers and (host or expected.named) in best.name


def test_kernel_logs_of_an_outage_go_to_the_runs_that_had_the_node(tmp_path: Path) -> None:
    """All at once, all kernel logs in one folder: each run is about its own node."""
    variants.write("storage-outage", "logs", 1, tmp_path / "logs")
    runs, _ = variants.made("storage-outage", 1)
    report = diagnose([str(tmp_path / "logs")])

    assert len(report.incidents) == 6
    for incident in report.incidents:
        host = next(
            run.host
            for run in runs
            if run.nodes[0] in incident.circumstances.hosts and incident.ranks[0].host == run.nodes[0]
        )
        assert {culprit.host for culprit in incident.verdicts[0].culprits} == {host}


def test_a_log_that_only_its_name_ties_to_a_node_is_of_that_node(tmp_path: Path) -> None:
    """No line says where its rank ran; kernel logs of some runs say which names are hosts'."""
    folder = tmp_path / "logs"
    host = variants.write("node", "full-names", 8, folder)
    for path in folder.rglob("*.log"):
        text = re.sub(r" on \S+, local rank \d+, pid \d+", "", path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")

    found = why(history_of(reports([str(folder)])))
    assert [(one.name, one.hits) for one in found.patterns] == [(host, 6)]
    assert compared(diagnose([str(folder)])).extra["shared"]["name"] == host
