"""plan tp: how throughput really scales with tensor parallelism, for training and for serving.

Training, one microbatch:  T(t) = compute(t) + n * L * [alpha + 2 (t-1)/t * 2 b s h / bandwidth] * (1 - overlap) + optimizer
with n = 4 all-reduces per layer, 6 with full recomputation, 5 where products are done again (sequence parallelism moves
the same bytes). compute(t) falls more slowly than 1/t: matrices become narrow (compute.py). Serving: serving.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whichrank.errors import UsageProblem
from whichrank.plan import compute, memory, serving
from whichrank.plan.answer import Answer, Formula, Lines, Series, Table, age_warnings
from whichrank.plan.catalog import Book, Catalog, Figure
from whichrank.plan.collectives import Links, links, tensor_group
from whichrank.plan.hardware import PRECISIONS, Gpu, Rates, gpu, rates
from whichrank.plan.inputs import ask
from whichrank.plan.models import Model, preset_or_file
from whichrank.plan.quantities import Range, count, digits, gib, percent, seconds, si, spread

ALL_REDUCES = {"none": 4, "selective": 4, "op": 5, "full": 6}
OPTIMIZER_BYTES = 30  # read and written per parameter and step: gradient, moments, master copy, weight
CACHE_BYTES = {"bf16": 2.0, "fp8": 1.0}


@dataclass(frozen=True, slots=True)
class Inputs:
    """A model on a GPU kind, and what is done with it."""

    model: str = ask("llama-3.1-8b", "text", "preset, or the path of a Hugging Face config.json")
    gpu: str = ask("h100", "text", "GPU kind")
    mode: str = ask("training", "choice", "what the model is used for", ("training", "serving"))
    sizes: tuple[int, ...] = ask((1, 2, 4, 8), "list", "tensor-parallel sizes to compare, such as 1,2,4,8", least=1)
    precision: str = ask("bf16", "choice", "of weights and products", PRECISIONS)
    nic: Range | None = ask(None, "rate", "network bandwidth per GPU, each way", least=1)
    microbatch: int = ask(1, "whole", "training: sequences in a microbatch", least=1)
    sequence: int = ask(4096, "whole", "training: tokens in a sequence", least=1)
    recompute: str = ask("none", "choice", "training: what is computed again in the backward pass", compute.RECOMPUTE)
    data: int = ask(1, "whole", "training: data-parallel ranks that share the optimizer", least=1)
    overlap: Range = ask(Range.exactly(0.0), "share", "training: share of the communication hidden behind compute")
    accumulate: int = ask(1, "whole", "training: microbatches in a step", least=1)
    eager: bool = ask(False, "flag", "training: not compiled, no fused kernels")
    flash: bool = ask(True, "flag", "training: fused attention")
    sequence_parallel: bool = ask(True, "flag", "training: norms shared by the ranks")
    input_tokens: int = ask(1024, "whole", "serving: tokens of a request", least=1)
    output_tokens: int = ask(512, "whole", "serving: tokens of its answer", least=1)
    batch: int = ask(0, "whole", "serving: sequences at once (default: as many as fit)")
    requests: int = ask(0, "whole", "serving: requests in all (default: an endless queue)")
    cache: str = ask("", "choice", "serving: precision of keys and values", ("", "bf16", "fp8"))


@dataclass(frozen=True, slots=True)
class Row:
    """One size. Throughput in tokens/s of the whole group; `seconds` of a microbatch (training: with its share of the
    optimizer) or of a decoding step; `latency` of a whole batch, serving only."""

    tensor: int
    fits: str
    memory: float
    seconds: Range
    throughput: Range
    per_gpu: Range
    speedup: float
    efficiency: float
    communication: float  # share of the time
    crosses: bool
    sequences: float = 0.0
    latency: float = 0.0
    flops: float = 0.0  # FLOP/s per GPU, training only


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
    one = _training_row if inputs.mode == "training" else _serving_row
    rows = _scaled([one(model, inputs, size, kind, on, book) for size in sizes])
    fit = [row for row in rows if row.fits != "out"]
    cheapest = max(fit, key=lambda row: row.per_gpu.likely).tensor if fit else None
    near = [row for row in fit if not row.crosses] or fit
    fastest = max(near, key=lambda row: row.throughput.likely).tensor if near else None
    formulas = _formulas(model, inputs, rows, kind, on, book)
    warnings = (*_warnings(inputs, rows, kind, model), *age_warnings(book))
    return TensorPlan(
        inputs, model, kind, rows, cheapest, fastest, warnings, tuple(book.used.values()), tuple(formulas)
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


# --- training


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one microbatch on a tensor-parallel group."""

    compute: compute.Time
    communication: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.compute.total + self.communication + self.optimizer


def step_time(model: Model, inputs: Inputs, tensor: int, rate: Rates, on: Links) -> StepTime:
    """A microbatch, forward and backward, with its share of the optimizer."""
    work = _work(inputs, tensor)
    sent = communication(model, work, on) * (1 - inputs.overlap.likely)
    local = model.parameters / tensor / inputs.data
    return StepTime(
        compute.training(model, work, rate), sent, OPTIMIZER_BYTES * local / rate.memory / inputs.accumulate
    )


def _work(inputs: Inputs, tensor: int) -> compute.Work:
    return compute.Work(
        inputs.microbatch,
        inputs.sequence,
        tensor,
        inputs.recompute,
        fused=not inputs.eager,
        flash=inputs.flash,
        sequence_parallel=inputs.sequence_parallel,
    )


def communication(model: Model, work: compute.Work, on: Links) -> float:
    """Seconds of a microbatch's all-reduces (or the all-gathers and reduce-scatters that move as much)."""
    if work.tensor == 1:
        return 0.0
    size = 2 * work.tokens * model.hidden
    latency, bandwidth = tensor_group(work.tensor, on)
    each = latency + 2 * (work.tensor - 1) / work.tensor * size / bandwidth
    return ALL_REDUCES[work.recompute] * model.layers * each


def _training_row(model: Model, inputs: Inputs, tensor: int, kind: Gpu, on: Links, book: Book) -> Row:
    times = step_time(model, inputs, tensor, rates(kind, book), on)
    tokens = inputs.microbatch * inputs.sequence
    held = memory.parts_of(model, _memory_inputs(inputs, tensor)).total
    taken = Range.around(times.total, book.number("assumptions.spread.training"))
    flop = compute.counted_flop(model, inputs.microbatch, inputs.sequence, inputs.recompute == "full")
    return Row(
        tensor,
        memory.verdict(held, kind.memory),
        held,
        taken,
        Range.exactly(tokens) / taken,
        Range.exactly(tokens / tensor) / taken,
        1.0,
        1.0,
        times.communication / times.total,
        tensor > kind.domain,
        flops=flop / tensor / times.total,
    )


def _memory_inputs(inputs: Inputs, tensor: int) -> memory.Inputs:
    return memory.Inputs(
        states="megatron",
        microbatch=inputs.microbatch,
        sequence=inputs.sequence,
        tensor=tensor,
        data=inputs.data,
        recompute=inputs.recompute,
        eager=inputs.eager,
        flash=inputs.flash,
        sequence_parallel=inputs.sequence_parallel,
    )


# --- serving


def load_of(inputs: Inputs) -> serving.Load:
    cache = inputs.cache or ("bf16" if inputs.precision == "bf16" else "fp8")
    return serving.Load(
        inputs.input_tokens,
        inputs.output_tokens,
        inputs.batch,
        inputs.requests,
        CACHE_BYTES[cache],
        serving.WEIGHT_BYTES[inputs.precision],
    )


def _serving_row(model: Model, inputs: Inputs, tensor: int, kind: Gpu, on: Links, book: Book) -> Row:
    load = load_of(inputs)
    at = serving.step(model, kind, rates(kind, book), tensor, load, on, book)
    weights = serving.weights(model, load) / tensor
    made = Range.around(serving.tokens_per_second(at, load), book.number("assumptions.spread.serving"))
    whole = at.seconds or 1.0
    fits = "out" if not at.sequences else "tight" if at.sequences < min(64, inputs.batch or 64) else "fits"
    return Row(
        tensor,
        fits,
        weights
        + at.sequences * model.kv_bytes(load.cache_bytes) * (inputs.input_tokens + inputs.output_tokens) / tensor,
        Range.around(at.seconds, book.number("assumptions.spread.serving")),
        made,
        made / tensor,
        1.0 if at.sequences else 0.0,
        1.0 if at.sequences else 0.0,
        at.communication / whole,
        tensor > kind.domain,
        sequences=at.sequences,
        latency=serving.latency(at, load),
    )


# --- words


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
        found.append("experts: the model of mixture layers is checked against no measured point")
    return found


def _formulas(model: Model, inputs: Inputs, rows: tuple[Row, ...], kind: Gpu, on: Links, book: Book) -> list[Formula]:
    row = next((row for row in rows if row.tensor > 1), rows[0])
    return (_training_formulas if inputs.mode == "training" else _serving_formulas)(
        model, inputs, row.tensor, kind, on, book
    )


def _training_formulas(model: Model, inputs: Inputs, t: int, kind: Gpu, on: Links, book: Book) -> list[Formula]:
    rate = rates(kind, book)
    times = step_time(model, inputs, t, rate, on)
    size = 2 * inputs.microbatch * inputs.sequence * model.hidden
    n = ALL_REDUCES[inputs.recompute]
    latency, bandwidth = tensor_group(t, on)
    return [
        Formula(
            f"matrix products, t = {t}",
            "sum of 2 m k n / (best * share * n/(n + tile)), forward, backward, again",
            f"best {si(kind.best, 'FLOP/s')} * {rate.matmul / kind.best:.2f}, tile {rate.tile:.0f}, "
            f"n = f/t = {model.ffn}/{t}",
            seconds(times.compute.matmul + times.compute.head),
        ),
        Formula("attention", "4 s h FLOP per token, half of it causal, x 3.5", "", seconds(times.compute.attention)),
        Formula(
            "memory traffic",
            "bytes / (HBM * share)",
            f"{compute.layer_bytes(model, _work(inputs, t)) / 1e3:,.0f} kB per token and layer / {si(rate.memory, 'B/s')}",
            seconds(times.compute.memory),
        ),
        Formula(
            "communication",
            "n L (alpha + 2 (t-1)/t * 2 b s h / bandwidth) (1 - overlap)",
            f"{n} * {model.layers} * ({seconds(latency)} + {2 * (t - 1) / t:.3g} * {si(size, 'B')} / "
            f"{si(bandwidth, 'B/s')}) * {1 - inputs.overlap.likely:.2g}",
            seconds(times.communication),
        ),
        Formula(
            "optimizer",
            "30 B * P / (t * d) / (HBM * share) / accumulate",
            f"30 * {count(model.parameters)} / ({t} * {inputs.data}) / {si(rate.memory, 'B/s')} / {inputs.accumulate}",
            seconds(times.optimizer),
        ),
    ]


def _serving_formulas(model: Model, inputs: Inputs, t: int, kind: Gpu, on: Links, book: Book) -> list[Formula]:
    load = load_of(inputs)
    at = serving.step(model, kind, rates(kind, book), t, load, on, book)
    token = model.kv_bytes(load.cache_bytes)
    return [
        Formula(
            f"sequences, t = {t}",
            "(t (memory - reserve) - weights) * share / (cache per token * (input + output))",
            f"({t} * ({gib(kind.memory)} - 1.9 GiB) - {gib(serving.weights(model, load))}) * "
            f"{book.number('assumptions.serving.cache_share'):.2g} / ({si(token, 'B')} * {inputs.input_tokens + inputs.output_tokens})",
            digits(at.sequences),
        ),
        Formula(
            "step",
            "products + cache + 2 L all-reduces + host",
            f"{seconds(at.products)} + {seconds(at.cache)} + {seconds(at.communication)} + {seconds(at.host)}",
            seconds(at.seconds),
        ),
        Formula(
            "tokens/s",
            "sequences / (step + sequences / output * prefill)",
            f"{digits(at.sequences)} / ({seconds(at.seconds)} + {digits(at.sequences / inputs.output_tokens)} * "
            f"{seconds(at.prefill)})",
            digits(serving.tokens_per_second(at, load)),
        ),
    ]


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
            digits(row.sequences) if serving_mode else seconds(row.seconds.likely),
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
                Series("low", tuple((row.tensor, row.throughput.low) for row in shown)),
                Series("high", tuple((row.tensor, row.throughput.high) for row in shown)),
                Series("linear", tuple((row.tensor, ideal * row.tensor) for row in shown)),
            ),
            log=True,
        ),
    )
