"""plan finetune: GPU-hours, wall time, memory and money of full, LoRA and QLoRA fine-tuning, side by side.

    GPU-h = tokens * (c P + attention) / (rate * MFU * 3600) / goodput
c is 6 for full fine-tuning (8 with full recomputation), 4 for LoRA (6): frozen weights need no gradient of their own.
MFU comes from the compute model (compute.py), not from a table. QLoRA adds, per microbatch, the time to turn 4-bit
weights into 16-bit ones: k P / HBM bandwidth with k about 17.7 bytes per parameter (10 to 26 by implementation).
Small microbatches are bound by the host: eager code adds about 3 ms per layer and microbatch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from whichrank.errors import UsageProblem
from whichrank.plan import compute, memory
from whichrank.plan.answer import Answer, Bars, Formula, Table, age_warnings
from whichrank.plan.catalog import Book, Catalog, Figure
from whichrank.plan.hardware import Gpu, gpu, rates
from whichrank.plan.inputs import ask
from whichrank.plan.models import Model, preset_or_file
from whichrank.plan.quantities import Range, count, digits, gib, money, percent, seconds, spread
from whichrank.plan.tensor_rows import OPTIMIZER_BYTES
from whichrank.plan.tokens import count_tokens

METHODS = ("full", "lora", "qlora")
GATHERED_BYTES = 8  # FSDP: weights gathered twice in bf16, gradients reduced in fp32, per parameter and microbatch


@dataclass(frozen=True, slots=True)
class Inputs:
    """A model, a data set and GPUs."""

    model: str = ask("llama-3.1-8b", "text", "preset, or the path of a Hugging Face config.json")
    gpu: str = ask("h100", "text", "GPU kind")
    gpus: int = ask(8, "whole", "GPUs", least=1)
    tokens: Range | None = ask(None, "count", "tokens of the data set, one epoch; or --dataset", least=1)
    dataset: str = ask("", "text", "file to count tokens of: text or JSON lines (4 characters a token), .bin of uint16")
    epochs: Range = ask(Range.exactly(1.0), "count", "times through the data", least=0.001)
    sequence: int = ask(2048, "whole", "tokens in a packed sequence", least=1)
    microbatch: int = ask(1, "whole", "sequences in a microbatch", least=1)
    recompute: str = ask("none", "choice", "what is computed again; auto: nothing where it fits, else op, else full",
                         ("auto", *compute.RECOMPUTE))  # fmt: skip
    precision: str = ask("bf16", "choice", "of the matrix products", ("bf16", "fp8"))
    rank: int = ask(16, "whole", "LoRA rank", least=1)
    eager: bool = ask(False, "flag", "not compiled")
    accumulate: int = ask(8, "whole", "microbatches in a step", least=1)
    goodput: Range | None = ask(None, "share", "share of the time that the loop runs", least=0.01)
    price: Range | None = ask(None, "money", "dollars of a GPU-hour")
    kinds: str = ask("", "text", "GPU kinds to check for fit, such as 4090,a100,h100 (default: all)")


@dataclass(frozen=True, slots=True)
class Method:
    """One way of fine-tuning. Tokens/s per GPU inside the loop; GPU-hours with goodput."""

    method: str
    recompute: str
    per_gpu: Range
    mfu: float
    microbatch_seconds: float
    gpu_hours: Range
    wall_hours: Range
    cost: Range | None
    peak: float
    verdict: str
    trainable: float


@dataclass(frozen=True, slots=True)
class Fit:
    """The cheapest way of recomputing that fits on one GPU of this kind; empty where none does."""

    gpu: str
    ways: tuple[str, ...]
    peaks: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FinetunePlan:
    inputs: Inputs
    model: Model
    gpu: Gpu
    tokens: Range
    counted: str
    methods: tuple[Method, ...]
    fits: tuple[Fit, ...]
    warnings: tuple[str, ...]
    figures: tuple[Figure, ...]
    formulas: tuple[Formula, ...]


def plan(inputs: Inputs, catalog: Catalog) -> FinetunePlan:
    """The three methods on the same model and data.

    Raises:
        UsageProblem: no tokens given, or a data file that cannot be read.
    """
    book = catalog.book()
    model = preset_or_file(inputs.model, book)
    kind = gpu(inputs.gpu, book, inputs.precision)
    tokens, counted = _tokens(inputs)
    price = inputs.price or book.optional(f"prices.{kind.key}.rent")
    methods = tuple(_method(method, model, inputs, kind, tokens, price, book) for method in METHODS)
    warnings = [*_warnings(inputs, methods, counted), *age_warnings(book)]
    fits = tuple(_fits(model, inputs, catalog))
    formulas = tuple(_formulas(model, inputs, methods[1], kind, tokens, book))
    return FinetunePlan(
        inputs, model, kind, tokens, counted, methods, fits, tuple(warnings), tuple(book.used.values()), formulas
    )


def _tokens(inputs: Inputs) -> tuple[Range, str]:
    """Tokens of all epochs, and how they were counted."""
    if inputs.tokens and inputs.dataset:
        raise UsageProblem("give --tokens or --dataset, not both")
    if inputs.tokens:
        return inputs.tokens * inputs.epochs, "given"
    if not inputs.dataset:
        raise UsageProblem("how much data? Give --tokens 50M or --dataset FILE")
    counted = count_tokens(Path(inputs.dataset))
    if counted < 1:
        raise UsageProblem(f"{inputs.dataset} holds no tokens")
    return inputs.epochs * counted, f"counted in {Path(inputs.dataset).name}"


def microbatch_seconds(
    model: Model, inputs: Inputs, method: str, recompute: str, kind: Gpu, book: Book
) -> tuple[compute.Time, float, float]:
    """Time on the GPU for a microbatch, and in seconds what the host and dequantising add."""
    work = compute.Work(inputs.microbatch, inputs.sequence, 1, recompute, method, not inputs.eager)
    time = compute.training(model, work, rates(kind, book))
    host = model.layers * book.number("assumptions.host.eager" if inputs.eager else "assumptions.host.compiled")
    if method == "full":
        optimizer = OPTIMIZER_BYTES * model.parameters / inputs.gpus / (kind.bandwidth * 0.9) / inputs.accumulate
        return time, host, optimizer
    more = 0.0
    if method == "qlora":
        more = book.number("assumptions.qlora.bytes_per_parameter") * model.parameters / kind.bandwidth
    return time, host, more


def _method(
    method: str, model: Model, inputs: Inputs, kind: Gpu, tokens: Range, price: Range | None, book: Book
) -> Method:
    held = _memory_inputs(inputs, method)
    if inputs.recompute == "auto":
        fitting, peak = memory.cheapest_way(model, held, kind.memory)
        recompute = fitting or memory.WAYS[-1]
    else:
        recompute, peak = inputs.recompute, memory.parts_of(model, held).total
    time, host, more = microbatch_seconds(model, inputs, method, recompute, kind, book)
    spent = time.total + host + more + _exposed(model, inputs, method, kind, time.total)
    batch = inputs.microbatch * inputs.sequence
    per_gpu = Range.exactly(batch) / Range.around(spent, book.number("assumptions.spread.finetune"))
    goodput = inputs.goodput or book.range("assumptions.goodput.share")
    hours = tokens * (1 / 3600) / per_gpu / goodput
    work = compute.Work(inputs.microbatch, inputs.sequence, method=method)
    return Method(
        method,
        recompute,
        per_gpu,
        compute.model_flop(model, work) * batch / spent / kind.peak,
        spent,
        hours,
        hours / inputs.gpus,
        hours * price if price else None,
        peak,
        memory.verdict(peak, kind.memory),
        model.parameters if method == "full" else memory.adapter_parameters(model, inputs.rank),
    )


def _exposed(model: Model, inputs: Inputs, method: str, kind: Gpu, compute_time: float) -> float:
    """Seconds of FSDP's traffic that a microbatch's computation does not hide."""
    if inputs.gpus == 1:
        return 0.0
    gathered = GATHERED_BYTES if method == "full" else 4
    sent = gathered * model.parameters * (inputs.gpus - 1) / inputs.gpus / kind.bus
    return max(0.0, sent - compute_time)


def _memory_inputs(inputs: Inputs, method: str) -> memory.Inputs:
    return memory.Inputs(
        method=method,
        states="fsdp" if inputs.gpus > 1 else "bf16",
        microbatch=inputs.microbatch,
        sequence=inputs.sequence,
        data=inputs.gpus,
        recompute="none" if inputs.recompute == "auto" else inputs.recompute,
        eager=inputs.eager,
        chunked_loss=not inputs.eager,
        rank=inputs.rank,
    )


def _fits(model: Model, inputs: Inputs, catalog: Catalog) -> list[Fit]:
    """Which method fits on one GPU of which kind, at this microbatch and sequence."""
    book = catalog.book()
    kinds = [kind.strip() for kind in inputs.kinds.split(",") if kind.strip()] or catalog.names("gpus")
    alone = replace(inputs, gpus=1, recompute="none")
    found = []
    for kind in kinds:
        room = gpu(kind, book).memory
        held = [memory.cheapest_way(model, _memory_inputs(alone, method), room) for method in METHODS]
        found.append(Fit(kind, tuple(way for way, _ in held), tuple(peak for _, peak in held)))
    return found


def _warnings(inputs: Inputs, methods: tuple[Method, ...], counted: str) -> list[str]:
    found = []
    full, lora, qlora = methods
    if lora.microbatch_seconds > 0.85 * full.microbatch_seconds:
        found.append("LoRA is hardly faster than full fine-tuning here: it saves memory, not time")
    if qlora.per_gpu.likely < lora.per_gpu.likely:
        slower = lora.per_gpu.likely / qlora.per_gpu.likely - 1
        found.append(f"QLoRA is {percent(slower)} slower than LoRA: it is for fitting, not for speed")
    if out := [each.method for each in methods if each.verdict == "out"]:
        found.append(f"{' and '.join(out)}: out of memory on {inputs.gpus} GPU(s); the times are what they would be")
    if counted.startswith("counted"):
        found.append("tokens were counted as characters / 4; a tokenizer may differ by 20 %")
    if inputs.microbatch * inputs.sequence < 1024:
        found.append("microbatches this small are bound by the host; the printed range does not cover slow Python code")
    return found


def _formulas(model: Model, inputs: Inputs, lora: Method, kind: Gpu, tokens: Range, book: Book) -> list[Formula]:
    flop = compute.model_flop(model, compute.Work(inputs.microbatch, inputs.sequence, method="lora"))
    attention = 6 * model.layers * inputs.sequence * model.query_width
    goodput = (inputs.goodput or book.range("assumptions.goodput.share")).likely
    k = book.number("assumptions.qlora.bytes_per_parameter")
    return [
        Formula(
            "GPU-hours, LoRA",
            "tokens * (4 P + attention) / (peak * MFU * 3600) / goodput",
            f"{count(tokens.likely)} * ({count(flop - attention)} + {count(attention)}) / ({kind.peak / 1e12:.0f}T * "
            f"{lora.mfu:.3f} * 3600) / {goodput:.2f}",
            f"{digits(lora.gpu_hours.likely)} GPU-h",
        ),
        Formula(
            "QLoRA, more per microbatch",
            "k P / bandwidth",
            f"{k:.3g} B * {count(model.parameters)} / {kind.bandwidth / 1e12:.3g} TB/s",
            seconds(k * model.parameters / kind.bandwidth),
        ),
    ]


def answer(of: FinetunePlan) -> Answer:
    inputs = of.inputs
    fitting = [each for each in of.methods if each.verdict != "out"]
    says = []
    if fitting:
        best = min(fitting, key=lambda each: each.gpu_hours.likely)
        cost = f", {spread(best.cost, money)}" if best.cost else ""
        says.append(
            f"Cheapest that fits: {best.method}, {spread(best.gpu_hours, digits)} GPU-hours{cost}, "
            f"{seconds(3600 * best.wall_hours.likely)} on {inputs.gpus} GPU(s)."
        )
    else:
        says.append(f"None of the three fits on {inputs.gpus} x {of.gpu.name} at this microbatch and sequence.")
    order = " < ".join(each.method for each in sorted(of.methods, key=lambda each: each.microbatch_seconds))
    says.append(f"Order by time: {order}.")
    bars = tuple((each.method, (("GPU-hours", each.gpu_hours.likely),)) for each in of.methods)
    return Answer(
        "finetune",
        f"Fine-tuning {of.model.name} on {spread(of.tokens, count)} tokens ({of.counted}), {inputs.gpus} x {of.gpu.name}",
        tuple(says),
        (_methods_table(of), _fits_table(of)),
        (Bars("GPU-hours", "GPU-h", bars),),
        of.formulas,
        of.warnings,
        of.figures,
        of,
    )


def _methods_table(of: FinetunePlan) -> Table:
    rows = tuple(
        (
            each.method,
            count(each.trainable),
            each.recompute,
            spread(each.per_gpu, digits),
            percent(each.mfu),
            spread(each.gpu_hours, digits),
            seconds(3600 * each.wall_hours.likely),
            spread(each.cost, money) if each.cost else "-",
            gib(each.peak),
            each.verdict,
        )
        for each in of.methods
    )
    columns = ("method", "trained", "recompute", "tokens/s/GPU", "MFU", "GPU-hours", "wall", "cost", "memory/GPU", "")
    return Table("Side by side", columns, rows, left=(0, 2, 9))


def _fits_table(of: FinetunePlan) -> Table:
    rows = tuple(
        (fit.gpu, *((way if way != "none" else "yes") if way else f"no, {gib(peak)}" for way, peak in zip(fit.ways, fit.peaks, strict=True)))
        for fit in of.fits
    )  # fmt: skip
    note = "yes: without recomputation; op, full: with that recomputation; no: the least it takes"
    return Table("What fits on one GPU", ("GPU", *METHODS), rows, note, left=(0, 1, 2, 3))
