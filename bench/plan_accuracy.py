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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from whichrank.plan import (
    catalog,
    collectives,
    cost,
    finetune,
    hardware,
    job,
    memory,
    schedules,
    storage,
    tensor,
    timeout,
)
from whichrank.plan.catalog import Catalog
from whichrank.plan.quantities import Range, parse

POINTS = Path(__file__).parent / "plan_points.toml"
TODAY = date(2026, 11, 30)  # the age of figures has no part in this
# figures fitted on each section, and the steps that a fit tries
FITTED: dict[str, tuple[str, ...]] = {
    "training": (
        "assumptions.matmul.volta",
        "assumptions.matmul.ampere",
        "assumptions.matmul.hopper",
        "assumptions.matmul.tile",
    ),
    "serving": ("assumptions.serving.per_layer", "assumptions.serving.per_sequence"),
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
class Point:
    """One number to compare. `predict` takes a catalogue; the range is what the calculator prints."""

    name: str
    source: str
    listed: bool
    measured: float
    unit: str
    predict: Callable[[Catalog], Range]


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


# --- points


def load() -> dict[str, list[dict[str, Any]]]:
    data: dict[str, list[dict[str, Any]]] = tomllib.loads(POINTS.read_text(encoding="utf-8"))
    return data


def points(section: str, data: dict[str, Any]) -> list[Point]:
    """The numbers of a section. Memory that ran out and fabrics are yes or no, and stand elsewhere."""
    make = {
        "training": _tensor, "serving": _tensor, "finetune": _finetune, "pipeline": _pipeline, "memory": _memory,
        "cost": _cost, "timeout": _timeout,
    }.get(section)  # fmt: skip
    if make is None:
        return []
    return [point for entry in data[section] for point in make(entry, data["sources"])]


def _point(entry: dict[str, Any], sources: dict[str, str], unit: str, predict: Callable[[Catalog], Range]) -> Point:
    source = sources[entry.get("source", "zb")]
    return Point(entry["name"], source, entry.get("listed", True), float(entry["measured"]), unit, predict)


def _tensor(entry: dict[str, Any], sources: dict[str, str]) -> Iterator[Point]:
    inputs = tensor.Inputs(**{**entry["inputs"], "sizes": tuple(entry["inputs"]["sizes"])})
    value = entry["value"]

    def predict(figures: Catalog) -> Range:
        row = tensor.plan(inputs, figures).rows[0]
        spread = row.throughput.high / row.throughput.likely
        found = getattr(row, value)
        return found if isinstance(found, Range) else Range.around(found, spread)

    units = {"seconds": "s", "latency": "s", "per_gpu": "tokens/s/GPU", "throughput": "tokens/s", "flops": "FLOP/s/GPU"}
    yield _point(entry, sources, units[value], predict)


def _finetune(entry: dict[str, Any], sources: dict[str, str]) -> Iterator[Point]:
    if entry.get("job"):
        yield _point(entry, sources, "GPU-h", lambda figures: _job_hours(entry, figures))
        return
    tokens = Range.exactly(entry.get("minutes_of_tokens", 1e6))
    inputs = finetune.Inputs(**entry["inputs"], tokens=tokens)
    at = finetune.METHODS.index(entry["method"])

    def predict(figures: Catalog) -> Range:
        found = finetune.plan(inputs, figures).methods
        if "against" in entry:
            other = found[finetune.METHODS.index(entry["against"])]
            ratio = found[at].microbatch_seconds / other.microbatch_seconds
            return Range.around(ratio, found[at].per_gpu.high / found[at].per_gpu.likely)
        if "minutes_of_tokens" in entry:  # inside the loop: no goodput
            return tokens / (found[at].per_gpu * inputs.gpus) * (1 / 60)
        return found[at].per_gpu

    unit = "ratio" if "against" in entry else "min" if "minutes_of_tokens" in entry else "tokens/s/GPU"
    yield _point(entry, sources, unit, predict)


def _job_hours(entry: dict[str, Any], figures: Catalog) -> Range:
    """GPU-hours of a whole run, in-loop speed over the goodput that its failures leave."""
    found = job.plan(job.Inputs(**entry["inputs"]), figures)
    goodput = figures.figures["assumptions.goodput.share"].number.likely
    return Range.exactly(entry["tokens"] * found.gpus / 3600 / goodput) / found.tokens_per_second


def _pipeline(entry: dict[str, Any], sources: dict[str, str]) -> Iterator[Point]:
    forward, backward, weights, transfer = (value / 1000 for value in entry["times"])

    def run(schedule: str, figures: Catalog) -> schedules.Run:
        at = "assumptions.pipeline"
        exposed, kept = (figures.figures[f"{at}.{name}"].number.likely for name in ("exposed", "kept"))
        times = schedules.Times(forward, backward, weights, transfer, exposed=exposed, kept=kept)
        key = (entry["name"], schedule, round(exposed, 4), round(kept, 4))
        if key not in _RUNS:
            _RUNS[key] = schedules.simulate(schedule, entry["stages"], entry["microbatches"], times, entry["chunks"])
        return _RUNS[key]

    for at, schedule in enumerate(schedules.SCHEDULES[1:], 1):

        def predict(figures: Catalog, schedule: str = schedule) -> Range:
            band = figures.figures["assumptions.spread.pipeline"].number.likely
            return Range.around(run("1f1b", figures).seconds / run(schedule, figures).seconds, band)

        ratio = entry["measured"][at] / entry["measured"][0]
        named = {**entry, "name": f"{entry['name']}: {schedule}", "measured": ratio}
        yield _point(named, sources, "x 1F1B", predict)


_RUNS: dict[tuple[str, str, float, float], schedules.Run] = {}


def _memory(entry: dict[str, Any], sources: dict[str, str]) -> Iterator[Point]:
    if not entry["measured"]:
        return
    size = 2**30 if entry["unit"] == "GiB" else 1e9
    inputs = memory.Inputs(**entry["inputs"])
    yield _point(entry, sources, entry["unit"], lambda figures: memory.plan(inputs, figures).peak * (1 / size))


def _cost(entry: dict[str, Any], sources: dict[str, str]) -> Iterator[Point]:
    inputs = _cost_inputs(entry)

    def predict(figures: Catalog) -> Range:
        found = getattr(cost.plan(inputs, figures), entry["value"])
        return found if isinstance(found, Range) else Range.exactly(found)

    yield _point(entry, sources, "W" if entry["value"] == "rack_power" else "$", predict)


def _cost_inputs(entry: dict[str, Any]) -> cost.Inputs:
    given = dict(entry["inputs"])
    if "node_price" in given:
        given["node_price"] = parse(given["node_price"], "money")
    return cost.Inputs(**given)


def _timeout(entry: dict[str, Any], sources: dict[str, str]) -> Iterator[Point]:
    if "rank0" in entry:
        return  # not predicted: it is an input, checked in verdicts()

    def predict(figures: Catalog) -> Range:
        book = figures.book()
        if "checkpoint" in entry:
            return storage.checkpoint(entry["checkpoint"]["parameters"], entry["checkpoint"]["writers"], book).seconds
        if "communicators" in entry:
            return Range.exactly(entry["communicators"] * book.number("reliability.timeouts.init_per_group"))
        asked = entry["all_reduce"]
        kind = hardware.gpu(asked["gpu"], book)
        nic = parse(asked["nic"], "rate").likely if "nic" in asked else None
        on = collectives.links(kind, book, nic)
        taken = collectives.all_reduce(asked["gib"] * 2**30, asked["ranks"], kind.node, on)
        return Range.around(taken, timeout.WIRE_SPREAD)

    yield _point(entry, sources, "s", predict)


# --- fitting


def mean_log_error(chosen: Sequence[Point], figures: Catalog) -> float:
    return sum(abs(math.log(each.predict(figures).likely / each.measured)) for each in chosen) / len(chosen)


def fit(names: Sequence[str], chosen: Sequence[Point], figures: Catalog) -> Catalog:
    """Coordinate descent: each constant in turn to the best of a few steps, which grow smaller."""
    if not names or not chosen:
        return figures
    best = mean_log_error(chosen, figures)
    for step in (1.16, 1.08, 1.04, 1.02):
        for _ in range(2):
            for name in names:
                now = figures.figures[name].number.likely
                for factor in (1 / step, step):
                    value = now * factor
                    if figures.figures[name].unit == "share" and value > 1:
                        continue
                    tried = catalog.with_value(figures, name, value)
                    found = mean_log_error(chosen, tried)
                    if found < best - 1e-9:
                        figures, best = tried, found
    return figures


def results(section: str, chosen: Sequence[Point], figures: Catalog) -> list[Result]:
    """Each point as shipped, and with the section's constants fitted without it."""
    names = FITTED[section]
    found = []
    for point in chosen:
        others = [other for other in chosen if other is not point]
        without = fit(names, others, figures) if names else figures
        found.append(Result(point, point.predict(figures), point.predict(without).likely))
    return found


# --- yes or no


def verdicts(section: str, data: dict[str, Any], figures: Catalog) -> list[tuple[str, str, str, bool]]:
    """What has to be exactly right: name, expected, found, whether it is."""
    return [
        *{"fabric": _counts, "memory": _ran_out, "finetune": _orders, "timeout": _advice}.get(section, _none)(
            data, figures
        )
    ]


def _none(data: dict[str, Any], figures: Catalog) -> Iterator[tuple[str, str, str, bool]]:
    yield from ()


def _counts(data: dict[str, Any], figures: Catalog) -> Iterator[tuple[str, str, str, bool]]:
    for entry in data["fabric"]:
        net = cost.plan(_cost_inputs(entry), figures).fabric
        found = ([net.leaf, net.spine, net.core], list(net.cables))
        expected = (entry["switches"], entry["cables"])
        yield (
            f"{entry['name']}: switches, cables",
            f"{expected[0]} {expected[1]}",
            f"{found[0]} {found[1]}",
            found == expected,
        )


def _ran_out(data: dict[str, Any], figures: Catalog) -> Iterator[tuple[str, str, str, bool]]:
    for entry in data["memory"]:
        verdict = memory.plan(memory.Inputs(**entry["inputs"]), figures).verdict
        expected = "fits or tight" if entry["measured"] else "out"
        yield f"{entry['name']}: out of memory?", expected, verdict, (verdict == "out") == (not entry["measured"])


def _orders(data: dict[str, Any], figures: Catalog) -> Iterator[tuple[str, str, str, bool]]:
    """Where two methods were measured on the same GPU, model and data: which was faster."""
    pairs = (
        ("A6000, 8B: LoRA, full", "a6000", "llama-3.1-8b", ("lora", "full"), {"recompute": "none", "microbatch": 2}),
        ("4090, 8B: LoRA, QLoRA, full", "4090", "llama-3.1-8b", ("lora", "qlora", "full"), {"recompute": "full", "microbatch": 2}),
        ("A100-40, 7B: LoRA, QLoRA", "a100-40", "llama-2-7b", ("lora", "qlora"), {"sequence": 110, "eager": True}),
        ("A10G, 7B: LoRA, QLoRA", "a10g", "llama-2-7b", ("lora", "qlora"), {"sequence": 256, "microbatch": 2, "eager": True}),
    )  # fmt: skip
    for name, kind, model, order, more in pairs:
        inputs = finetune.Inputs(model=model, gpu=kind, gpus=1, tokens=Range.exactly(1e6), **more)
        speed = {each.method: each.per_gpu.likely for each in finetune.plan(inputs, figures).methods}
        found = tuple(sorted(order, key=lambda method: -speed[method]))
        yield f"{name}, fastest first", " > ".join(order), " > ".join(found), found == order


def _advice(data: dict[str, Any], figures: Catalog) -> Iterator[tuple[str, str, str, bool]]:
    for entry in data["timeout"]:
        if "rank0" in entry:
            found = timeout.plan(timeout.Inputs(rank0=parse(entry["rank0"], "time")), figures)
            right = found.alone is not None and found.alone > entry["measured"] and found.steady < 1800
            told = f"gloo group {found.alone or 0:.0f} s, NCCL {found.steady:.0f} s"
            yield entry["name"], "its own group above 5220 s, NCCL's limit not raised", told, right


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
        words += f"; with the points in italics, which nobody asked for: {every}"
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
        lines.append("   " + _means(section).replace("`", "").replace("italics", "rows marked +"))
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
            before, after = mean_log_error(chosen, figures), mean_log_error(chosen, found)
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
