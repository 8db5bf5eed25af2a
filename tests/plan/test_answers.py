"""What holds for every calculator: ranges, sources, forms."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from typing import Any

import pytest
from asking import ASKED, answer
from hypothesis import given, settings
from hypothesis import strategies as st

from whichrank.errors import UsageProblem
from whichrank.plan import CALCULATORS
from whichrank.plan.answer import Answer
from whichrank.plan.inputs import questions
from whichrank.plan.quantities import Range
from whichrank.plan.render import html, json_answer, markdown, terminal


@pytest.fixture(scope="module", params=ASKED, ids=lambda asked: f"{asked[0]} {' '.join(asked[1].values())}".strip())
def found(request: pytest.FixtureRequest) -> Answer:
    name, given = request.param
    return answer(name, given)


def ranges(value: Any) -> Iterator[Range]:
    if isinstance(value, Range):
        yield value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from ranges(getattr(value, field.name))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from ranges(item)


def test_every_calculator_is_asked() -> None:
    assert {name for name, _ in ASKED} == set(CALCULATORS)


def test_ranges_are_ordered(found: Answer) -> None:
    for each in ranges(found.result):
        assert 0 <= each.low <= each.likely <= each.high, each


def test_defaults_have_source_and_date(found: Answer) -> None:
    assert found.figures
    for figure in found.figures:
        assert figure.source and re.fullmatch(r"\d{4}(-\d\d(-\d\d)?)?", figure.as_of), figure


def test_tables_are_rectangular(found: Answer) -> None:
    for table in found.tables:
        assert all(len(row) == len(table.columns) for row in table.rows), table.title


def test_terminal_fits_and_explains(found: Answer) -> None:
    for width in (80, 100, 120):
        text = terminal.render(found, width, explain=True)
        code = set(found.code.splitlines())
        assert found.title in re.sub(r"\s+", " ", text)
        for line in text.splitlines():
            assert len(line) <= width or line.strip() in code or "  " in line.strip(), line
        for formula in found.formulas:
            assert formula.name in text
        for figure in found.figures:
            if isinstance(figure.value, Range):
                assert figure.as_of in text


def test_json_is_strict_and_complete(found: Answer) -> None:
    data = json.loads(json_answer.render(found))
    assert data["schema_version"] == 1
    assert data["calculator"] == found.calculator
    assert len(data["figures"]) == len(found.figures)
    assert data["result"]["inputs"]
    assert data["says"] == list(found.says)


def test_markdown_tables(found: Answer) -> None:
    text = markdown.render(found, explain=True)
    for table in found.tables:
        head = next(
            line for line in text.splitlines() if line.startswith("| ") and line.count(" | ") == len(table.columns) - 1
        )
        assert head
    assert "How it is computed" in text


class Page(HTMLParser):
    """Collects what a page would load, and whether its elements close."""

    VOID = {"meta", "rect", "line", "circle", "polyline", "br"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.pictures = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        if tag in ("script", "link", "iframe", "img"):
            self.loads.append(tag)
        self.pictures += tag == "svg"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in self.VOID or self.open.pop() == tag


def test_page_stands_alone(found: Answer) -> None:
    text = html.render(found)
    page = Page()
    page.feed(text)
    assert not page.open
    assert not page.loads
    assert "url(" not in text and "@import" not in text
    assert page.pictures == len(found.charts)


def test_names_from_files_are_harmless() -> None:
    found = answer("memory", {})
    hostile = dataclasses.replace(found, title="<script>alert(1)</script>\x1b[31m|x|", warnings=("a\u202eb",))
    page = html.render(hostile)
    assert "<script>" not in page
    text = terminal.render(hostile, 80)
    assert "\x1b" not in text and "\u202e" not in text
    assert "\\|x\\|" in markdown.render(hostile)


@pytest.mark.parametrize("name", CALCULATORS)
def test_printed_ranges_are_no_wider_than_asked(name: str) -> None:
    """Where measured points are compared: at most a factor of 1.3 from low to high."""
    spreads = {"tp": "throughput", "memory": "peak", "job": "step", "pipeline": "speed", "finetune": "per_gpu"}
    if name not in spreads:
        return
    result = answer(name, {"tokens": "1M"} if name == "finetune" else {}).result
    rows = getattr(result, "rows", None) or getattr(result, "methods", None) or (result,)
    for row in rows:
        assert getattr(row, spreads[name]).width < 1.3005


TYPED = st.one_of(
    st.sampled_from(
        [
            "0",
            "1",
            "2",
            "3",
            "7",
            "64",
            "1e9",
            "-1",
            "0.5",
            "100%",
            "0%",
            "1-2",
            "5GB",
            "400Gb/s",
            "10min",
            "full",
            "",
            "x",
        ]
    ),
    st.text(max_size=6),
)


@settings(max_examples=150)
@given(st.sampled_from(sorted(CALCULATORS)), st.data())
def test_any_input_is_answered_or_refused(name: str, data: st.DataObject) -> None:
    """No combination of typed values ends in anything but an answer or a clear word."""
    asked = {field: question for field, question, _ in questions(import_module(CALCULATORS[name][0]).Inputs)}
    typed = [field for field, question in asked.items() if question.kind != "flag"]
    given_ = {
        field: data.draw(TYPED, label=field)
        for field in data.draw(st.lists(st.sampled_from(typed), max_size=4, unique=True))
    }
    if name == "pipeline":
        given_ = {"stages": "3", "microbatches": "6", **given_}
    try:
        found = answer(name, given_)
    except (UsageProblem, ZeroDivisionError, OverflowError):  # the last two get their word on the command line
        return
    json_answer.render(found)
    terminal.render(found, 80)
