"""plan pipeline: how much of the time a pipeline's stages idle, and how many microbatches it takes to mend that.

Two definitions are in use and both are printed: of ideal time, (p-1)/m for 1F1B, and of total time, (p-1)/(m+p-1).
Closed forms are the headline; they leave out transfers and real durations, so an event simulator (schedules.py) runs
the schedule and its number stands beside them: 1F1B comes out 4 to 20 % above the closed form, interleaved more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whichrank.errors import UsageProblem
from whichrank.plan import compute, schedules, traffic
from whichrank.plan.answer import Answer, Block, Chart, Formula, Lines, Schedule, Series, Table, age_warnings
from whichrank.plan.catalog import Book, Catalog, Figure
from whichrank.plan.collectives import links
from whichrank.plan.hardware import gpu, rates
from whichrank.plan.inputs import ask
from whichrank.plan.memory import check_split
from whichrank.plan.models import preset_or_file
from whichrank.plan.passes import Times, tuned
from whichrank.plan.quantities import Range, digits, percent, seconds
from whichrank.plan.schedules import MOST_PASSES, SCHEDULES, Run, closed_form, simulate

DRAWN = 16 * 64  # stages x microbatches that a chart can show
# bubble in units of B for T_F = T_B = T_W, and activation memory against 1F1B's (Qi et al. 2024)
FAMILY = (
    ("1F1B", "B", "1x"),
    ("ZB-1p", "B/3", "1x"),
    ("ZB-2p", "0", "2x"),
    ("ZB-V", "0", "1x"),
    ("V-Half", "B/2", "1/2x"),
    ("V-Min", "2B/3", "1/3x"),
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """A pipeline. Durations come from a model and GPU, or are given; else F, B and W take 10 ms each."""

    stages: int = ask(8, "whole", "pipeline stages", least=1)
    microbatches: int = ask(32, "whole", "microbatches in a step", least=1)
    chunks: int = ask(2, "whole", "model chunks per stage, interleaved", least=1)
    target: Range = ask(Range.exactly(0.05), "share", "bubble to get below, of the total time")
    forward: Range | None = ask(None, "time", "forward pass of a microbatch on a stage")
    backward: Range | None = ask(None, "time", "its backward pass for inputs")
    weights: Range | None = ask(None, "time", "its backward pass for weights")
    transfer: Range | None = ask(None, "time", "handing activations to the next stage")
    overlap: bool = ask(False, "flag", "interleaved: transfers beside the passes (Megatron's overlap_p2p_comm)")
    model: str = ask("", "text", "preset or config.json: durations from the compute model")
    gpu: str = ask("h100", "text", "GPU kind, with --model")
    tensor: int = ask(8, "whole", "tensor-parallel ranks in a stage, with --model", least=1)
    microbatch: int = ask(1, "whole", "sequences in a microbatch, with --model", least=1)
    sequence: int = ask(4096, "whole", "tokens in a sequence, with --model", least=1)


@dataclass(frozen=True, slots=True)
class Row:
    """A schedule: closed forms of both definitions, what the simulator found, and what it takes to reach the target.

    `speed` is throughput against 1F1B. `waiting`: exposed transfers' share of the time, part of `simulated`."""

    schedule: str
    of_ideal: float
    of_total: float
    simulated: float
    waiting: float
    seconds: float
    speed: Range
    held: float
    needed: int | None


@dataclass(frozen=True, slots=True)
class More:
    """The same microbatches over other numbers of stages: 1F1B, simulated."""

    stages: int
    bubble: float
    gpu_seconds: float  # against the given number of stages, per step


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    inputs: Inputs
    times: Times
    rows: tuple[Row, ...]
    more: tuple[More, ...]
    runs: tuple[Run, ...]
    warnings: tuple[str, ...]
    figures: tuple[Figure, ...]


def plan(inputs: Inputs, catalog: Catalog) -> PipelinePlan:
    """Every schedule on the same pipeline.

    Raises:
        UsageProblem: too large to simulate, or a model that does not divide so.
    """
    p, m = inputs.stages, inputs.microbatches
    if p * m * 3 > MOST_PASSES:
        raise UsageProblem(f"{p} stages x {m} microbatches are too many to simulate; at most {MOST_PASSES // 3:,}")
    book = catalog.book()
    times = durations(inputs, book)
    chosen = [s for s in SCHEDULES if s != "interleaved" or (inputs.chunks > 1 and m % p == 0 and p > 1)]
    runs = tuple(simulate(s, p, m, times, inputs.chunks) for s in chosen)
    band = book.number("assumptions.spread.pipeline")
    rows = tuple(_row(run, runs[0], inputs, times, band) for run in runs)
    warnings = [*age_warnings(book)]
    if "interleaved" not in chosen:
        why = "one chunk per stage" if inputs.chunks < 2 else f"{m} microbatches are no multiple of {p} stages"
        warnings.append(f"interleaved is left out: {why}")
    if any(each and not each.certain for each in (inputs.forward, inputs.backward, inputs.weights, inputs.transfer)):
        warnings.append("durations that are ranges are simulated at their middle")
    if m < p:
        warnings.append(f"fewer microbatches ({m}) than stages ({p}): most stages idle most of the time")
    more = tuple(_more(inputs, times, runs[0]))
    return PipelinePlan(inputs, times, rows, more, runs, tuple(warnings), tuple(book.used.values()))


def durations(inputs: Inputs, book: Book) -> Times:
    """Of a microbatch's passes: given ones win over the model's."""
    if inputs.model:
        forward, backward, weights, transfer = _modelled(inputs, book)
    else:
        forward = backward = weights = 10e-3
        transfer = 0.2e-3
    given = (inputs.forward, inputs.backward, inputs.weights, inputs.transfer)
    own = [
        each.likely if each else had for each, had in zip(given, (forward, backward, weights, transfer), strict=True)
    ]
    if not all(value > 0 for value in own[:3]):
        raise UsageProblem("forward, backward and weights need times above zero")
    return tuned(Times(own[0], own[1], own[2], own[3], overlap=inputs.overlap), book)


def _modelled(inputs: Inputs, book: Book) -> tuple[float, float, float, float]:
    model = preset_or_file(inputs.model, book)
    check_split(model, inputs.tensor, inputs.stages, inputs.chunks)
    kind = gpu(inputs.gpu, book)
    on = links(kind, book)
    rate = rates(kind, book)
    work = compute.Work(inputs.microbatch, inputs.sequence, inputs.tensor)
    _, _, transfer = traffic.handed_on(model, work, inputs.stages, kind, on)
    return *compute.stage(model, work, rate, -(-model.layers // inputs.stages)), transfer


def _row(run: Run, first: Run, inputs: Inputs, times: Times, band: float) -> Row:
    p, m = inputs.stages, inputs.microbatches
    ideal = closed_form(run.schedule, p, m, times, inputs.chunks)
    speed = Range.exactly(1.0) if run is first else Range.around(first.seconds / run.seconds, band)
    return Row(
        run.schedule,
        ideal,
        ideal / (1 + ideal),
        run.bubble,
        _waiting(run, times, p, inputs.chunks),
        run.seconds,
        speed,
        max(run.held),
        needed(run.schedule, p, times, inputs.target.likely, inputs.chunks),
    )


def _waiting(run: Run, times: Times, stages: int, chunks: int) -> float:
    """Exposed transfers' share: what passes took beyond their work, on the average stage."""
    per_chunk = chunks if run.schedule == "interleaved" else 1
    work = {"F": times.forward, "B": times.backward, "W": times.weights, "BW": times.backward + times.weights}
    extra = sum(p.end - p.start - work[p.kind] / per_chunk for p in run.passes)
    return extra / stages / run.seconds


def needed(schedule: str, stages: int, times: Times, target: float, chunks: int = 1) -> int | None:
    """Microbatches, a multiple of the stages, until the simulated bubble is at most `target`; None: never."""
    fits = MOST_PASSES // (3 * stages * stages * chunks)
    low, high = 0, 1
    while simulate(schedule, stages, high * stages, times, chunks).bubble > target:
        low, high = high, high * 2
        if high > min(fits, 64):
            return None
    while high - low > 1:
        middle = (low + high) // 2
        found = simulate(schedule, stages, middle * stages, times, chunks).bubble
        low, high = (low, middle) if found <= target else (middle, high)
    return high * stages


def _more(inputs: Inputs, times: Times, now: Run) -> list[More]:
    """Half, the same and twice the stages: the same model, so each stage's work shrinks as stages are added."""
    found = []
    for stages in (inputs.stages // 2, inputs.stages, 2 * inputs.stages, 4 * inputs.stages):
        if stages < 1 or stages * inputs.microbatches * 3 > MOST_PASSES:
            continue
        part = inputs.stages / stages
        scaled = replace(
            times, forward=times.forward * part, backward=times.backward * part, weights=times.weights * part
        )
        run = simulate("1f1b", stages, inputs.microbatches, scaled)
        found.append(More(stages, run.bubble, run.seconds * stages / (now.seconds * inputs.stages)))
    return found


def answer(of: PipelinePlan) -> Answer:
    inputs, first = of.inputs, of.rows[0]
    p, m = inputs.stages, inputs.microbatches
    target = inputs.target.likely
    says = [
        f"1F1B idles {percent(first.of_ideal)} of ideal time, which is {percent(first.of_total)} of total time; "
        f"simulated with transfers {percent(first.simulated)} of total."
    ]
    says.append(
        f"Below {percent(target)} takes {first.needed} microbatches with 1F1B."
        if first.needed
        else f"1F1B does not get below {percent(target)} with 64 microbatches per stage: transfers alone cost "
        f"{percent(first.waiting)}."
    )
    best = max(of.rows, key=lambda row: row.speed.likely)
    if best is not first:
        says.append(
            f"Fastest: {best.schedule}, {best.speed.likely:.2f}x of 1F1B ({best.speed.low:.2f} to {best.speed.high:.2f}), "
            f"holding activations of {digits(best.held)} microbatches instead of {digits(first.held)}."
        )
    if twice := next((more for more in of.more if more.stages == 2 * p), None):
        says.append(
            f"{2 * p} stages with the same {m} microbatches: bubble {percent(twice.bubble)}, "
            f"{percent(twice.gpu_seconds - 1)} more GPU time per step."
        )
    return Answer(
        "pipeline",
        f"Pipeline: {p} stages, {m} microbatches",
        tuple(says),
        (_schedules_table(of), _more_table(of), _family_table()),
        _charts(of),
        _formulas(of),
        of.warnings,
        of.figures,
        replace(of, runs=()),
    )


def _schedules_table(of: PipelinePlan) -> Table:
    rows = tuple(
        (
            row.schedule,
            percent(row.of_ideal),
            percent(row.of_total),
            percent(row.simulated),
            percent(row.waiting),
            seconds(row.seconds),
            f"{row.speed.likely:.3f}",
            digits(row.held),
            str(row.needed) if row.needed else "-",
        )
        for row in of.rows
    )
    columns = (
        "schedule",
        "of ideal",
        "of total",
        "simulated",
        "transfers",
        "step",
        "x 1F1B",
        "held",
        f"for {percent(of.inputs.target.likely)}",
    )
    note = (
        "of ideal, of total: closed forms. simulated: of total, exposed transfers included. "
        f"held: microbatches on the fullest stage. for {percent(of.inputs.target.likely)}: microbatches needed"
    )
    return Table("Bubble", columns, rows, note)


def _more_table(of: PipelinePlan) -> Table:
    rows = tuple((str(more.stages), percent(more.bubble), f"{more.gpu_seconds:.2f}x") for more in of.more)
    title = f"Other numbers of stages, the same {of.inputs.microbatches} microbatches, 1F1B"
    mark = next((i for i, more in enumerate(of.more) if more.stages == of.inputs.stages), None)
    return Table(title, ("stages", "bubble", "GPU time"), rows, mark=mark)


def _family_table() -> Table:
    return Table("The family, if F, B and W take as long", ("schedule", "bubble", "activations"), FAMILY)


def _charts(of: PipelinePlan) -> tuple[Chart, ...]:
    p = of.inputs.stages
    charts: list[Chart] = []
    series = []
    for row in of.rows:
        points = []
        for factor in (1, 2, 3, 4, 6, 8):
            m = factor * p
            if p * m * 3 <= MOST_PASSES // 3:
                points.append((m, 100 * simulate(row.schedule, p, m, of.times, of.inputs.chunks).bubble))
        series.append(Series(row.schedule, tuple(points)))
    charts.append(Lines("Bubble by microbatches", "microbatches", "% of total", tuple(series)))
    if p * of.inputs.microbatches <= DRAWN:
        charts += [_drawn(run) for run in of.runs]
    return tuple(charts)


def _drawn(run: Run) -> Schedule:
    lanes = tuple(f"stage {i}" for i in range(len(run.held)))
    blocks = tuple(
        Block(each.stage, each.start, each.end, each.kind[0], str(each.microbatch + 1)) for each in run.passes
    )
    return Schedule(f"Schedule: {run.schedule}", lanes, blocks)


def _formulas(of: PipelinePlan) -> tuple[Formula, ...]:
    p, m, v, t = of.inputs.stages, of.inputs.microbatches, of.inputs.chunks, of.times
    first = of.rows[0]
    return (
        Formula("1F1B, of ideal", "(p-1)/m", f"({p} - 1)/{m}", percent(first.of_ideal)),
        Formula("1F1B, of total", "(p-1)/(m+p-1)", f"({p} - 1)/({m} + {p} - 1)", percent(first.of_total)),
        Formula("interleaved, of ideal", "(p-1)/(v m)", f"({p} - 1)/({v} * {m})", percent((p - 1) / (v * m))),
        Formula(
            "ZB-1p, of ideal",
            "(p-1)(F+B-W) / (m (F+B+W))",
            f"({p} - 1) * {seconds(t.forward + t.backward - t.weights)} / ({m} * {seconds(t.work)})",
            percent(schedules.closed_form("zb-1p", p, m, t)),
        ),
        Formula(
            "simulated",
            "1 - m (F+B+W) / longest stage",
            f"1 - {m} * {seconds(t.work)} / {seconds(first.seconds)}",
            percent(first.simulated),
        ),
    )
