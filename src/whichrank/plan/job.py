"""plan job: a whole layout, checked before it starts: memory, bubble, communication, checkpoints, failures, limits.

A step is the pipeline's simulated time over its microbatches, plus the gradients' reduction that is not hidden and the
optimizer. Each part is the other calculators' own: memory, compute, tensor, schedules, storage, timeout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whichrank.errors import UsageProblem
from whichrank.plan import compute, memory, storage, timeout, traffic
from whichrank.plan.answer import Answer, Bars, Formula, Table, age_warnings
from whichrank.plan.catalog import Book, Catalog, Figure
from whichrank.plan.collectives import Links, links
from whichrank.plan.hardware import Gpu, gpu, rates
from whichrank.plan.inputs import ask
from whichrank.plan.models import Model, preset_or_file
from whichrank.plan.passes import Times, tuned
from whichrank.plan.quantities import Range, count, digits, gib, percent, seconds, si, spread
from whichrank.plan.schedules import MOST_PASSES, SCHEDULES, simulate
from whichrank.plan.tensor_rows import OPTIMIZER_BYTES

HIDDEN = 0.7  # share of the gradients' reduction that the backward pass hides (assumed)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Model, cluster and layout: t * p * d GPUs; experts are spread over data-parallel ranks."""

    model: str = ask("llama-3.1-70b", "text", "preset, or the path of a Hugging Face config.json")
    gpu: str = ask("h100", "text", "GPU kind")
    gpus: int = ask(0, "whole", "GPUs in all (default: t * p * d)")
    tensor: int = ask(8, "whole", "tensor-parallel ranks (t)", least=1)
    pipeline: int = ask(4, "whole", "pipeline stages (p)", least=1)
    data: int = ask(8, "whole", "data-parallel ranks (d)", least=1)
    experts: int = ask(1, "whole", "expert-parallel ranks (e), a divisor of d", least=1)
    microbatches: int = ask(32, "whole", "microbatches in a step", least=1)
    microbatch: int = ask(1, "whole", "sequences in a microbatch", least=1)
    sequence: int = ask(8192, "whole", "tokens in a sequence", least=1)
    schedule: str = ask("1f1b", "choice", "pipeline schedule", SCHEDULES)
    chunks: int = ask(1, "whole", "model chunks per stage, interleaved", least=1)
    overlap: bool = ask(True, "flag", "interleaved: transfers beside the passes, as Megatron does by default")
    recompute: str = ask("selective", "choice", "what is computed again in the backward pass", compute.RECOMPUTE)
    states: str = ask("megatron", "choice", "distributed optimizer, or everything sharded", ("megatron", "fsdp"))
    precision: str = ask("bf16", "choice", "of the matrix products", ("bf16", "fp8"))
    nic: Range | None = ask(None, "rate", "network bandwidth per GPU", least=1)
    file_system: Range | None = ask(None, "rate", "bandwidth of the shared file system", least=1)
    tokens: Range | None = ask(None, "count", "tokens to train on", least=1)


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Seconds and bytes. `step` is a range; MFU counts the model's own FLOP."""

    inputs: Inputs
    model: Model
    gpu: Gpu
    gpus: int
    nodes: int
    parts: memory.Parts
    verdict: str
    bubble: float
    step: Range
    exposed: float  # seconds of the gradients' reduction that nothing hides
    optimizer: float  # seconds
    tokens_per_second: Range
    mfu: float
    collectives: tuple[traffic.Collective, ...]
    checkpoint: storage.Checkpoint
    failures: storage.Failures
    first_timeout: float
    steady_timeout: float
    days: Range | None
    times: Times
    warnings: tuple[str, ...]
    figures: tuple[Figure, ...]


def plan(inputs: Inputs, catalog: Catalog) -> JobPlan:
    """The layout's numbers and warnings; where the network is a range, its ends widen the step's.

    Raises:
        UsageProblem: the degrees do not multiply to the GPUs, or do not divide the model.
    """
    found = _plan(inputs, catalog)
    if inputs.nic is None or inputs.nic.certain:
        return found
    slow, fast = (_plan(replace(inputs, nic=Range.exactly(end)), catalog) for end in (inputs.nic.low, inputs.nic.high))
    return replace(
        found,
        step=Range(fast.step.low, found.step.likely, slow.step.high),
        tokens_per_second=Range(
            slow.tokens_per_second.low, found.tokens_per_second.likely, fast.tokens_per_second.high
        ),
        days=Range(fast.days.low, found.days.likely, slow.days.high)
        if found.days and slow.days and fast.days
        else None,
    )


def _plan(inputs: Inputs, catalog: Catalog) -> JobPlan:
    """With one bandwidth of the network."""
    book = catalog.book()
    model = preset_or_file(inputs.model, book)
    kind = gpu(inputs.gpu, book, inputs.precision)
    gpus = _checked(inputs, model)
    on = links(kind, book, inputs.nic.likely if inputs.nic else None)
    times = _times(model, inputs, kind, on, book)
    run = simulate(inputs.schedule, inputs.pipeline, inputs.microbatches, times, inputs.chunks)
    parts = memory.parts_of(model, _memory(inputs, max(run.held)))
    sent = traffic.in_a_step(model, layout(inputs), kind, on)
    exposed, optimizer = _after_the_last(model, inputs, sent, rates(kind, book).memory)
    step = Range.around(run.seconds + exposed + optimizer, book.number("assumptions.spread.training"))
    batch = inputs.microbatches * inputs.microbatch * inputs.data * inputs.sequence
    work = compute.Work(inputs.microbatch, inputs.sequence)
    saved = storage.checkpoint(model.parameters, gpus // inputs.data, book, None, inputs.file_system)
    nodes = -(-gpus // kind.node)
    broken = storage.failures(nodes, saved.seconds.likely, book)
    limits = timeout.plan(_timeout(inputs, gpus, sent, saved), catalog)
    rate = Range.exactly(batch) / step
    found = JobPlan(
        inputs,
        model,
        kind,
        gpus,
        nodes,
        parts,
        memory.verdict(parts.total, kind.memory),
        run.bubble,
        step,
        exposed,
        optimizer,
        rate,
        compute.model_flop(model, work) * batch / step.likely / gpus / kind.peak,
        tuple(sent),
        saved,
        broken,
        limits.first,
        limits.steady,
        _days(inputs, rate, broken),
        times,
        (),
        tuple(book.used.values()),
    )
    return replace(found, warnings=(*_warnings(found), *age_warnings(book)))


def _after_the_last(
    model: Model, inputs: Inputs, sent: list[traffic.Collective], bandwidth: float
) -> tuple[float, float]:
    """Seconds of the gradients' reduction that nothing hides, and of the optimizer, after the last microbatch."""
    reduced = sum(each.seconds * each.times for each in sent if each.name.startswith("gradients"))
    local = memory.local_parameters(model, inputs.tensor, inputs.pipeline, inputs.experts) / inputs.data
    return (1 - HIDDEN) * reduced, OPTIMIZER_BYTES * local / bandwidth


def _days(inputs: Inputs, rate: Range, broken: storage.Failures) -> Range | None:
    """For all tokens, with what failures and checkpoints take."""
    if inputs.tokens is None:
        return None
    goodput = Range(1 - broken.lost.high, 1 - broken.lost.likely, 1 - broken.lost.low)
    return inputs.tokens / (rate * goodput) * (1 / storage.DAY)


def _checked(inputs: Inputs, model: Model) -> int:
    """How many GPUs the layout takes."""
    gpus = inputs.tensor * inputs.pipeline * inputs.data
    if inputs.gpus and inputs.gpus != gpus:
        raise UsageProblem(
            f"t * p * d = {inputs.tensor} * {inputs.pipeline} * {inputs.data} = {gpus}, not {inputs.gpus} GPUs"
        )
    if inputs.data % inputs.experts:
        raise UsageProblem(f"e = {inputs.experts} has to divide d = {inputs.data}")
    if inputs.experts > 1 and model.experts % inputs.experts:
        raise UsageProblem(f"{model.experts} expert(s) cannot be spread over e = {inputs.experts} ranks")
    memory.check_split(model, inputs.tensor, inputs.pipeline, inputs.chunks)
    if 3 * inputs.pipeline * inputs.microbatches * inputs.chunks > MOST_PASSES:
        raise UsageProblem("that many stages and microbatches are too many to simulate")
    return gpus


def _times(model: Model, inputs: Inputs, kind: Gpu, on: Links, book: Book) -> Times:
    """Durations of a microbatch on the fullest stage; the output layer counts on the average."""
    rate = rates(kind, book)
    p = inputs.pipeline
    work = compute.Work(inputs.microbatch, inputs.sequence, inputs.tensor, inputs.recompute)
    layers = -(-model.layers // p)
    forward, backward, weights = compute.stage(model, work, rate, layers)
    head = compute.training(model, work, rate, 0).total / p
    sent = traffic.tensor_seconds(model, work, on) * layers / model.layers
    transfer = traffic.handed_on(model, work, p, kind, on)[2] if p > 1 else 0.0
    times = Times(
        forward + sent * 0.4 + head / 3,
        backward + sent * 0.6 + head * 2 / 3,
        weights,
        transfer,
        overlap=inputs.overlap,
    )
    return tuned(times, book)


def _memory(inputs: Inputs, held: float) -> memory.Inputs:
    return memory.Inputs(
        states=inputs.states,
        microbatch=inputs.microbatch,
        sequence=inputs.sequence,
        tensor=inputs.tensor,
        pipeline=inputs.pipeline,
        data=inputs.data,
        experts=inputs.experts,
        microbatches=inputs.microbatches,
        chunks=1,
        recompute=inputs.recompute,
        in_flight=-(-round(held * 1000) // 1000),
    )


def layout(inputs: Inputs) -> traffic.Layout:
    """The degrees and the microbatch, as traffic.py wants them."""
    work = compute.Work(inputs.microbatch, inputs.sequence, inputs.tensor, inputs.recompute)
    return traffic.Layout(
        inputs.tensor,
        inputs.pipeline,
        inputs.data,
        inputs.experts,
        inputs.microbatches,
        inputs.chunks,
        work,
        inputs.schedule.startswith("zb"),
    )


def _timeout(inputs: Inputs, gpus: int, sent: list[traffic.Collective], saved: storage.Checkpoint) -> timeout.Inputs:
    largest = max((each.size for each in sent), default=2.0**30)
    return timeout.Inputs(
        gpus=gpus,
        gpu=inputs.gpu,
        nic=inputs.nic,
        all_reduce=Range.exactly(largest),
        checkpoint=Range.exactly(saved.size),
        writers=max(1, gpus // inputs.data),
        file_system=inputs.file_system,
        groups=2 + sum(degree > 1 for degree in (inputs.tensor, inputs.pipeline, inputs.data, inputs.experts)),
    )


def _warnings(of: JobPlan) -> list[str]:
    inputs, model, kind = of.inputs, of.model, of.gpu
    found = []
    if of.verdict != "fits":
        more = "recompute more, " if inputs.recompute in ("none", "selective") else ""
        found.append(
            f"memory: {of.verdict}, {gib(of.parts.total)} of {gib(kind.memory)}; {more}more t or p, or fewer sequences"
        )
    if inputs.tensor > kind.domain:
        found.append(
            f"t = {inputs.tensor} does not stay inside the NVLink domain of {kind.domain}: every layer waits for it"
        )
    elif kind.domain % inputs.tensor:
        found.append(f"t = {inputs.tensor} does not divide the {kind.domain} GPUs of a node: some groups cross nodes")
    if model.kv_heads % inputs.tensor:
        found.append(f"{model.kv_heads} key-value heads for t = {inputs.tensor}: they are copied")
    if model.layers % inputs.pipeline:
        found.append(f"{model.layers} layers over p = {inputs.pipeline} stages: uneven, all wait for the fullest")
    if inputs.pipeline > 1 and inputs.microbatches < 4 * inputs.pipeline:
        found.append(
            f"{inputs.microbatches} microbatches for {inputs.pipeline} stages: the bubble is {percent(of.bubble)}; "
            f"{4 * inputs.pipeline} or more keep it small"
        )
    if inputs.schedule == "interleaved" and inputs.chunks == 1:
        found.append("interleaved with one chunk per stage is 1F1B: --chunks 2 or more")
    if of.checkpoint.seconds.likely > 0.02 * of.failures.daly:
        found.append(
            f"checkpoints stop training for {seconds(of.checkpoint.seconds.likely)} each: write them asynchronously, or "
            "to node-local disks first"
        )
    if of.failures.lost.likely > 0.1:
        found.append(f"{percent(of.failures.lost.likely)} of the time goes to checkpoints, failures and restarts")
    if inputs.file_system is None:
        found.append("the file system's bandwidth is an assumption: give --file-system for a real checkpoint time")
    if not 200_000 <= of.tokens_per_second.likely * of.step.likely <= 32e6:
        found.append(
            f"a step trains on {count(of.tokens_per_second.likely * of.step.likely)} tokens: unusual, check the batch"
        )
    if model.experts > 1:
        found.append("experts: checked against no measured point; load that is uneven between experts costs more")
    return found


def answer(of: JobPlan) -> Answer:
    inputs = of.inputs
    layout = f"t{inputs.tensor} p{inputs.pipeline} d{inputs.data}" + (
        f" e{inputs.experts}" if inputs.experts > 1 else ""
    )
    says = [
        f"Memory {of.verdict}: {gib(of.parts.total)} of {gib(of.gpu.memory)}. Step {spread(of.step, seconds)}, "
        f"{spread(of.tokens_per_second, digits)} tokens/s, {percent(of.mfu)} MFU.",
        f"Failures: {spread(of.failures.per_week, digits)} a week on {of.nodes} nodes; checkpoint every "
        f"{seconds(of.failures.daly)} (Daly; Young {seconds(of.failures.young)}); {percent(of.failures.lost.likely)} of the "
        "time is lost to them.",
        f"Timeouts: {seconds(of.first_timeout)} until the first step is done, {seconds(of.steady_timeout)} after it.",
    ]
    if of.days:
        says.append(
            f"{count(inputs.tokens.likely if inputs.tokens else 0)} tokens take {spread(of.days, digits)} days."
        )
    batch = inputs.microbatches * inputs.microbatch * inputs.data
    says.append(
        f"Taken as: {inputs.sequence:,} tokens a sequence, {inputs.microbatch} in a microbatch, {inputs.microbatches} "
        f"microbatches ({count(batch)} sequences, {count(batch * inputs.sequence)} tokens a step), {inputs.precision} products, "
        f"{inputs.recompute} recomputation."
    )
    return Answer(
        "job",
        f"Job: {of.model.name} on {of.gpus:,} x {of.gpu.name}, {layout}",
        tuple(says),
        (_checks_table(of), _traffic_table(of)),
        (
            Bars("Memory on the fullest GPU", "GiB",
                 (("GPU", tuple((n, v / 2**30) for n, v in of.parts.named())),), of.gpu.memory / 2**30),
        ),
        _formulas(of),
        of.warnings,
        of.figures,
        of,
    )  # fmt: skip


def _checks_table(of: JobPlan) -> Table:
    inputs = of.inputs
    rows = (
        ("memory", f"{gib(of.parts.total)} of {gib(of.gpu.memory)}", of.verdict),
        ("bubble", f"{percent(of.bubble)} of total", f"{inputs.schedule}, {inputs.microbatches} microbatches"),
        ("step", spread(of.step, seconds), f"{percent(of.mfu)} MFU"),
        ("checkpoint", spread(of.checkpoint.seconds, seconds), si(of.checkpoint.size, "B")),
        ("failures a week", spread(of.failures.per_week, digits), f"one every {seconds(of.failures.between.likely)}"),
        ("checkpoint interval", seconds(of.failures.daly), f"Young {seconds(of.failures.young)}"),
        ("time lost", percent(of.failures.lost.likely), "checkpoints, repeated work, restarts"),
        ("timeout, first step", seconds(of.first_timeout), "communicators, compilation, checkpoint"),
        ("timeout, steady", seconds(of.steady_timeout), "whichrank plan timeout explains it"),
    )
    return Table("The layout", ("", "value", "note"), rows, left=(0, 2))


def _traffic_table(of: JobPlan) -> Table:
    rows = tuple(
        (
            each.name,
            si(each.size, "B"),
            str(each.ranks),
            each.where,
            seconds(each.seconds),
            f"{each.times:,}",
            seconds(each.seconds * each.times),
            "mostly hidden" if each.hidden else "exposed",
        )
        for each in of.collectives
    )
    columns = ("traffic", "size", "ranks", "over", "each", "a step", "in all", "")
    return Table("Collectives in a step", columns, rows, left=(0, 3, 7))


def _formulas(of: JobPlan) -> tuple[Formula, ...]:
    inputs, t = of.inputs, of.times
    stall, mean = of.checkpoint.seconds.likely, of.failures.between.likely
    return (
        Formula(
            "stage",
            "F + B + W of a microbatch",
            f"{seconds(t.forward)} + {seconds(t.backward)} + {seconds(t.weights)}",
            seconds(t.work),
        ),
        Formula(
            "step",
            "m (F + B + W) / (1 - bubble) + exposed gradients + optimizer",
            f"{inputs.microbatches} * {seconds(t.work)} / (1 - {of.bubble:.3f}) + {seconds(of.exposed)} + {seconds(of.optimizer)}",
            seconds(of.step.likely),
        ),
        Formula("failures", "rate * nodes", f"{of.failures.per_week.likely / 7 / of.nodes:.3g} a node-day * {of.nodes}",
                f"{digits(of.failures.per_week.likely)} a week"),
        Formula("interval (Young)", "sqrt(2 C M)", f"sqrt(2 * {seconds(stall)} * {seconds(mean)})",
                seconds(of.failures.young)),
    )  # fmt: skip
