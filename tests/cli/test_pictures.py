"""--html and --perfetto as a user meets them: files beside the report, packed where asked, fit to be posted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from whichrank.__main__ import run

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "oom-two-nodes")


def test_both_are_written_beside_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, trace = tmp_path / "hang.html", tmp_path / "hang.json"
    assert run([EXAMPLE, "--html", str(page), "--perfetto", str(trace)]) == 1
    assert "Rank 6 on cedar12" in capsys.readouterr().out
    assert "Rank 6 on cedar12" in page.read_text(encoding="utf-8")
    assert json.loads(trace.read_bytes())["traceEvents"]


def test_a_trace_is_packed_where_its_name_says_so(tmp_path: Path) -> None:
    trace = tmp_path / "hang.json.gz"
    run([EXAMPLE, "--perfetto", str(trace)])
    assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]


def test_the_name_of_the_output_chooses_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "hang.html"
    assert run([EXAMPLE, "-o", str(page)]) == 1
    assert capsys.readouterr().out == ""
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_standard_output_holds_the_page_alone(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run([EXAMPLE, "--html", "-"]) == 1
    out = capfdbinary.readouterr().out
    assert out.startswith(b"<!doctype html>") and out.endswith(b"</html>\n")


def test_a_page_shows_the_lines_around_a_proof(tmp_path: Path) -> None:
    page = tmp_path / "hang.html"
    run([EXAMPLE, "--html", str(page)])
    text = page.read_text(encoding="utf-8")
    before, after = "oom-kill:constraint=CONSTRAINT_MEMCG", "oom_reaper: reaped process 88217"
    assert text.index(before) < text.index("anon-rss:47204388kB") < text.index(after)


def test_redaction_holds_for_both(tmp_path: Path) -> None:
    page, trace = tmp_path / "hang.html", tmp_path / "hang.json"
    run([EXAMPLE, "--redact", "--html", str(page), "--perfetto", str(trace)])
    for file in (page, trace):
        text = file.read_text(encoding="utf-8")
        assert "cedar" not in text and "10.41." not in text and "/scratch/vit" not in text, file.name
        assert "host-1" in text
    assert 'class="near"' in page.read_text(encoding="utf-8")


def test_a_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, name in (("--html", "x.html"), ("--perfetto", "x.json.gz")):
        assert run([EXAMPLE, option, str(tmp_path / "no" / name)]) == 2
        assert "cannot write" in capsys.readouterr().err
