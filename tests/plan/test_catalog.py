"""Figures: dated, sourced, and the user's to change."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from asking import figures, plan

from whichrank.errors import UsageProblem
from whichrank.plan import catalog, cost, memory
from whichrank.plan.hardware import gpu
from whichrank.plan.models import preset_or_file
from whichrank.plan.quantities import Range


def test_every_shipped_figure_has_a_source_and_a_date() -> None:
    shipped = figures().figures
    assert len(shipped) > 200
    for figure in shipped.values():
        assert figure.source and not figure.source.startswith("given by you"), figure.name
        assert figure.age_days(date(2026, 11, 30)) >= -30, figure.name


def test_unsourced_figures_are_called_assumptions() -> None:
    for name in ("prices.shares.install", "prices.shares.spares", "prices.shares.storage"):
        assert "assumption" in figures().figures[name].source


def test_every_gpu_and_model_can_be_used() -> None:
    book = figures().book()
    for name in book.catalog.names("gpus"):
        found = gpu(name, book)
        assert found.best <= found.peak and found.memory > 1e10
    for name in book.catalog.names("models"):
        assert preset_or_file(name, book).parameters > 5e8


def test_peaks_are_dense() -> None:
    """Twice the bf16 rate in FP8, not four times: vendors quote sparse figures."""
    book = figures().book()
    for name in ("h100", "h200", "b200", "gb200", "mi300x", "l40s", "4090"):
        assert gpu(name, book, "fp8").peak / gpu(name, book).peak == pytest.approx(2, rel=0.03)


def test_old_prices_warn_and_own_ones_do_not() -> None:
    old = plan("cost", {})
    assert any("prices.h100.node (2024-08)" in warning for warning in old.warnings)
    own = plan("cost", {}, "prices.h100.node=280k")
    assert not any("prices.h100.node" in warning for warning in own.warnings)
    assert own.capital.likely < old.capital.likely
    assert own.items[0].each == Range.exactly(280e3)


def test_age_counts_from_the_day_of_asking() -> None:
    early = catalog.load(today=date(2024, 9, 1))
    assert not any("prices.h100.node" in warning for warning in cost.plan(cost.Inputs(), early).warnings)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        '[sources.quote]\ntitle = "quote 4711"\nas_of = "2026-11"\n'
        '[prices.h100]\nnode = {low = 260e3, high = 270e3, unit = "$", source = "quote"}\n'
        "[gpus.h100-nvl]\nbf16 = 835e12\nmemory = 98e9\nbandwidth = 3.9e12\nbus = 100e9\npower = 400\n"
        'name = "H100 NVL"\n',
        encoding="utf-8",
    )
    with_own = catalog.load((str(own),), today=date(2026, 11, 30))
    price = with_own.figures["prices.h100.node"]
    assert (price.source, price.as_of, price.number) == ("quote 4711", "2026-11", Range(260e3, 265e3, 270e3))
    found = memory.plan(memory.Inputs(gpu="h100-nvl", data=8), with_own)
    assert found.gpu.memory == 98e9


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ("prices.h100.node", "NAME=VALUE"),
        ("prices.h100.nodes=3", "Did you mean prices.h100.node"),
        ("gpus.h100.bandwidth=3TB", "no unit of a bandwidth"),
        ("nonsense=3", "no figure is called"),
        ("gpus.h100.in_switch=3", "cannot be"),
    ],
)
def test_settings_that_name_nothing(setting: str, word: str) -> None:
    with pytest.raises(UsageProblem, match=word):
        figures(setting)


@pytest.mark.parametrize(
    "text", ["not toml [", "[fruit.apple]\nx = 1", "prices = 3", "[prices.h100]\nnode = {unit = '$'}"]
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text(text, encoding="utf-8")
    with pytest.raises(UsageProblem, match=r"bad\.toml"):
        catalog.load((str(bad),))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="cannot read"):
        catalog.load((str(tmp_path / "none.toml"),))


def test_units_of_settings() -> None:
    assert figures("gpus.h100.bandwidth=3TB/s").figures["gpus.h100.bandwidth"].number.likely == 3e12
    assert figures("gpus.h100.bandwidth=3e12").figures["gpus.h100.bandwidth"].number.likely == 3e12
    assert figures("prices.running.pue=1.1-1.2").figures["prices.running.pue"].number == Range(1.1, 1.15, 1.2)
