"""JSON: the keys of the contract, in its schema, safe to print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import samples

from whichrank import model
from whichrank.report import json_report, markdown, terminal

ROOT = Path(__file__).parents[2]
SCHEMA = json_report.schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
CASES = sorted(path.parent for path in (ROOT / "tests/cases").glob("*/*/truth.json"))


def load(report: model.Report) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json_report.render(report))
    return found


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", [*samples.SAMPLES, "hostile"])
def test_samples_are_valid(name: str) -> None:
    VALIDATOR.validate(load(getattr(samples, name)()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases_are_valid_and_fit_every_page(case: Path) -> None:
    paths = [str(path) for path in sorted(case.iterdir()) if path.name != "truth.json"]
    report = import_module("whichrank.diagnosis").diagnose(paths)

    VALIDATOR.validate(load(report))
    assert markdown.render(report, all=True)
    for line in terminal.plain(report, 80).splitlines():
        assert len(line) <= 80 or line.lstrip().startswith(("$ ", "-")), line


def test_the_keys_stand_in_the_order_of_the_contract() -> None:
    found = load(samples.oom())

    assert list(found)[:7] == ["schema_version", "tool", "verdicts", "ranks", "timeline", "gaps", "incidents"]
    assert set(found["verdicts"][0]) == {
        *("cause", "family", "grade", "confidence", "mechanism", "culprits", "hosts", "rank_grade", "rank_confidence"),
        *("victims", "group", "group_ranks", "seq", "op", "says", "because", "against", "checks", "fix", "stopgap"),
        "action",
    }


def test_what_is_unknown_is_null() -> None:
    verdict = load(samples.single_line())["verdicts"][0]
    row = load(samples.healthy())["ranks"][0]

    assert verdict["group"] is None
    assert verdict["action"]["resume_from_step"] is None
    assert row["op"] is None and row["since"] is None
    assert load(samples.desync())["verdicts"][0]["because"][0]["line"] is None


def test_incidents_are_reports() -> None:
    found = load(samples.attempts())

    assert [incident["label"] for incident in found["incidents"]] == ["attempt 0", "attempt 1", "attempt 2"]
    assert all(incident["schema_version"] == 1 for incident in found["incidents"])


def test_clues_are_objects() -> None:
    clue = load(samples.oom())["weighed"][0]["clues"][0]

    assert clue["score"] == 6.0
    assert clue["source"] == "logs/node-03/dmesg.txt"


def test_the_tool_names_itself() -> None:
    assert load(replace(samples.oom(), tool=""))["tool"] == "whichrank 0.1.0"


def test_extra_keys_are_added_and_replace_none() -> None:
    found = load(replace(samples.oom(), extra={"site": True, "verdicts": "mine"}))

    assert found["site"] is True
    assert isinstance(found["verdicts"], list)


def test_texts_are_printable_and_paths_are_as_given() -> None:
    found = load(samples.hostile())
    texts = [text for name, text in strings(found) if name != "source"]

    assert len(texts) > 50
    assert not [text for text in texts if re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202e\ud800]", text)]
    assert found["verdicts"][0]["because"][0]["source"].startswith("logs/\x1b]0;owned")


def strings(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a document, with the key that it stands under."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from strings(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner, name)


def test_one_line_if_wanted() -> None:
    assert json_report.render(samples.oom(), indent=0).count(b"\n") == 1


# --- schema, model and documentation say the same


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("verdict", model.Verdict),
        ("culprit", model.Culprit),
        ("proof", model.Proof),
        ("check", model.Check),
        ("action", model.Action),
        ("rank", model.RankRow),
        ("moment", model.Moment),
        ("gap", model.Missing),
        ("weighed", model.Weighed),
        ("summary", model.Summary),
    ],
)
def test_the_schema_has_the_fields_of_the_model(name: str, cls: type) -> None:
    assert set(SCHEMA["$defs"][name]["properties"]) == {field.name for field in fields(cls)}


def test_the_report_has_its_fields_in_the_schema() -> None:
    names = {field.name for field in fields(model.Report)} - {"extra", "names", "table", "told", "around"}

    assert set(SCHEMA["$defs"]["report"]["properties"]) == names


def test_the_schema_has_the_words_of_the_model() -> None:
    defs = SCHEMA["$defs"]

    assert defs["grade"]["enum"] == list(get_args(model.Grade))
    assert defs["cause"]["enum"] == list(model.FAMILY)
    assert defs["verdict"]["properties"]["family"]["enum"] == list(model.FAMILIES)
    assert defs["verdict"]["properties"]["mechanism"]["enum"] == list(get_args(model.Mechanism))
    assert defs["rank"]["properties"]["state"]["enum"] == list(get_args(model.RankState))
    assert defs["action"]["properties"]["do"]["enum"] == list(get_args(model.Do))


def test_every_field_is_documented() -> None:
    text = (ROOT / "docs/report.md").read_text(encoding="utf-8")
    names = {name for part in SCHEMA["$defs"].values() for name in part.get("properties", {})}
    words = {word for part in SCHEMA["$defs"].values() for word in part.get("enum", [])}

    assert not {name for name in names | words if f"`{name}`" not in text}
