"""A redacted report holds nothing that the evidence calls its own, and answers what the report answered."""

from __future__ import annotations

import gzip
import ipaddress
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import samples

import whichrank
from whichrank.causes import CAUSES
from whichrank.evidence import Evidence, read_piece
from whichrank.diagnosis import diagnose, report_on
from whichrank.model import Missing, Proof, Report
from whichrank.report import json_report, markdown, terminal
from whichrank.report.redact import redact
from whichrank.report.redact_text import Redactor

ROOT = Path(__file__).parents[2]
CASES = sorted(path.parent for path in (ROOT / "tests/cases").glob("*/*/truth.json"))
VALIDATOR = jsonschema.Draft202012Validator(json_report.schema())

# --- what is private in a case, found here without whichrank

# The system's, the usual images', and those where PyTorch's own wheels are built.
PUBLIC_ROOTS = re.compile(
    r"/(?:usr|lib|lib64|bin|sbin|etc|proc|sys|dev|run|boot|var/log|tmp|opt/conda|opt/venv|opt/env|opt/py|__w/pytorch|pytorch/torch)(?:/|$)"
)
HOSTS = (
    r"(?m)^(?:\[[^\]]*\] ?)*([A-Za-z][\w.-]*):\d+:\d+ \[\d+\] .*NCCL",
    r"srun: error: ([A-Za-z][\w.-]*):",
    r"\bON ([A-Za-z][\w.-]*) CANCELLED",
    r"\bNodeName=([\w.-]+)",
    r"(?m)^\s*host\s+: ([A-Za-z][\w.-]+)\s*$",
    r"(?m)^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ([A-Za-z][\w.-]+) kernel:",
    r"\bnfs: server ([A-Za-z][\w.-]+) ",
    r"\bon node ([A-Za-z][\w.-]*\d) exited",
    r"\bSuccessfully assigned \S+ to ([\w.-]+)",
    r"\bpod/([\w.-]+)",
)
USERS = (r"/(?:home|Users)/([A-Za-z][\w.-]*)", r"\bUserId=(\w+)\(")
# Words of our own pages: that one of them stands in a report tells nothing.
OURS = set(re.findall(r"[\w-]+", " ".join(page.read_text(encoding="utf-8").lower() for page in (ROOT / "docs").glob("*.md"))))


def evidence_of(case: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(case.rglob("*")):
        if path.is_file() and path.name not in ("truth.json", "gen.py"):
            data = path.read_bytes()
            if data[:2] == b"\x1f\x8b":
                try:
                    data = gzip.decompress(data)
                except (OSError, EOFError):
                    data = b""
            yield path.relative_to(case).as_posix(), data


def private_things(case: Path) -> set[str]:
    text = "\n".join(data.decode("utf-8", "replace") for _, data in evidence_of(case))
    text = re.sub(r"\x1b\[[\d;]*m", "", text)
    found = {host for pattern in HOSTS for host in re.findall(pattern, text)}
    truth = json.loads((case / "truth.json").read_text(encoding="utf-8"))
    found |= {host for host in [truth.get("culprit_host")] if host}
    found |= {user for pattern in USERS for user in re.findall(pattern, text)}
    found = {name.rstrip(".,") for name in found if len(name) > 1 and name.lower() not in OURS}
    for address in re.findall(r"(?<![\w.=-])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)", text):
        try:
            if not (ip := ipaddress.ip_address(address)).is_loopback and int(ip):
                found.add(address)
        except ValueError:
            continue
    for path in re.findall(r"(?<![\w./:])/[A-Za-z_][\w.-]*(?:/[\w.-]+)+", text):
        if not PUBLIC_ROOTS.match(path):
            found.add(path.rstrip("."))
            found.add(path.partition("/lib/python3")[0] if "/lib/python3" in path else path)
    return {thing for thing in found if len(thing) > 1}


def pages(report: Report) -> Iterator[tuple[str, str]]:
    yield "json", json_report.render(report).decode()
    yield "markdown", markdown.render(report, all=True)
    yield "short markdown", markdown.render(report)
    yield "terminal", terminal.plain(report, 400, all=True)
    yield "narrow terminal", terminal.plain(report, 80)


def holds(page: str, thing: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(thing)}(?![\w-])", page, re.I) is not None


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_nothing_private_is_left(case: Path) -> None:
    evidence = Evidence()
    for name, data in evidence_of(case):
        read_piece(f"{case.name}/{name}", data, evidence)
    report = report_on(evidence)
    hidden = redact(report)

    private = private_things(case)
    for form, page in pages(hidden):
        assert not [thing for thing in private if holds(page, thing)], form
    VALIDATOR.validate(json.loads(json_report.render(hidden)))
    was, now = report.verdicts[0], hidden.verdicts[0]
    for part in ("cause", "grade", "confidence", "mechanism", "rank_grade", "rank_confidence", "victims", "seq", "op"):
        assert getattr(now, part) == getattr(was, part)
    assert [culprit.rank for culprit in now.culprits] == [culprit.rank for culprit in was.culprits]
    assert len(set(now.hosts)) == len(set(was.hosts))
    assert [(row.rank, row.state, row.seq, row.since) for row in hidden.ranks] == [
        (row.rank, row.state, row.seq, row.since) for row in report.ranks
    ]
