#!/usr/bin/env python3
"""How well the calculators of `whichrank plan` meet measured, published points.

    python bench/plan_accuracy.py                    every section: predicted, measured, error, leave-one-out error
    python bench/plan_accuracy.py --section serving
    python bench/plan_accuracy.py --fit              also print the constants that fit best (to put into assumptions.toml)
    python bench/plan_accuracy.py --markdown         as docs/plan/ shows it

Points: bench/plan_points.toml. "error" is with the shipped constants. "left out" is the honest one: the constants of
that section are fitted again without the point (and nothing else), then the point is predicted. Fitting minimises the
mean of |log(predicted/measured)| over the section by coordinate descent. Exit code 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from plan_points import Point, load, points, verdicts  # bench/ is no package

from whichrank.plan import catalog
from whichrank.plan.catalog import Catalog
from whichrank.plan.quantities import Range

TODAY = date(2026, 11, 30)  # the age of figures has no part in this
# figures fitted on each section, and the steps that a fit tries
FITTED: dict[str, tuple[str, ...]] = {
    "training": (
        "assumptions.matmul.volta",
        "assumptions.matmul.ampere",
        "assumptions.matmul.hopper",
        "assumptions.matmul.tile",
    ),
    "serving": (
        "assumptions.serving.matmul",
        "assumptions.serving.per_layer",
        "assumptions.serving.per_sequence",
    ),
    "finetune": (
        "assumptions.matmul.workstation",
        "assumptions.host.eager",
        "assumptions.qlora.bytes_per_parameter",
    ),
    "pipeline": ("assumptions.pipeline.exposed", "assumptions.pipeline.kept"),
    "memory": (),
    "fabric": (),
    "cost": (),
    "timeout": ("network.nccl.across_nodes",),
}
# bar on the mean error; None: exact, or no bar was asked for
BARS = {"training": 0.08, "serving": 0.20, "finetune": 0.20, "pipeline": 0.03, "memory": 0.15}
TITLES = {
    "training": "Tensor parallelism, training",
    "serving": "Tensor parallelism, serving",
    "finetune": "Fine-tuning",
    "pipeline": "Pipelines: throughput against 1F1B",
    "memory": "Memory",
    "fabric": "Fabrics",
    "cost": "Clusters",
    "timeout": "What a timeout has to cover",
}
WIDEST = 1.3


@dataclass(frozen=True, slots=True)
class Result:
    point: Point
    predicted: Range
    left_out: float

    @property
    def error(self) -> float:
        return self.predicted.likely / self.point.measured - 1

    @property
    def left_out_error(self) -> float:
        return self.left_out / self.point.measured - 1


# --- fitting


def mean_log_error(errors: Sequence[float]) -> float:
    return sum(errors) / len(errors)


def fit(names: Sequence[str], chosen: Sequence[Point], figures: Catalog) -> Catalog:
    """Coordinate descent: each constant in turn to the best of a few steps, which grow smaller.

    Only points that a constant moves are predicted again when it is tried.
    """
    if not names or not chosen:
        return figures
    errors = [_log_error(point, figures) for point in chosen]
    moved = {name: _moved(name, chosen, figures) for name in names}
    for step in (1.16, 1.08, 1.04, 1.02):
        for name in (*names, *names):
            now = figures.figures[name].number.likely
            for factor in (1 / step, step):
                value = now * factor
                if figures.figures[name].unit == "share" and value > 1:
                    continue
                tried = catalog.with_value(figures, name, value)
                found = list(errors)
                for at in moved[name]:
                    found[at] = _log_error(chosen[at], tried)
                if mean_log_error(found) < mean_log_error(errors) - 1e-9:
                    figures, errors = tried, found
    return figures


def _log_error(point: Point, figures: Catalog) -> float:
    return abs(math.log(point.predict(figures).likely / point.measured))


def _moved(name: str, chosen: Sequence[Point], figures: Catalog) -> list[int]:
    """The points whose prediction depends on a constant."""
    other = catalog.with_value(figures, name, 0.9 * figures.figures[name].number.likely)
    return [at for at, point in enumerate(chosen) if point.predict(figures).likely != point.predict(other).likely]


def results(section: str, chosen: Sequence[Point], figures: Catalog) -> list[Result]:
    """Each point as shipped, and with the section's constants fitted without it."""
    names = FITTED[section]
    found = []
    for point in chosen:
        others = [other for other in chosen if other is not point]
        without = fit(names, others, figures)
        found.append(Result(point, point.predict(figures), point.predict(without).likely))
    return found


# --- output


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    results: tuple[Result, ...]
    verdicts: tuple[tuple[str, str, str, bool], ...]
    constants: tuple[tuple[str, float, str], ...]

    def mean(self, *, left_out: bool, listed: bool) -> float:
        chosen = [each for each in self.results if each.point.listed or not listed]
        errors = [abs(each.left_out_error if left_out else each.error) for each in chosen]
        return sum(errors) / len(errors) if errors else 0.0

    @property
    def missed(self) -> list[str]:
        """What is below its bar, in words."""
        found = [f"{name}: {told} instead of {expected}" for name, expected, told, right in self.verdicts if not right]
        bar = BARS.get(self.name)
        if bar is not None:
            for what, left_out in (("error", False), ("leave-one-out error", True)):
                if (mean := self.mean(left_out=left_out, listed=True)) > bar:
                    found.append(f"mean {what} {mean:.1%} above {bar:.0%}")
        compared = [each for each in self.results if not each.predicted.certain and self.name != "timeout"]
        found += [
            f"{r.point.name}: range {r.predicted.width:.2f}x wide"
            for r in compared
            if r.predicted.width > WIDEST + 5e-3
        ]
        if self.name == "cost":
            outside = [
                r
                for r in self.results
                if not r.predicted.certain and not r.predicted.low <= r.point.measured <= r.predicted.high
            ]
            found += [f"{r.point.name}: {r.point.measured:,.0f} is outside the range" for r in outside]
        return found


def measured(only: Sequence[str] = (), figures: Catalog | None = None) -> list[Section]:
    """Every section, or some."""
    data = load()
    figures = figures or catalog.load(today=TODAY)
    found = []
    for name in FITTED:
        if only and name not in only:
            continue
        constants = tuple(
            (each, figures.figures[each].number.likely, figures.figures[each].unit) for each in FITTED[name]
        )
        chosen = points(name, data)
        found.append(
            Section(name, tuple(results(name, chosen, figures)), tuple(verdicts(name, data, figures)), constants)
        )
    return found


def number(value: float) -> str:
    if value >= 1e12:
        return f"{value / 1e12:.1f}T"
    if value >= 1e6:
        return f"{value / 1e6:.2f}M"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def markdown(section: Section) -> str:
    """The tables of a section, as docs/plan/ shows them."""
    lines = []
    if section.results:
        lines += [
            "| point | measured | predicted | printed range | error | left out | source |",
            "| :-- | --: | --: | --: | --: | --: | :-- |",
        ]
    for each in section.results:
        point, found = each.point, each.predicted
        span = "exact" if found.certain else f"{number(found.low)} to {number(found.high)}"
        name = point.name if point.listed else f"*{point.name}*"
        lines.append(
            f"| {name} | {number(point.measured)} {point.unit} | {number(found.likely)} | {span} | {each.error:+.1%} | "
            f"{each.left_out_error:+.1%} | {point.source} |"
        )
    if section.results:
        lines += ["", _means(section)]
    if section.verdicts:
        lines += ["", "| has to be right | expected | found | |", "| :-- | :-- | :-- | :-- |"]
        lines += [
            f"| {name} | {expected} | {told} | {'yes' if right else '**no**'} |"
            for name, expected, told, right in section.verdicts
        ]
    return "\n".join(lines)


def _means(section: Section) -> str:
    bar = BARS.get(section.name)
    words = f"Mean error {section.mean(left_out=False, listed=True):.1%}, left out {section.mean(left_out=True, listed=True):.1%}"
    words += f" (bar {bar:.0%})" if bar else ""
    if any(not each.point.listed for each in section.results):
        every = f"{section.mean(left_out=False, listed=False):.1%}, {section.mean(left_out=True, listed=False):.1%}"
        words += f"; with the further points (in italics): {every}"
    fitted = ", ".join(f"`{name}` = {value:.4g}" for name, value, _ in section.constants)
    return f"{words}. Fitted on these points: {fitted or 'nothing'}."


def text(section: Section) -> str:
    lines = [TITLES[section.name]]
    for each in section.results:
        point = each.point
        mark = " " if point.listed else "+"
        lines.append(
            f" {mark} {point.name[:56]:56} {number(point.measured):>9} {number(each.predicted.likely):>9} {point.unit:12} "
            f"{each.error:+7.1%}  left out {each.left_out_error:+7.1%}"
        )
    if section.results:
        lines.append("   " + _means(section).replace("`", "").replace("in italics", "rows marked +"))
    lines += [f"   {'ok ' if right else 'NO '} {name}: {told}" for name, _, told, right in section.verdicts]
    return "\n".join(lines)


def best_constants(only: Sequence[str]) -> str:
    """What a fit on all points of a section gives, from the shipped values on."""
    data, figures = load(), catalog.load(today=TODAY)
    lines = []
    for name, names in FITTED.items():
        if names and (not only or name in only):
            chosen = points(name, data)
            found = fit(names, chosen, figures)
            before, after = (mean_log_error([_log_error(each, at) for each in chosen]) for at in (figures, found))
            told = ", ".join(f"{each} {found.figures[each].number.likely:.4g}" for each in names)
            lines.append(f"{name}: mean log error {before:.4f} -> {after:.4f} with {told}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--section", action="append", choices=list(FITTED), default=[], help="only this section")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--fit", action="store_true", help="print the constants that fit best, and stop")
    args = parser.parse_args()
    if args.fit:
        print(best_constants(args.section))
        return
    missed = []
    for section in measured(args.section):
        print(markdown(section) if args.markdown else text(section), end="\n\n")
        missed += [f"{section.name}: {each}" for each in section.missed]
    for each in missed:
        print(f"bar missed: {each}", file=sys.stderr)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
