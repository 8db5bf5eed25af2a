"""The rows of plan tp: what one tensor-parallel size costs and yields, in training and in serving, and the formulas."""

from __future__ import annotations

from dataclasses import dataclass

from whichrank.plan import compute, memory, serving
from whichrank.plan.answer import Formula
from whichrank.plan.catalog import Book
from whichrank.plan.collectives import Links, tensor_group
from whichrank.plan.hardware import PRECISIONS, Gpu, Rates, rates
from whichrank.plan.inputs import ask
from whichrank.plan.models import Model
from whichrank.plan.quantities import Range, count, digits, gib, seconds, si
from whichrank.plan.traffic import ALL_REDUCES, tensor_seconds

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
    states: str = ask("megatron", "choice", "training: how weights and optimizer states are kept", memory.STATES)
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
    sent = tensor_seconds(model, work, on) * (1 - inputs.overlap.likely)
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


def training_row(model: Model, inputs: Inputs, tensor: int, kind: Gpu, on: Links, book: Book) -> Row:
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
        states=inputs.states,
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


def serving_row(model: Model, inputs: Inputs, tensor: int, kind: Gpu, on: Links, book: Book) -> Row:
    load = load_of(inputs)
    at = serving.step(model, kind, rates(kind, book, serving=True), tensor, load, on, book)
    weights = serving.weights(model, load) / tensor
    made = Range.around(serving.tokens_per_second(at, load), book.number("assumptions.spread.serving"))
    whole = at.seconds or 1.0
    fits = "out" if not at.sequences else "tight" if at.sequences < min(64, inputs.batch or 64) else "fits"
    return Row(
        tensor,
        fits,
        weights + at.sequences * serving.token_bytes(model, load, tensor) * (load.input + load.output) / tensor,
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


def formulas(model: Model, inputs: Inputs, rows: tuple[Row, ...], kind: Gpu, on: Links, book: Book) -> list[Formula]:
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
    at = serving.step(model, kind, rates(kind, book, serving=True), t, load, on, book)
    token = serving.token_bytes(model, load, t)
    return [
        Formula(
            f"sequences, t = {t}",
            "(t (memory - reserve) - weights) * share / (cache per token * (input + output))",
            f"({t} * ({gib(kind.memory)} - {gib(book.number('assumptions.serving.reserve'))}) - {gib(serving.weights(model, load))}) * "
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
