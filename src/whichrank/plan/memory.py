"""plan memory: does it fit, and what takes the room?

States    18 bytes per parameter (Megatron mixed precision), 6 + 12/dp with a distributed optimizer, 16/dp under FSDP,
          8 in pure bf16; LoRA 2 bytes of base + 16 of adapter; QLoRA 0.53 of base, embeddings in bf16.
Kept      bytes per token and layer that the backward pass needs, counted operation by operation. Megatron's eager
          layer is s b h (34 + 5 a s/h) (Korthikanti et al. 2022); recomputation keeps 2 s b h and one live layer.
Pipeline  the first stage of 1F1B keeps min(m, p) microbatches, interleaving x (1 + (p-1)/(p v)).
Logits    14 bytes per token and word of the vocabulary: bf16, a copy in fp32, its log-softmax and gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whichrank.errors import UsageProblem
from whichrank.plan import compute
from whichrank.plan.answer import Answer, Bars, Formula, Table, age_warnings
from whichrank.plan.catalog import Book, Catalog, Figure
from whichrank.plan.hardware import Gpu, gpu, rates
from whichrank.plan.inputs import ask
from whichrank.plan.models import Model, preset_or_file
from whichrank.plan.quantities import Range, count, digits, gib, percent, spread

STATES = ("megatron", "fsdp", "bf16")
WAYS = ("none", "op", "full")  # of recomputing, the cheapest first
TIGHT = 0.92  # above this share of what can be allocated, fragmentation decides


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is to be held."""

    model: str = ask("llama-3.1-8b", "text", "preset, or the path of a Hugging Face config.json")
    gpu: str = ask("h100", "text", "GPU kind")
    method: str = ask(
        "full", "choice", "what is trained: everything, or adapters on a frozen (4-bit) base", ("full", "lora", "qlora")
    )
    states: str = ask("fsdp", "choice", "how weights and optimizer states are kept", STATES)
    microbatch: int = ask(1, "whole", "sequences in a microbatch", least=1)
    sequence: int = ask(4096, "whole", "tokens in a sequence", least=1)
    tensor: int = ask(1, "whole", "tensor-parallel ranks", least=1)
    pipeline: int = ask(1, "whole", "pipeline stages", least=1)
    data: int = ask(1, "whole", "data-parallel ranks that share the optimizer (FSDP: everything)", least=1)
    experts: int = ask(1, "whole", "expert-parallel ranks", least=1)
    microbatches: int = ask(1, "whole", "microbatches in a step, with a pipeline", least=1)
    chunks: int = ask(1, "whole", "model chunks per stage (interleaved), with a pipeline", least=1)
    recompute: str = ask("none", "choice", "what is computed again in the backward pass", compute.RECOMPUTE)
    eager: bool = ask(False, "flag", "not compiled, no fused kernels")
    flash: bool = ask(True, "flag", "fused attention; --no-flash keeps the score matrix")
    chunked_loss: bool = ask(False, "flag", "loss computed in chunks: logits never all at once")
    rank: int = ask(8, "whole", "LoRA rank", least=1)
    in_flight: int = ask(0, "whole", "microbatches kept by the fullest stage, if not as in 1F1B")
    sequence_parallel: bool = ask(True, "flag", "norms shared by the tensor-parallel ranks")


@dataclass(frozen=True, slots=True)
class Parts:
    """Bytes on the fullest GPU."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits + self.buffers

    def named(self) -> tuple[tuple[str, float], ...]:
        names = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")
        return tuple((name, getattr(self, name)) for name in names)


@dataclass(frozen=True, slots=True)
class Choice:
    """One way of recomputing: its peak, and the time it costs (1.0: none)."""

    recompute: str
    parts: Parts
    verdict: str
    time: float


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes. verdict: fits, tight or out."""

    inputs: Inputs
    model: Model
    gpu: Gpu
    parts: Parts
    peak: Range
    room: float
    verdict: str
    choices: tuple[Choice, ...]
    warnings: tuple[str, ...]
    figures: tuple[Figure, ...]


def plan(inputs: Inputs, catalog: Catalog) -> MemoryPlan:
    """The peak on the fullest GPU, with every way of recomputing beside it."""
    book = catalog.book()
    model = preset_or_file(inputs.model, book)
    kind = gpu(inputs.gpu, book)
    check_split(model, inputs.tensor, inputs.pipeline, inputs.chunks)
    parts = parts_of(model, inputs)
    peak = Range.around(parts.total, book.number("assumptions.spread.memory"))
    return MemoryPlan(
        inputs,
        model,
        kind,
        parts,
        peak,
        kind.memory,
        verdict(parts.total, kind.memory),
        tuple(_choices(model, inputs, kind, book)),
        tuple(age_warnings(book)),
        tuple(book.used.values()),
    )


def verdict(peak: float, room: float) -> str:
    return "out" if peak > room else "tight" if peak > TIGHT * room else "fits"


def check_split(model: Model, tensor: int, pipeline: int, chunks: int = 1) -> None:
    """Raises UsageProblem where heads or layers cannot be divided so."""
    if model.heads % tensor:
        raise UsageProblem(f"{model.heads} attention heads cannot be shared by {tensor} tensor-parallel ranks")
    if pipeline * chunks > model.layers:
        raise UsageProblem(f"{model.layers} layers cannot make {pipeline} stages of {chunks} chunks")


def _choices(model: Model, inputs: Inputs, kind: Gpu, book: Book) -> list[Choice]:
    rate = rates(kind, book)
    found = []
    base = None
    for way in WAYS:
        parts = parts_of(model, replace(inputs, recompute=way))
        work = compute.Work(
            inputs.microbatch, inputs.sequence, inputs.tensor, way, inputs.method, not inputs.eager, inputs.flash
        )
        time = compute.training(model, work, rate).total
        base = base or time
        found.append(Choice(way, parts, verdict(parts.total, kind.memory), time / base))
    return found


def cheapest_way(model: Model, inputs: Inputs, room: float) -> tuple[str, float]:
    """The first way of recomputing that fits, with its peak; "" and the peak of the last where none does."""
    peak = 0.0
    for way in WAYS:
        peak = parts_of(model, replace(inputs, recompute=way)).total
        if peak < TIGHT * room:
            return way, peak
    return "", peak


def parts_of(model: Model, inputs: Inputs) -> Parts:
    """Bytes by purpose on the fullest GPU: the first pipeline stage, or the last where its logits weigh more."""
    weights, gradients, optimizer, buffers = _states(model, inputs)
    tokens = inputs.microbatch * inputs.sequence
    each = kept_per_token(model, inputs) * tokens
    live = live_layer(model, inputs) * tokens if inputs.recompute == "full" else 0.0
    logits = logits_per_token(model, inputs) * tokens
    kept = each * max(held * layers for layers, held in _stages(model, inputs))
    if inputs.pipeline > 1:
        last = each * _stages(model, inputs)[-1][0]
        logits, kept = (0.0, kept) if kept > last + logits else (logits, last)
    if inputs.chunked_loss:
        live = max(live - logits, 0.0)  # never at the same time
    return Parts(weights, gradients, optimizer, kept + live, logits, buffers)


def _stages(model: Model, inputs: Inputs) -> list[tuple[int, float]]:
    """Layers of each stage, and the microbatches that it keeps. Stages that come out short are the first and last."""
    p = inputs.pipeline
    layers = [-(-model.layers // p)] * p
    ends = [end for i in range(p) for end in (i, p - 1 - i)]
    for end in ends[: sum(layers) - model.layers]:
        layers[end] -= 1
    return [(each, max(1.0, _held(inputs) - i)) for i, each in enumerate(layers)]


def live_layer(model: Model, inputs: Inputs) -> float:
    """Bytes per token of the layer that is being done again: what it keeps, as many gradients, gathered inputs."""
    own = kept_per_token(model, replace(inputs, recompute="none"))
    return 2 * own + (4 * model.hidden if inputs.tensor > 1 and inputs.sequence_parallel else 0)


def _held(inputs: Inputs) -> float:
    """Microbatches whose activations the first stage keeps."""
    if inputs.pipeline == 1:
        return 1.0
    held = float(inputs.in_flight or min(inputs.microbatches, inputs.pipeline))
    return held * (1 + (inputs.pipeline - 1) / (inputs.pipeline * inputs.chunks)) if inputs.chunks > 1 else held


def _states(model: Model, inputs: Inputs) -> tuple[float, float, float, float]:
    """Weights, gradients, optimizer, buffers."""
    local = local_parameters(model, inputs.tensor, inputs.pipeline, inputs.experts)
    shards = inputs.data
    if inputs.method != "full":
        adapter = adapter_parameters(model, inputs.rank) / inputs.tensor / inputs.pipeline
        base = quantized(model, local) if inputs.method == "qlora" else 2.0 * local
        shared = shards if inputs.states == "fsdp" else 1
        buffers = _gathered(model, inputs, 2.0) if shared > 1 else 0.0
        return base / shared + 4 * adapter, 4 * adapter, 8 * adapter, buffers
    if inputs.states == "bf16":
        return 2 * local, 2 * local, 4 * local, 0.0
    if inputs.states == "megatron":
        return 2.0 * local, 4.0 * local, 12.0 * local / shards, 0.0
    if inputs.pipeline > 1:
        # FSDP under a pipeline keeps gathered weights and unreduced gradients (fp32) over all microbatches of a step
        return 4 * local / shards, 4 * local / shards, 8 * local / shards, (2 + 4) * local if shards > 1 else 0.0
    return 4 * local / shards, 4 * local / shards, 8 * local / shards, _gathered(model, inputs, 4.0)


def _gathered(model: Model, inputs: Inputs, gradient: float) -> float:
    """FSDP: two layers and the output layer gathered in bf16, one layer's gradient before it is reduced."""
    if inputs.data == 1:
        return 2.0 * model.layer_parameters / inputs.tensor
    layer = model.layer_parameters / inputs.tensor
    return 2 * (2 * layer + model.vocab * model.hidden / inputs.tensor) + gradient * layer


def local_parameters(model: Model, tensor: int, pipeline: int, experts: int = 1) -> float:
    """Parameters on the fullest GPU before any sharding by data-parallel ranks."""
    stage = -(-model.layers // pipeline)
    experts_of_layer = model.sparse_share * model.experts * model.expert_parameters
    layer = model.layer_parameters - experts_of_layer * (1 - 1 / experts)
    embedding = model.embedding_parameters / (2 if pipeline > 1 and not model.tied else 1)
    return (stage * layer + embedding) / tensor


def quantized(model: Model, local: float) -> float:
    """Bytes: 4 bits and block scales for the layers, bf16 for embedding and output layer.

    A scale for 64 weights takes 0.06 bytes per weight in fp32, 0.02 where scales are quantised too; half-way here."""
    share = model.embedding_parameters / model.parameters
    return local * ((1 - share) * 0.54 + share * 2)


def adapter_parameters(model: Model, rank: int) -> float:
    """LoRA on the query and value projections."""
    widths = 2 * model.hidden + model.query_width + model.kv_width
    return model.layers * rank * widths


def kept_per_token(model: Model, inputs: Inputs) -> float:
    """Bytes that one layer keeps for the backward pass, per token on one tensor-parallel rank."""
    h, f, t = model.hidden, model.ffn * model.experts_active + model.shared_ffn, inputs.tensor
    shared = t if inputs.sequence_parallel else 1
    heads = 2 * (model.query_width + 2 * model.kv_width) + 2 * model.query_width
    if inputs.recompute == "full":
        return 2 * h / shared
    if not inputs.flash and not model.gated:  # Megatron's layer, with dropout
        scores = 0 if inputs.recompute == "selective" else 5 * model.heads * inputs.sequence
        return 10 * h / shared + (24 * h + scores) / t
    if inputs.recompute == "op":
        products = model.query_width + 2 * model.kv_width + h + (2 if model.gated else 1) * f + h
        extra = 3 * h if inputs.eager else 0
        return (2 * h + extra) / shared + (2 * model.query_width + products) / t
    frozen = inputs.method != "full"
    if inputs.eager:
        norms = 12 * h if model.gated else (4 if model.parallel else 8) * h
        ffn = (6 if model.gated else 2) * f + (0 if frozen else 2 * f)
        inputs_kept = 3 * h if frozen else 4 * h  # with the mask of LoRA's dropout
        if inputs.method == "qlora":
            inputs_kept += 6 * h + 2 * f  # 4-bit products keep their inputs (queries, output, feed-forward)
        return (norms + inputs_kept) / shared + (heads + ffn) / t
    ffn = (4 if model.gated else 2) * f + (0 if frozen else 2 * f)
    return 8 * h / shared + (heads + ffn) / t


def logits_per_token(model: Model, inputs: Inputs) -> float:
    each = 2 if inputs.chunked_loss else 14
    return each * model.vocab / inputs.tensor


def answer(of: MemoryPlan) -> Answer:
    inputs, parts = of.inputs, of.parts
    where = f"{of.model.name} ({count(of.model.parameters)} parameters) on {of.gpu.name}"
    word = {"fits": "It fits", "tight": "Tight: fragmentation decides", "out": "Out of memory"}[of.verdict]
    says = [f"{word}: peak {spread(of.peak, gib)} of {gib(of.room)} that a program can allocate."]
    better = next((each for each in of.choices if each.verdict == "fits"), None)
    if of.verdict != "fits" and better and better.recompute != inputs.recompute:
        extra = better.time / next((c.time for c in of.choices if c.recompute == inputs.recompute), 1.0) - 1
        says.append(
            f"With recompute={better.recompute} it fits ({gib(better.parts.total)}), for {percent(extra)} more time."
        )
    elif of.verdict == "out":
        says.append("No way of recomputing makes it fit: shard over more ranks, or take a smaller microbatch.")
    largest = max(parts.named(), key=lambda part: part[1])
    says.append(f"Most of it: {largest[0]}, {gib(largest[1])}.")
    return Answer(
        "memory",
        f"Memory: {where}",
        tuple(says),
        (_sum_table(of), _choice_table(of)),
        (
            Bars(
                "Peak on the fullest GPU, by way of recomputing",
                "GiB",
                tuple((c.recompute, tuple((n, v / 2**30) for n, v in c.parts.named())) for c in of.choices),
                of.room / 2**30,
            ),
        ),
        tuple(_formulas(of)),
        of.warnings,
        of.figures,
        of,
    )


def _sum_table(of: MemoryPlan) -> Table:
    rows = [(name, gib(value), percent(value / of.room)) for name, value in of.parts.named() if value]
    rows.append(("peak", gib(of.parts.total), percent(of.parts.total / of.room)))
    return Table("The sum", ("part", "size", "of the GPU"), tuple(rows), mark=len(rows) - 1)


def _choice_table(of: MemoryPlan) -> Table:
    rows = tuple(
        (c.recompute, gib(c.parts.activations), gib(c.parts.total), c.verdict, f"{digits(c.time)}x") for c in of.choices
    )
    mark = next((i for i, c in enumerate(of.choices) if c.recompute == of.inputs.recompute), None)
    return Table("Gradient checkpointing", ("recompute", "activations", "peak", "", "time"), rows, mark=mark)


def _formulas(of: MemoryPlan) -> list[Formula]:
    inputs, model = of.inputs, of.model
    local = local_parameters(model, inputs.tensor, inputs.pipeline, inputs.experts)
    tokens = inputs.microbatch * inputs.sequence
    kept = kept_per_token(model, inputs)
    stage = -(-model.layers // inputs.pipeline)
    states = of.parts.weights + of.parts.gradients + of.parts.optimizer
    return [
        Formula(
            "states",
            "bytes per parameter * parameters per GPU",
            f"{states / local:.3g} B * {count(local)}",
            gib(states),
        ),
        Formula(
            "activations",
            "kept per token and layer * b s * L/p * microbatches held",
            f"{kept:,.0f} B * {tokens:,} * {stage} * {_held(inputs):.3g}"
            + (" + one live layer" if inputs.recompute == "full" else ""),
            gib(of.parts.activations),
        ),
        Formula(
            "logits",
            "bytes per word * V/t * b s",
            f"{logits_per_token(model, inputs) / model.vocab * inputs.tensor:.0f} B * {model.vocab:,}/{inputs.tensor} * {tokens:,}",
            gib(of.parts.logits),
        ),
    ]
