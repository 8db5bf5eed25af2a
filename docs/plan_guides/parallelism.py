"""Tensor or pipeline parallelism, for serving and for training."""

from __future__ import annotations

from plan_guides.words import table
from whichrank.plan import job, pipeline, tensor
from whichrank.plan.catalog import Catalog
from whichrank.plan.quantities import Range, digits, gib, percent, seconds
from whichrank.plan.schedules import simulate


def parallelism(figures: Catalog) -> str:
    return f"""# Tensor or pipeline parallelism, for serving and for training

Both split a model over GPUs. Tensor parallelism splits every layer and talks in every layer; pipeline parallelism splits the stack of layers, hardly talks, and idles. All numbers come from `whichrank plan tp`, `plan pipeline`, `plan memory` and `plan job`.

## Training: what tensor parallelism costs

Llama 3.1 8B on H100, microbatches of one sequence of 8,192 tokens:

{_training_scaling(figures)}

Efficiency falls for two reasons: communication, and matrices that become too narrow to keep a GPU busy. Past the node (t = 16) every layer's all-reduce crosses the network as well.

## Training: what a pipeline costs

The bubble of 1F1B, simulated with transfers, by stages and microbatches in a step:

{_bubbles(figures)}

Interleaving divides it, zero-bubble schedules nearly remove it:

{_schedules(figures)}

{_needed(figures)}

## Training: the same GPUs, split differently

Llama 3.1 70B on 64 H100 with 128 sequences of 8,192 tokens in a step:

{_layouts(figures)}

The order is a rule of thumb worth keeping: tensor parallelism up to what memory asks for and never beyond the node, then a pipeline with at least four microbatches per stage, then data parallelism with all the rest.

## Serving: tensor parallelism buys room for the cache

Llama 3.1 70B in FP8, 128 tokens in and 2,048 out, as many requests as fit:

{_serving(figures)}

{_serving_words(figures)}

## Serving: latency

One request at a time, Llama 3.1 8B in bf16 on H100, 512 tokens in and 128 out:

{_latency(figures)}

For latency t = 2 or 4 helps; past that, launching kernels and small all-reduces dominate. A pipeline does nothing for the latency of a single request: its stages work one after the other. It helps throughput where the links between GPUs are slow (PCIe cards), because it hardly uses them.
"""


def _training_scaling(figures: Catalog) -> str:
    found = tensor.plan(
        tensor.Inputs(sequence=8192, recompute="op", data=8, states="fsdp", sizes=(1, 2, 4, 8, 16)), figures
    )
    rows = [
        (str(r.tensor), digits(r.per_gpu.likely), percent(r.efficiency), percent(r.communication), gib(r.memory), r.fits)
        for r in found.rows
    ]  # fmt: skip
    return table(("t", "tokens/s/GPU", "efficiency", "communication", "memory/GPU", ""), rows)


def _bubbles(figures: Catalog) -> str:
    times = pipeline.durations(pipeline.Inputs(), figures.book())
    rows = []
    for stages in (4, 8, 16):
        runs = (simulate("1f1b", stages, factor * stages, times) for factor in (1, 2, 4, 8))
        rows.append((str(stages), *(percent(run.bubble) for run in runs)))
    return table(("stages", "m = p", "m = 2p", "m = 4p", "m = 8p"), rows)


def _schedules(figures: Catalog) -> str:
    found = pipeline.plan(pipeline.Inputs(stages=8, microbatches=32, chunks=4), figures)
    rows = [
        (row.schedule, percent(row.of_total), percent(row.simulated), f"{row.speed.likely:.2f}x", digits(row.held))
        for row in found.rows
    ]
    return table(("8 stages, 32 microbatches", "closed form", "simulated", "against 1F1B", "microbatches held"), rows)


def _needed(figures: Catalog) -> str:
    rows = pipeline.plan(pipeline.Inputs(stages=8, microbatches=32, target=Range.exactly(0.05)), figures).rows
    told = ", ".join(f"{row.schedule} {row.needed or 'never'}" for row in rows)
    return f"Microbatches that 8 stages need for a bubble below 5 %: {told}."


def _layouts(figures: Catalog) -> str:
    rows = []
    for t, p, d in ((8, 1, 8), (8, 2, 4), (4, 4, 4), (4, 2, 8), (2, 8, 4), (8, 8, 1)):
        inputs = job.Inputs(
            model="llama-3.1-70b", tensor=t, pipeline=p, data=d, microbatches=128 // d, recompute="selective"
        )
        found = job.plan(inputs, figures)
        rows.append(
            (f"t{t} p{p} d{d}", str(128 // d), percent(found.bubble), seconds(found.step.likely), percent(found.mfu),
             gib(found.parts.total), found.verdict)
        )  # fmt: skip
    return table(("layout", "microbatches", "bubble", "step", "MFU", "memory/GPU", ""), rows)


def _served(figures: Catalog, kind: str) -> tensor.TensorPlan:
    return tensor.plan(
        tensor.Inputs(
            model="llama-3.1-70b", gpu=kind, mode="serving", precision="fp8", input_tokens=128, output_tokens=2048
        ),
        figures,
    )


def _serving(figures: Catalog) -> str:
    rows = []
    for kind in ("h100", "h200"):
        for row in _served(figures, kind).rows:
            cells = (
                f"{row.sequences:,.0f}",
                digits(row.throughput.likely),
                digits(row.per_gpu.likely),
                f"{row.speedup:.1f}x",
            )
            rows.append((f"{kind}, t = {row.tensor}", *cells))
    return table(("GPU", "sequences", "tokens/s", "per GPU", "against t = 1"), rows)


def _serving_words(figures: Catalog) -> str:
    small, large = _served(figures, "h100"), _served(figures, "h200")
    one, two = small.rows[0], small.rows[1]
    return (
        f"On an 80 GB card the weights leave room for {one.sequences:.0f} sequences; a second card makes it "
        f"{two.sequences:.0f}, and throughput grows {two.speedup:.1f}-fold. On the 141 GB card t = 1 already has room, "
        f"and t = {large.cheapest} is best per GPU. Measured: 745 and 5,822 tokens/s (H100, t = 1 and 2), "
        "4,351, 8,450 and 13,439 (H200, t = 1, 2, 4). So: the smallest t at which the cache has room."
    )


def _latency(figures: Catalog) -> str:
    found = tensor.plan(
        tensor.Inputs(mode="serving", input_tokens=512, output_tokens=128, batch=1, sizes=(1, 2, 4, 8)), figures
    )
    rows = [
        (str(r.tensor), seconds(r.latency), seconds(r.seconds.likely), percent(r.communication)) for r in found.rows
    ]
    return table(("t", "request", "per token", "communication"), rows)
