"""The pages below docs/plan: up to date with the calculators, and complete."""

from __future__ import annotations

import plan_accuracy
import plan_pages
import pytest

from whichrank.plan import CALCULATORS


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {path.name: text for path, text in plan_pages.pages(measure=False)}


def test_pages_are_up_to_date(pages: dict[str, str]) -> None:
    """Everything but the accuracy tables, which `python docs/build.py` measures anew."""
    for name, text in pages.items():
        assert (plan_pages.FOLDER / name).read_text(encoding="utf-8") == text, f"{name}: run python docs/build.py"


def test_each_calculator_has_a_page_and_three_guides_there_are(pages: dict[str, str]) -> None:
    assert {f"{name}.md" for name in CALCULATORS} <= pages.keys()
    assert sum(name.startswith("guide-") for name in pages) == 3
    for name in CALCULATORS:
        for heading in ("## Formula", "## Assumptions", "## Accuracy", "## When not to trust it"):
            assert heading in pages[f"{name}.md"], (name, heading)


def test_tables_of_accuracy_are_of_the_shipped_constants(pages: dict[str, str]) -> None:
    """A constant that was changed without measuring again shows here, in a second."""
    text = "".join(pages.values())
    assert "Not measured yet" not in text
    shipped = plan_accuracy.catalog.load(today=plan_accuracy.TODAY)
    for names in plan_accuracy.FITTED.values():
        for name in names:
            assert f"`{name}` = {shipped.figures[name].number.likely:.4g}" in text, name
    for section in plan_accuracy.FITTED:
        for point in plan_accuracy.points(section, plan_accuracy.load()):
            if section not in ("pipeline", "finetune"):
                found = point.predict(shipped)
                assert f"| {plan_accuracy.number(found.likely)} |" in text, point.name
