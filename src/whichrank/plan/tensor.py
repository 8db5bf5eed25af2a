"""plan tp: how throughput really scales with tensor parallelism, for training and for serving.

Training, one microbatch:  T(t) = compute(t) + n * L * [alpha + 2 (t-1)/t * 2 b s h / bandwidth] * (1 - overlap) + optimizer
with n = 4 all-reduces per layer, 6 with full recomputation, 5 where products are done again (sequence parallelism moves
the same bytes). compute(t) falls more slowly than 1/t: matrices become narrow (compute.py). Serving: serving.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whichrank.errors import UsageProblem
from whichrank.plan import memory
from whichrank.plan.answer import Answer, Formula, Lines, Series, Table, age_warnings
from whichrank.plan.catalog import Book, Catalog, Figure
from whichrank.plan.collectives import links
from whichrank.plan.hardware import Gpu, gpu
from whichrank.plan.models import Model, preset_or_file
from whichrank.plan.quantities import Range, digits, gib, percent, seconds, spread
from whichrank.plan.tensor_rows import Inputs, Row, formulas, serving_row, training_row

__all__ = ["Inputs", "Row", "TensorPlan", "answer", "plan"]


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """`cheapest`: most tokens per GPU; `fastest`: most tokens in all, inside the NVLink domain where possible."""

    inputs: Inputs
    model: Model
    gpu: Gpu
    rows: tuple[Row, ...]
    cheapest: int | None
    fastest: int | None
    warnings: tuple[str, ...]
    figures: tuple[Figure, ...]
    formulas: tuple[Formula, ...]


def plan(inputs: Inputs, catalog: Catalog) -> TensorPlan:
    """Each size beside the others.

    Raises:
        UsageProblem: unknown model or GPU, heads that cannot be divided.
    """
    book = catalog.book()
    model = preset_or_file(inputs.model, book)
    kind = gpu(inputs.gpu, book, inputs.precision)
    if not inputs.sizes:
        raise UsageProblem("--sizes: name at least one tensor-parallel size, such as 1,2,4,8")
    on = links(kind, book, inputs.nic.likely if inputs.nic else None)
    sizes = tuple(sorted(set(inputs.sizes)))
    for size in sizes:
        memory.check_split(model, size, 1)
    rows = _scaled([_row(model, inputs, size, kind, book) for size in sizes])
    fit = [row for row in rows if row.fits != "out"]
    cheapest = max(fit, key=lambda row: row.per_gpu.likely).tensor if fit else None
    near = [row for row in fit if not row.crosses] or fit
    fastest = max(near, key=lambda row: row.throughput.likely).tensor if near else None
    explained = formulas(model, inputs, rows, kind, on, book)
    warnings = (*_warnings(inputs, rows, kind, model), *age_warnings(book))
    return TensorPlan(
        inputs, model, kind, rows, cheapest, fastest, warnings, tuple(book.used.values()), tuple(explained)
    )


def _row(model: Model, inputs: Inputs, size: int, kind: Gpu, book: Book) -> Row:
    """One size; where network or overlap are ranges, the slow and the fast end widen its range."""

    def at(overlap: float, nic: float | None) -> Row:
        one = training_row if inputs.mode == "training" else serving_row
        return one(model, replace(inputs, overlap=Range.exactly(overlap)), size, kind, links(kind, book, nic), book)

    overlap, nic = inputs.overlap, inputs.nic
    found = at(overlap.likely, nic.likely if nic else None)
    if overlap.certain and (nic is None or nic.certain):
        return found
    slow, fast = at(overlap.low, nic.low if nic else None), at(overlap.high, nic.high if nic else None)
    return replace(
        found,
        seconds=Range(fast.seconds.low, found.seconds.likely, slow.seconds.high),
        throughput=Range(slow.throughput.low, found.throughput.likely, fast.throughput.high),
        per_gpu=Range(slow.per_gpu.low, found.per_gpu.likely, fast.per_gpu.high),
    )


def _scaled(rows: list[Row]) -> tuple[Row, ...]:
    """Speed-up and efficiency against the smallest size that fits."""
    base = next((row for row in rows if row.throughput.likely > 0 and row.fits != "out"), None)
    base = base or next((row for row in rows if row.throughput.likely > 0), None)
    if base is None:
        return tuple(rows)
    found = []
    for row in rows:
        gain = row.throughput.likely / base.throughput.likely
        found.append(replace(row, speedup=gain, efficiency=gain * base.tensor / row.tensor))
    return tuple(found)


def _warnings(inputs: Inputs, rows: tuple[Row, ...], kind: Gpu, model: Model) -> list[str]:
    found = []
    crossing = [row.tensor for row in rows if row.crosses]
    if crossing:
        found.append(
            f"t = {', '.join(map(str, crossing))} leaves the NVLink domain of {kind.domain} GPU"
            f"{'' if kind.domain == 1 else 's'}: every layer's all-reduces go over PCIe or the network, and share it "
            "with everything else"
        )
    narrow = [row.tensor for row in rows if model.ffn / row.tensor < 1024 and row.tensor > 1]
    if narrow and model.experts == 1:
        found.append(f"t = {', '.join(map(str, narrow))}: matrices narrower than 1,024 columns run at poor efficiency")
    starved = [row.tensor for row in rows if row.fits == "tight" and inputs.mode == "serving"]
    if starved:
        found.append(
            f"t = {', '.join(map(str, starved))}: few sequences fit beside the weights; a small error in the free "
            "memory moves the throughput by more than the printed range"
        )
    if model.experts > 1:
        found.append(
            "experts: published serving throughput of mixtures lies 15 % from this model (Qwen3 235B, 8 x H200) to 55 % "
            "below it (Qwen3 30B, whose experts are 768 wide); training of mixtures is checked against no point"
        )
    return found


def answer(of: TensorPlan) -> Answer:
    inputs = of.inputs
    what = "training" if inputs.mode == "training" else f"serving {inputs.input_tokens}/{inputs.output_tokens} tokens"
    return Answer(
        "tp",
        f"Tensor parallelism: {of.model.name}, {what}, {of.gpu.name}, {inputs.precision}",
        tuple(_says(of)),
        (_table(of),),
        _charts(of),
        of.formulas,
        of.warnings,
        of.figures,
        of,
    )


def _says(of: TensorPlan) -> list[str]:
    if of.cheapest is None:
        return [f"None of t = {', '.join(str(row.tensor) for row in of.rows)} fits: larger t, or a pipeline as well."]
    by = {row.tensor: row for row in of.rows}
    best = by[of.cheapest]
    says = [f"Best per GPU: t = {best.tensor}, {spread(best.per_gpu, digits)} tokens/s/GPU."]
    if of.fastest and of.fastest != of.cheapest:
        row = by[of.fastest]
        says.append(
            f"Fastest: t = {row.tensor}, {digits(row.speedup)}x of t = {_base(of)}, at {percent(row.efficiency)} "
            f"efficiency; {percent(row.communication)} of the time is communication."
        )
    if out := [row.tensor for row in of.rows if row.fits == "out"]:
        says.append(f"Memory rules out t = {', '.join(map(str, out))}.")
    if of.inputs.mode == "serving" and any(row.efficiency > 1.05 for row in of.rows):
        says.append("More than linear: a second GPU frees memory for the cache, so that larger batches fit.")
    return says


def _base(of: TensorPlan) -> int:
    return next((row.tensor for row in of.rows if row.speedup == 1.0 and row.efficiency == 1.0), of.rows[0].tensor)


def _table(of: TensorPlan) -> Table:
    serving_mode = of.inputs.mode == "serving"
    rows = []
    for row in of.rows:
        cells = [
            str(row.tensor),
            spread(row.throughput, digits) if row.throughput.likely else "-",
            digits(row.per_gpu.likely) if row.per_gpu.likely else "-",
            f"{digits(row.speedup)}x" if row.throughput.likely else "-",
            percent(row.efficiency) if row.throughput.likely else "-",
            percent(row.communication),
            f"{row.sequences:,.0f}" if serving_mode else seconds(row.seconds.likely),
            gib(row.memory),
            row.fits + (", off NVLink" if row.crosses else ""),
        ]
        rows.append(tuple(cells))
    columns = (
        "t",
        "tokens/s",
        "per GPU",
        "speed-up",
        "efficiency",
        "comm.",
        "sequences" if serving_mode else "microbatch",
        "memory/GPU",
        "",
    )
    mark = next((i for i, row in enumerate(of.rows) if row.tensor == of.cheapest), None)
    return Table("By size", columns, tuple(rows), mark=mark, left=(0, 8))


def _charts(of: TensorPlan) -> tuple[Lines, ...]:
    shown = [row for row in of.rows if row.throughput.likely]
    if len(shown) < 2:
        return ()
    ideal = shown[0].throughput.likely / shown[0].tensor
    return (
        Lines(
            "Throughput by tensor-parallel size",
            "t",
            "tokens/s",
            (
                Series("predicted", tuple((row.tensor, row.throughput.likely) for row in shown)),
                Series("low", tuple((row.tensor, row.throughput.low) for row in shown), faint=True),
                Series("high", tuple((row.tensor, row.throughput.high) for row in shown), faint=True),
                Series("linear", tuple((row.tensor, ideal * row.tensor) for row in shown)),
            ),
            log=True,
        ),
    )
